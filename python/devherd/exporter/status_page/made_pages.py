"""Pages that have been made, each compressed once, and made again when there is something else to show.

A reader asks every two seconds, and hardly ever is there something new: then no more is done than to look whether
somebody has touched the files of the run directory.
"""

import gzip
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus

from devherd import instance, spool
from devherd.exporter import health
from devherd.exporter.http_message import Answer, Request
from devherd.exporter.status_page.events import MOST_EVENTS
from devherd.exporter.status_page.page import BUILD, SCRIPT, STYLE, Page, render
from devherd.exporter.status_page.trouble import is_silent
from devherd.exporter.status_page.view import View
from devherd.heartbeat import Heartbeats
from devherd.history import read as history
from devherd.instance import Allocations
from devherd.proto import spool_pb2
from devherd.settings import Settings
from devherd.spool.identity import identity_of

MOST_VIEWS = 16
"""Kept, those that were asked for last: a page of 300 kB takes 30 kB."""
_GZIP_LEVEL = 6
_HEADERS = {
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
}
_FOR_EVER = {"Cache-Control": "max-age=31536000, immutable"}

ASSETS = {
    "/page.js": Answer(HTTPStatus.OK, "text/javascript; charset=utf-8", SCRIPT),
    "/page.css": Answer(HTTPStatus.OK, "text/css; charset=utf-8", STYLE),
}


def asset(request: Request) -> Answer:
    """Script or style of this build, which its address names; of another one's address nothing is kept."""
    found = ASSETS[request.path]
    headers = _FOR_EVER if request.query == BUILD else {}
    return Answer(found.status, found.content_type, found.body, headers)


@dataclass(frozen=True, slots=True)
class _Made:
    """A page, compressed, and of what it was made, which the time of the last scan is no part of."""

    state: list[object]
    scanned: float
    body: bytes
    tag: str


class MadePages:
    """The pages of the views that readers have. Used by one thread at a time."""

    def __init__(self, settings: Settings, heartbeats: Heartbeats) -> None:
        self._settings = settings
        self._heartbeats = heartbeats
        self._made: dict[View, _Made] = {}

    def answer(self, view: View, allocations: Allocations | None, *, may_lag: bool) -> Answer:
        """The page, compressed; if it `may_lag`, what it says of the last scan's time need not be true.

        That time is in a header as well. Raises OSError when the run directory is closed.
        """
        scan = spool.read_or_empty(self._settings.scan_file, spool_pb2.ScanSummary)
        state = [allocations, *scan.problems, *scan.notices, *self._state()]
        made = self._made.pop(view, None)
        if made is None or made.state != state or (made.scanned != scan.timestamp_seconds and not may_lag):
            page = self._render(allocations, view)
            made = _Made(state, scan.timestamp_seconds, gzip.compress(page.body.encode(), _GZIP_LEVEL), page.tag)
        self._made[view] = made
        if len(self._made) > MOST_VIEWS:
            del self._made[next(iter(self._made))]
        scanned = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(scan.timestamp_seconds))
        headers = {**_HEADERS, "ETag": made.tag, "Devherd-Scanned": scanned, "Content-Encoding": "gzip"}
        return Answer(HTTPStatus.OK, "text/html; charset=utf-8", made.body, headers)

    def _render(self, allocations: Allocations | None, view: View) -> Page:
        latest = history.events(self._settings.run_dir, limit=MOST_EVENTS)
        return render(instance.read(self._settings), allocations, latest, self._heartbeats, view)

    def _state(self) -> Iterator[object]:
        """Equal, with the kubelet's answer and what the last scan says, when the page is."""
        settings = self._settings
        for directory in (settings.resources_directory, settings.state_directory):
            for key in sorted(spool.keys_in(directory)):
                yield key, identity_of(spool.path_of(directory, key))
        yield identity_of(settings.verdicts_file)
        yield identity_of(settings.doubts_file)
        yield identity_of(settings.children_file)
        yield identity_of(settings.instance_file)
        yield identity_of(settings.served_file)
        yield history.stamp(settings.run_dir)
        herd = instance.read_children(settings)
        yield list(health.reasons_not_alive(herd, self._heartbeats))
        yield [is_silent(child, self._heartbeats) for child in herd.children.values()]
