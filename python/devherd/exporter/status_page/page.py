"""The page's HTML, whole: what is known of the instance, for one view of its devices."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

from devherd.exporter.status_page.device import timestamp
from devherd.exporter.status_page.events import events_section
from devherd.exporter.status_page.html import Html, element, joined
from devherd.exporter.status_page.overview import overview, verdict
from devherd.exporter.status_page.resources import sections
from devherd.exporter.status_page.trouble import troubles
from devherd.exporter.status_page.view import View
from devherd.heartbeat import Heartbeats
from devherd.history.record import Event
from devherd.instance import Allocations, Herd
from devherd.inventory_json import host_name
from devherd.version import version

_FOLDER = Path(__file__).parent
SCRIPT, STYLE = (_FOLDER / "page.js").read_bytes(), (_FOLDER / "page.css").read_bytes()
BUILD = f"{zlib.crc32(STYLE, zlib.crc32(SCRIPT)):08x}"
"""Of which script and style a page is: in their addresses, so that a browser keeps the ones that fit."""
_FRAME = Template((_FOLDER / "page.html").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Page:
    """`tag` is its entity tag. It is a weak one: by the time of the last scan alone no page is another one."""

    body: str
    tag: str


def render(
    herd: Herd, allocations: Allocations | None, events: Sequence[Event], heartbeats: Heartbeats, view: View
) -> Page:
    """The page as it is now; `events` are the latest, in order."""
    found = troubles(herd, heartbeats)
    host = host_name()
    number = f"{len(found)} problem{'' if len(found) == 1 else 's'}"
    texts = {
        "title": escape(f"{number}: devherd on {host}" if found else f"devherd on {host}"),
        "build": BUILD,
        "host": escape(host),
        "about": _about(herd),
        "verdict": verdict(herd, found),
        "overview": joined(*overview(herd, heartbeats)),
        "filter": escape(view.filter),
        "narrowed": _narrowed(view),
        "events": events_section(events),
        "resources": joined(*sections(herd, allocations, view)) or _nothing(view),
    }
    timeless = _FRAME.substitute(texts, scanned="", tag="")
    scanned = timestamp(herd.scan.timestamp_seconds) if herd.scan else "not yet"
    tag = f'W/"{zlib.crc32(timeless.encode()):08x}{len(timeless):x}"'
    return Page(_FRAME.substitute(texts, scanned=scanned, tag=escape(tag)), tag)


def _about(herd: Herd) -> Html:
    return joined(*(element("div", element("dt", name), element("dd", value)) for name, value in _head(herd)))


def _head(herd: Herd) -> Iterator[tuple[str, str]]:
    head = herd.head
    if head is None:
        yield "Version", version()
        return
    yield "Version", head.version if head.revision == "unknown" else f"{head.version} ({head.revision})"
    yield "Process id", str(head.pid)
    yield "Running since", timestamp(head.started)
    configuration = head.config or "options and environment alone"
    loaded = herd.configuration.loaded_timestamp_seconds
    yield "Configuration", joined(configuration, ", loaded ", timestamp(loaded)) if loaded else configuration
    yield "Kubelet", f"{head.kubelet_dir} ({head.registration})"


def _narrowed(view: View) -> Html:
    if not view.is_narrowed:
        return Html()
    of = f" of {view.resource}" if view.resource else ""
    that = f" that match “{view.filter}”" if view.filter else ""
    return element("p", f"Devices{of}{that}. ", element("a", "Show all", href="?"), class_="narrowed")


def _nothing(view: View) -> Html:
    if view.is_narrowed:
        return element("p", "No device matches.")
    return element("p", "No devices have been found: ", element("code", "devherd scan"), " says where it looked.")
