"""What has happened lately, newest first."""

from collections.abc import Sequence

from devherd.exporter.status_page.device import link, timestamp
from devherd.exporter.status_page.html import Html, element
from devherd.exporter.status_page.table import table
from devherd.history.record import Event

MOST_EVENTS = 30
"""`devherd events` has all."""


def events_section(events: Sequence[Event]) -> Html:
    """A table of them; `devherd events` has those for which there is no room."""
    if not events:
        return Html()
    rows = map(_row, reversed(events[-MOST_EVENTS:]))
    head = ("Time", "Kind", "Where", "What")
    return element(
        "section",
        element("h2", "Recent events"),
        table("What has happened lately, newest first", head, rows),
        element("p", "All: ", element("code", "devherd events")),
        id="events",
    )


def _row(event: Event) -> Sequence[str]:
    return timestamp(event.time), event.kind, _where(event), event.message


def _where(event: Event) -> str:
    place = [name for name in (event.resource_name, event.device_id) if name]
    return link(*place) if event.resource_name else event.process
