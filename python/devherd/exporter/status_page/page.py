"""The whole page: the HTML of a view, rendered once per change for all readers."""

import gzip
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from pathlib import Path
from string import Template
from types import MappingProxyType

from devherd import history, spool
from devherd.exporter import health
from devherd.exporter.server import Request, Response
from devherd.exporter.status_page.device import Place, link, timestamp
from devherd.exporter.status_page.html import Html, element, joined, table
from devherd.exporter.status_page.overview import overview, problems, troubles, verdict
from devherd.exporter.status_page.picture import is_crowded, picture
from devherd.exporter.status_page.resources import sections
from devherd.exporter.status_page.view import View
from devherd.history import HistoryEvent
from devherd.instance.files import read_standby
from devherd.instance.inventory_json import host_name
from devherd.instance.node_map import Paths, node_map, read_paths
from devherd.instance.read import InstanceState, full_directory, read_children, read_instance, second_instance
from devherd.inventory import Allocations
from devherd.process import Heartbeats
from devherd.proto import spool_pb2
from devherd.settings import Settings
from devherd.spool import Identity, identity_of
from devherd.text import version

MOST_EVENTS = 30
"""Limit of the events on the page; `devherd events` shows all."""


def events_section(events: Sequence[HistoryEvent]) -> Html:
    """A table of the newest events; empty if there are no events."""
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


def _row(event: HistoryEvent) -> Sequence[str]:
    return timestamp(event.time), event.kind, _where(event), event.message


def _where(event: HistoryEvent) -> str:
    place = [name for name in (event.resource_name, event.device_id) if name]
    return link(*place) if event.resource_name else event.process


