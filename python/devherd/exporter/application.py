"""The pages by path. Each request reads the run directory again, or shares with others what was read after it came."""

import gzip
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs

from devherd import instance
from devherd.config.resolved import ExporterOptions
from devherd.exporter import exposition, health, metrics
from devherd.exporter.http_message import Answer, Request
from devherd.exporter.rendering import Rendering
from devherd.exporter.status_page.made_pages import ASSETS, MadePages, asset
from devherd.exporter.status_page.view import View
from devherd.heartbeat import Heartbeats
from devherd.instance import Allocations, Herd
from devherd.kubelet import registration_socket
from devherd.kubelet.pod_resources import PodResources
from devherd.settings import Settings

_METHODS = ("GET", "HEAD")
_GZIP_LEVEL = 6
MOST_QUEUED = 8
"""Pages that wait to be made, where a request may ask for one of its own: each `name[]` makes another page.

Who asks is judged when nothing is left to wait for: of those who wait together, each would find the queue empty.
"""
_ALWAYS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


class Application:
    """Answers GET and HEAD on its pages, and everything else with a line of text."""

    def __init__(self, settings: Settings, heartbeats: Heartbeats, pod_resources: PodResources) -> None:
        self._settings = settings
        self._options = ExporterOptions()
        self._heartbeats = heartbeats
        self._pod_resources = pod_resources
        self._rendering: Rendering[Answer] = Rendering()
        self._probing: Rendering[Answer] = Rendering()
        self._status_pages = MadePages(settings, heartbeats)
        self._pages: dict[str, Callable[[Request], Awaitable[Answer]]] = {
            "/": self._status_page,
            "/healthz": self._alive,
            "/readyz": self._ready,
            "/api/v1/inventory": self._inventory,
            "/api/v1/openapi.json": self._openapi,
            "/metrics": self._metrics,
        }

    def configure(self, options: ExporterOptions) -> None:
        """Show from now on what the configuration asks for."""
        self._options = options

    async def answer(self, request: Request) -> Answer:
        """The answer to one request."""
        answer = await self._page(request)
        return replace(answer, headers={**_ALWAYS, **answer.headers})

    async def _page(self, request: Request) -> Answer:
        if request.path not in self._pages and request.path not in ASSETS:
            return _text(HTTPStatus.NOT_FOUND, f"no such page; choose from {', '.join(self._pages)}\n")
        if request.method not in _METHODS:
            refusal = "only GET and HEAD: nothing here can be changed over HTTP\n"
            return replace(_text(HTTPStatus.METHOD_NOT_ALLOWED, refusal), headers={"Allow": ", ".join(_METHODS)})
        return asset(request) if request.path in ASSETS else await self._pages[request.path](request)

    def _herd(self) -> Herd:
        return instance.read(self._settings)

    async def _metrics(self, request: Request) -> Answer:
        """In the format and encoding that the scraper prefers; `name[]` in the query selects samples by name."""
        wanted = _Wanted(
            names=frozenset(parse_qs(request.query).get("name[]", ())),
            openmetrics=exposition.prefers_openmetrics(request.headers.get("accept", "")),
            gzip=_takes_gzip(request),
        )
        allocations = await self._pod_resources.allocations()
        if wanted.names and self._rendering.queue_length >= MOST_QUEUED:
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, "too many different queries; ask for all samples\n")
        return await self._rendering.shared(wanted, lambda: self._metrics_page(wanted, allocations))

    def _metrics_page(self, wanted: "_Wanted", allocations: Allocations | None) -> Answer:
        found: Iterable[exposition.Family] = metrics.families(
            self._herd(),
            allocations,
            self._heartbeats,
            of_devices=self._options.device_metrics,
            kubelet_listens=registration_socket.may_listen(self._settings),
        )
        if wanted.names:
            found = exposition.only(found, wanted.names)
        if wanted.openmetrics:
            answer = Answer(HTTPStatus.OK, exposition.OPENMETRICS, exposition.openmetrics(found).encode())
        else:
            answer = Answer(HTTPStatus.OK, exposition.TEXT, exposition.text(found).encode())
        if not wanted.gzip:
            return answer
        return replace(answer, body=gzip.compress(answer.body, _GZIP_LEVEL), headers={"Content-Encoding": "gzip"})

    async def _status_page(self, request: Request) -> Answer:
        """To a client that has it already, no more than that."""
        view, known = View.of_query(request.query), request.headers.get("if-none-match", "")
        allocations = await self._pod_resources.allocations()
        if view != View() and self._rendering.queue_length >= MOST_QUEUED:
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, "too many different views; ask again, or for all devices\n")
        make = partial(self._status_pages.answer, view, allocations, may_lag=bool(known))
        answer = await self._rendering.shared(("page", view, bool(known)), make)
        if answer.headers["ETag"] in known:
            return replace(answer, status=HTTPStatus.NOT_MODIFIED, body=b"")
        return answer if _takes_gzip(request) else _unpacked(answer)

    async def _alive(self, _: Request) -> Answer:
        return _verdict(health.reasons_not_alive(instance.read_children(self._settings), self._heartbeats))

    async def _ready(self, _: Request) -> Answer:
        return await self._probing.shared("ready", lambda: _verdict(health.reasons_not_ready(self._herd())))

    async def _inventory(self, request: Request) -> Answer:
        """All of it; with `resource` in the query what is named so, or matches."""
        wanted = frozenset(parse_qs(request.query).get("resource", ()))
        allocations = await self._pod_resources.allocations()
        if wanted and self._rendering.queue_length >= MOST_QUEUED:
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, "too many different queries; ask for all resources\n")

        def make() -> Answer:
            herd = self._herd()
            if wanted:
                herd = replace(herd, resources=[each for each in herd.resources if _matches(each.name, wanted)])
            inventory = instance.live_inventory(herd, allocations)
            return Answer(HTTPStatus.OK, "application/json", json.dumps(inventory).encode() + b"\n")

        return await self._rendering.shared(("inventory", wanted), make)

    async def _openapi(self, _: Request) -> Answer:
        return Answer(HTTPStatus.OK, "application/json", Path(__file__).with_name("openapi.json").read_bytes())


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a scraper asks for."""

    names: frozenset[str]
    openmetrics: bool
    gzip: bool


def _unpacked(answer: Answer) -> Answer:
    headers = {name: answer.headers[name] for name in answer.headers if name != "Content-Encoding"}
    return replace(answer, body=gzip.decompress(answer.body), headers=headers)


def _takes_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "").lower()


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _verdict(reasons: Iterable[str]) -> Answer:
    lines = "".join(f"{reason}\n" for reason in reasons)
    return _text(HTTPStatus.SERVICE_UNAVAILABLE, lines) if lines else _text(HTTPStatus.OK, "ok\n")


def _text(status: HTTPStatus, body: str) -> Answer:
    return Answer(status, "text/plain; charset=utf-8", body.encode())
