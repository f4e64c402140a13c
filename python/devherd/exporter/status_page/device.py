"""The row of a device: a line with its health, holders and location; unfolded, the findings and every fact.

A shared device is one row, regardless of its number of ids in the kubelet's list.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from urllib.parse import quote

from devherd.exporter.status_page.html import Html, element, joined
from devherd.exporter.status_page.view import Holding
from devherd.instance.inventory_json import cordon_of, health_of, is_ill
from devherd.inventory import Holder
from devherd.proto import health_pb2, spool_pb2
from devherd.reasons.registry import CORDON
from devherd.spool import number_of_ids
from devherd.text import sharing_of

MOST_LINES = 20
"""Limit of lines for one fact, such as the holders of a shared device. The inventory's JSON has all holders."""
_BREAK = Html("<br>")


Place = tuple[str, str]
"""A resource's name and the id of one of its devices."""


@dataclass(frozen=True, slots=True)
class Row:
    """A device of a resource with its state. `holdings` are its allocated ids, None if unknown."""

    resource_name: str
    device: spool_pb2.Device
    holdings: list[Holding] | None
    verdict: health_pb2.Verdict | None
    model: str = ""
    since: float | None = None
    """The Unix second since which it is Unhealthy or, if Healthy, has a warning."""
    of_its_card: Sequence[Place] = ()
    """The devices of its card, this one included."""

    @property
    def place(self) -> Place:
        """Its resource and id."""
        return self.resource_name, self.device.id

    @property
    def style(self) -> str:
        """The CSS class for its colour."""
        if is_ill(self.device):
            return "bad"
        return "warn" if self.device.warnings else "off" if self.device.reasons else "good"


def link(*place: str, text: str = "") -> Html:
    """A link to a resource or a device on the page."""
    name = "/".join(place)
    return element("a", text or name, href=f"#{quote(name, safe='/:@')}")


def timestamp(seconds: float) -> Html:
    """A time in UTC; page.js adds its age."""
    shown = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(seconds))
    return element("time", shown, datetime=shown.replace(" ", "T"))


def device_row(row: Row, *, is_open: bool) -> Html:
    """The row as a list item."""
    evidence, facts = joined(*_evidence(row)), _facts(row)
    if evidence:
        facts = element("details", element("summary", "Facts"), facts)
    line, inside = element("summary", *_line(row)), joined(evidence, facts)
    return element("li", element("details", line, inside, open=is_open), id="/".join(row.place), class_=row.style)


def _line(row: Row) -> Iterator[Html]:
    device = row.device
    sharing = sharing_of(device)
    shared = f" ({sharing})" if sharing else ""
    yield element("span", device.id, element("small", shared) if shared else "", class_="name")
    yield element("span", row.model, class_="model")
    words = f"{health_of(device)}: {', '.join(device.reasons)}" if device.reasons else health_of(device)
    if cordon := cordon_of(row.verdict.held if row.verdict else ()):
        words = f"{words} {cordon}"
    if device.warnings:
        words = f"{words}; warning: {', '.join(device.warnings)}"
    since = joined(" since ", timestamp(row.since)) if row.since else ""
    yield element("span", words, since, class_=row.style)
    yield element("span", _holders_in_short(row), class_="holder")
    yield element("span", f"NUMA {', '.join(map(str, device.numa_nodes))}" if device.numa_nodes else "", class_="numa")
    yield element("span", _address(device), class_="address")


def _address(device: spool_pb2.Device) -> str:
    """Where a device is: its PCI address; without one, as a generic device, its first path."""
    return device.attributes.get("pci_address", "") or next((node.host_path for node in device.edits.nodes), "")


def _holders_in_short(row: Row) -> str:
    if row.holdings is None:
        return "holder unknown"
    if sharing_of(row.device):
        return f"{len(row.holdings)} of {number_of_ids(row.device)} allocated"
    return ", ".join(_holder(each) for _, holders in row.holdings for each in holders) or _unheld(row.device)


def _unheld(device: spool_pb2.Device) -> str:
    """A device that no pod holds is free if the kubelet would give it away: it keeps Unhealthy ones back."""
    return "no pod" if device.reasons else "free"


def _holder(holder: Holder) -> str:
    return f"{holder['namespace']}/{holder['pod']} ({holder['container']})"


def _evidence(row: Row) -> Iterator[Html]:
    """The findings of its verdict. Without a verdict this is empty, and only its line shows the reasons."""
    verdict = row.verdict
    if verdict is None:
        return
    if verdict.frozen:
        yield element("p", f"Not examined: {verdict.frozen}", class_="warn")
    for held in verdict.held:
        if not held.is_over:
            yield _finding(held)
    over = [held for held in verdict.held if held.is_over]
    if over:
        ended = (joined(element("dt", held.reason), element("dd", *_what_was_seen(held))) for held in over)
        yield element("p", "Past events:")
        yield element("dl", *ended)


def _finding(held: health_pb2.Held) -> Html:
    action = health_pb2.Action.Name(held.action).lower()
    title = f"{held.reason} ({'waiting' if held.is_waiting else action})"
    counts = held.action == health_pb2.UNHEALTHY and not held.is_waiting and not held.only_warned
    style = "off" if held.source == CORDON else "bad" if counts else "warn"
    return element(
        "div",
        element("p", element("strong", title, class_=style), f", source {held.source}: {held.detail}"),
        _pairs(
            ("Do", element("strong", held.do) if held.do else ""),
            ("Read", f"{held.file}: {held.value}" if held.value else held.file),
            ("Since", joined(*_what_was_seen(held))),
            ("Only a warning", held.only_warned),
            ("Judged by", held.rule),
            ("Ends", held.ends),
            ("So far", held.so_far),
        ),
        class_="finding",
    )


def _what_was_seen(held: health_pb2.Held) -> Iterator[str]:
    yield timestamp(held.first_timestamp_seconds)
    if held.count > 1:
        yield f", raised {held.count} times, last "
        yield timestamp(held.last_timestamp_seconds)


def _facts(row: Row) -> Html:
    device = row.device
    held_by = [
        joined(f"{device_id}: " if sharing_of(device) else "", _holder(holder))
        for device_id, holders in row.holdings or ()
        for holder in holders
    ]
    return element(
        "div",
        _pairs(
            ("Held by", _lines(held_by)),
            ("Nodes", _lines([node.host_path for node in device.edits.nodes])),
            ("CDI devices", _lines(list(device.edits.cdi_devices))),
            ("Card", device.card),
            ("Same card", _same_card(row)),
            *((name, device.attributes[name]) for name in sorted(device.attributes)),
        ),
        element("p", link(*row.place, text="Link to this device")),
        class_="facts",
    )


def _same_card(row: Row) -> Html:
    """The other devices of its card. There may be ten thousand: only the links that are shown are built."""
    others = islice((place for place in row.of_its_card if place != row.place), MOST_LINES)
    return _lines([link(*place) for place in others], len(row.of_its_card) - 1)


def _lines(texts: Sequence[str], total: int = 0) -> Html:
    """The first MOST_LINES of `texts`; `total` is their real number if not all are given."""
    more = max(total, len(texts)) - MOST_LINES
    if more > 0:
        texts = [*texts[:MOST_LINES], f"and {more} more"]
    return joined(*(joined(_BREAK if number else "", text) for number, text in enumerate(texts)))


def _pairs(*pairs: tuple[str, str]) -> Html:
    """A list of names and values; empty values are omitted."""
    there = [element("div", element("dt", name), element("dd", value)) for name, value in pairs if value]
    return element("dl", *there) if there else Html()