_FOLDER = Path(__file__).parent
SCRIPT, STYLE = (_FOLDER / "page.js").read_bytes(), (_FOLDER / "page.css").read_bytes()
BUILD = f"{zlib.crc32(STYLE, zlib.crc32(SCRIPT)):08x}"
"""Checksum of script and style: part of their URLs, so that a browser caches those that match the page."""
_FRAME = Template((_FOLDER / "page.html").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Page:
    """`tag` is its entity tag, a weak one: it does not depend on the time of the last scan."""

    body: str
    tag: str


def render(
    herd: InstanceState,
    allocations: Allocations | None,
    events: Sequence[HistoryEvent],
    view: View,
    paths: Paths = MappingProxyType({}),
) -> Page:
    """Render the page; `events` are the latest, newest last; `paths` are those of PCI functions."""
    found = troubles(herd)
    wrong = sum(not trouble.is_note for trouble in found)
    host = host_name()
    rows: set[Place] = set()
    resources = joined(*sections(herd, allocations, view, rows))
    node = node_map(herd, allocations, paths)
    parts = picture(node, rows), element("section", problems(found), id="troubles", aria_label="Problems")
    number = f"{wrong} problem{'' if wrong == 1 else 's'}"
    texts = {
        "title": escape(f"{number}: devherd on {host}" if wrong else f"devherd on {host}"),
        "build": BUILD,
        "host": escape(host),
        "about": _about(herd),
        "verdict": verdict(herd, found),
        "map_and_problems": joined(*(parts[::-1] if is_crowded(node) else parts)),
        "overview": joined(*overview(herd)),
        "filter": escape(view.filter),
        "narrowed": _narrowed(view),
        "events": events_section(events),
        "resources": resources or _nothing(view),
    }
    timeless = _FRAME.substitute(texts, scanned="", as_of="", tag="")
    scanned = timestamp(herd.scan.timestamp_seconds) if herd.scan else "not yet"
    tag = f'W/"{zlib.crc32(timeless.encode()):08x}{len(timeless):x}"'
    return Page(_FRAME.substitute(texts, scanned=scanned, as_of=timestamp(time.time()), tag=escape(tag)), tag)


def _about(herd: InstanceState) -> Html:
    return joined(*(element("div", element("dt", name), element("dd", value)) for name, value in _instance(herd)))


def _instance(herd: InstanceState) -> Iterator[tuple[str, str]]:
    instance = herd.instance
    if instance is None:
        yield "Version", version()
        return
    yield "Version", instance.version if instance.revision == "unknown" else f"{instance.version} ({instance.revision})"
    yield "Process id", str(instance.pid)
    yield "Running since", timestamp(instance.started)
    configuration = instance.config or "options and environment alone"
    loaded = herd.configuration.loaded_timestamp_seconds
    yield "Configuration", joined(configuration, ", loaded ", timestamp(loaded)) if loaded else configuration
    yield "Kubelet", f"{instance.kubelet_dir} ({instance.registration})"


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


MOST_VIEWS = 16
"""Limit of cached pages, least recently requested dropped first: a page of 300 kB takes 30 kB."""
_GZIP_LEVEL = 6
OLD_SECONDS = 5.0
"""Age at which a page is rendered again, so that the time on it is recent."""
_HEADERS = {
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
}
_FOR_EVER = {"Cache-Control": "max-age=31536000, immutable"}

ASSETS = {
    "/page.js": Response(HTTPStatus.OK, "text/javascript; charset=utf-8", SCRIPT),
    "/page.css": Response(HTTPStatus.OK, "text/css; charset=utf-8", STYLE),
}


def asset(request: Request) -> Response:
    """The script or style; may be cached for ever if the URL has the checksum of this build."""
    found = ASSETS[request.path]
    headers = _FOR_EVER if request.query == BUILD else {}
    return Response(found.status, found.content_type, found.body, headers)


@dataclass(frozen=True, slots=True)
class _Made:
    """A compressed page and the state it was made from, without the time of the last scan."""

    state: list[object]
    scanned: float
    made: float
    """CLOCK_MONOTONIC second."""
    body: bytes
    tag: str


class MadePages:
    """The pages of the views that were requested last. Not thread-safe."""

    def __init__(self, settings: Settings, heartbeats: Heartbeats) -> None:
        self._settings = settings
        self._heartbeats = heartbeats
        self._made: dict[View, _Made] = {}
        self._paths: Paths = {}
        self._paths_of: Identity | None = None

    def answer(self, view: View, allocations: Allocations | None, *, may_lag: bool) -> Response:
        """The compressed page; if it `may_lag`, its own time and that of the last scan on it may be outdated.

        The header `Devherd-Scanned` has the current one. Raises OSError if the run directory cannot be read.
        """
        scan = spool.read_or_empty(self._settings.scan_file, spool_pb2.ScanSummary)
        state = [allocations, *scan.problems, *scan.notices, InstanceState(scan=scan).overdue_scan(), *self._state()]
        made = self._made.pop(view, None)
        now = time.monotonic()
        is_old = made is not None and (made.scanned != scan.timestamp_seconds or now - made.made > OLD_SECONDS)
        if made is None or made.state != state or (is_old and not may_lag):
            page = self._render(allocations, view)
            made = _Made(state, scan.timestamp_seconds, now, gzip.compress(page.body.encode(), _GZIP_LEVEL), page.tag)
        self._made[view] = made
        if len(self._made) > MOST_VIEWS:
            del self._made[next(iter(self._made))]
        scanned = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(scan.timestamp_seconds))
        headers = {**_HEADERS, "ETag": made.tag, "Devherd-Scanned": scanned, "Content-Encoding": "gzip"}
        return Response(HTTPStatus.OK, "text/html; charset=utf-8", made.body, headers)

    def _render(self, allocations: Allocations | None, view: View) -> Page:
        latest = history.events(self._settings.run_dir, limit=MOST_EVENTS)
        herd = read_instance(self._settings, self._heartbeats)
        return render(herd, allocations, latest, view, self._known_paths())

    def _known_paths(self) -> Paths:
        """The paths of PCI functions, read again if the inventory has changed: it may have several megabytes."""
        identity = identity_of(self._settings.devices_file)
        if identity != self._paths_of:
            self._paths_of, self._paths = identity, read_paths(self._settings)
        return self._paths

    def _state(self) -> Iterator[object]:
        """The state that, together with allocations and the last scan, determines the page."""
        settings = self._settings
        for directory in (settings.kubernetes_problems_directory, settings.state_directory, settings.dra_directory):
            for key in sorted(spool.keys_in(directory)):
                yield key, identity_of(spool.path_of(directory, key))
        yield identity_of(settings.offers_file)
        yield identity_of(settings.devices_file)
        yield identity_of(settings.verdicts_file)
        yield identity_of(settings.lost_file)
        yield identity_of(settings.config_warnings_file)
        yield identity_of(settings.children_file)
        yield identity_of(settings.instance_file)
        yield identity_of(settings.served_file)
        yield history.stamp(settings.run_dir)
        yield full_directory(settings)
        yield second_instance(read_standby(settings.standby_file))
        herd = read_children(settings, self._heartbeats)
        yield list(health.reasons_not_alive(herd))
        yield herd.silent
