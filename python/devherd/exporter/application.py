"""Pages by path. Each request reads the run directory, or shares the result of a read that began after it arrived."""

import asyncio
import json
import logging
import time
import zlib
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import parse_qs

from devherd.config.sections import ExporterOptions
from devherd.exporter import health
from devherd.exporter.server import Request, Response
from devherd.instance.read import InstanceState, live_inventory, read_children, read_instance
from devherd.inventory import Allocations
from devherd.kubelet import registration
from devherd.kubelet.pod_resources import PodResources
from devherd.lean_imports import PROMETHEUS, lean_imports
from devherd.log import Once
from devherd.process import Heartbeats
from devherd.settings import Settings

if TYPE_CHECKING:
    from devherd.exporter.metrics import Scrapes
    from devherd.exporter.status_page.page import MadePages

log = logging.getLogger(__name__)

LONGEST_REST_SECONDS = 1.0

Page = TypeVar("Page")


class _Queued(Generic[Page]):
    """A page that waits to be rendered, and the number of requests for it."""

    def __init__(self, task: asyncio.Task[Page]) -> None:
        self.task = task
        self.asking = 0


class Rendering(Generic[Page]):
    """Renders pages, one at a time, each followed by a pause as long as it took, up to LONGEST_REST_SECONDS."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._rested_at = 0.0
        self._queued: dict[Hashable, _Queued[Page]] = {}

    @property
    def queue_length(self) -> int:
        """Number of pages that wait to be rendered."""
        return len(self._queued)

    async def shared(self, key: Hashable, make: Callable[[], Page]) -> Page:
        """The result of `make`, called after this request arrived; one call serves all requests that wait for this key.

        It is not called if all of them are cancelled first.
        """
        queued = self._queued.get(key)
        if queued is None:
            queued = self._queued[key] = _Queued(asyncio.create_task(self._make(key, make)))
        queued.asking += 1
        try:
            return await asyncio.shield(queued.task)
        finally:
            queued.asking -= 1
            if not queued.asking and self._queued.get(key) is queued:
                del self._queued[key]
                queued.task.cancel()

    async def _make(self, key: Hashable, make: Callable[[], Page]) -> Page:
        async with self._turn:
            await asyncio.sleep(max(0.0, self._rested_at - time.monotonic()))
            self._queued.pop(key, None)  # later requests must see later changes: they start a new page
            began = time.monotonic()
            try:
                return await asyncio.to_thread(make)
            finally:
                ended = time.monotonic()
                self._rested_at = ended + min(ended - began, LONGEST_REST_SECONDS)


_METHODS = ("GET", "HEAD")
_GZIP, _GZIP_LEVEL = 16 + zlib.MAX_WBITS, 6
"""The `wbits` of zlib for gzip, and the compression level of answers."""
_ASSETS = ("/page.css", "/page.js")
MOST_QUEUED = 8
"""Limit of queued pages at which a request with its own selection is refused: each `name[]` makes another page.

It is checked after all other waits of a request: requests that wait together would all find the queue empty.
"""
_ALWAYS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


class Application:
    """Answers GET and HEAD on its pages; all other requests get an error of one line."""

    def __init__(self, settings: Settings, heartbeats: Heartbeats, pod_resources: PodResources) -> None:
        self._settings = settings
        self._options, self._is_dra = ExporterOptions(), False
        self._heartbeats = heartbeats
        self._pod_resources = pod_resources
        self._rendering: Rendering[Response] = Rendering()
        self._probing: Rendering[Response] = Rendering()
        self._processes = InstanceState()
        """The processes at the last liveness check."""
        self._complaint = Once(log.warning)
        self._pages: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/": self._status_page,
            "/healthz": self._alive,
            "/readyz": self._ready,
            "/api/v1/inventory": self._inventory,
            "/api/v1/openapi.json": self._openapi,
            "/metrics": self._metrics,
        }

    def configure(self, options: ExporterOptions, *, is_dra: bool = False) -> None:
        """Use these options for all further requests. `is_dra`: pods get devices by claims."""
        self._options, self._is_dra = options, is_dra

    async def answer(self, request: Request) -> Response:
        """The answer to one request; 503 if the run directory cannot be read, perhaps for lack of descriptors.

        Unreadable state is not reported as absent: alerts must not treat a device as gone, or as healthy.
        """
        try:
            answer = await self._page(request)
        except OSError as error:
            answer = _text(HTTPStatus.SERVICE_UNAVAILABLE, f"cannot read the state of devherd: {error}\n")
            self._complaint.complain("cannot answer %s: %s", request.path, error, about=str(error))
        return replace(answer, headers={**_ALWAYS, **answer.headers})

    async def _page(self, request: Request) -> Response:
        if request.path not in self._pages and request.path not in _ASSETS:
            return _text(HTTPStatus.NOT_FOUND, f"no such page; choose from {', '.join(self._pages)}\n")
        if request.method not in _METHODS:
            refusal = "only GET and HEAD: nothing here can be changed over HTTP\n"
            return replace(_text(HTTPStatus.METHOD_NOT_ALLOWED, refusal), headers={"Allow": ", ".join(_METHODS)})
        return _asset(request) if request.path in _ASSETS else await self._pages[request.path](request)

    @cached_property
    def _scrapes(self) -> "Scrapes":
        """Loads prometheus-client, 2 MB that probes do not need."""
        with lean_imports(PROMETHEUS):
            from devherd.exporter.metrics import Scrapes  # noqa: PLC0415 - as above

        return Scrapes(self._heartbeats)

    @cached_property
    def _status_pages(self) -> "MadePages":
        from devherd.exporter.status_page.page import MadePages  # noqa: PLC0415 - for browsers, which are rare

        return MadePages(self._settings, self._heartbeats)

    def _herd(self) -> InstanceState:
        return read_instance(self._settings, self._heartbeats)

    async def _metrics(self, request: Request) -> Response:
        """The metrics in the scraper's preferred format and encoding; `name[]` in the query selects samples by name."""
        wanted = _Wanted(
            names=frozenset(parse_qs(request.query).get("name[]", ())),
            openmetrics=prefers_openmetrics(request.headers.get("accept", "")),
            gzip=_takes_gzip(request),
        )
        allocations = await self._allocations()
        if wanted.names and self._rendering.queue_length >= MOST_QUEUED:
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, "too many different queries; ask for all samples\n")
        scrapes = self._scrapes
        return await self._rendering.shared(wanted, lambda: self._metrics_page(scrapes, wanted, allocations))

    def _metrics_page(self, scrapes: "Scrapes", wanted: "_Wanted", allocations: Allocations | None) -> Response:
        content_type, body = scrapes.page(
            self._herd(),
            allocations,
            self._options.device_metrics,
            kubelet_listens=registration.may_listen(self._settings),
            names=wanted.names,
            as_openmetrics=wanted.openmetrics,
        )
        answer = Response(HTTPStatus.OK, content_type, body)
        if not wanted.gzip:
            return answer
        return replace(
            answer, body=zlib.compress(answer.body, _GZIP_LEVEL, _GZIP), headers={"Content-Encoding": "gzip"}
        )

    async def _allocations(self) -> Allocations | None:
        """Who holds which device; None if the kubelet does not answer, or says it by claims."""
        return None if self._is_dra else await self._pod_resources.allocations()

    async def _status_page(self, request: Request) -> Response:
        """The status page; 304 without a body if the client has the current one."""
        from devherd.exporter.status_page.view import View  # noqa: PLC0415 - as in `_status_pages`

        view, known = View.of_query(request.query), request.headers.get("if-none-match", "")
        allocations = await self._allocations()
        if view != View() and self._rendering.queue_length >= MOST_QUEUED:
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, "too many different views; ask again, or for all devices\n")
        make = partial(self._status_pages.answer, view, allocations, may_lag=bool(known))
        answer = await self._rendering.shared(("page", view, bool(known)), make)
        if answer.headers["ETag"] in known:
            return replace(answer, status=HTTPStatus.NOT_MODIFIED, body=b"")
        return answer if _takes_gzip(request) else _unpacked(answer)

    async def _alive(self, _: Request) -> Response:
        self._processes = read_children(self._settings, self._heartbeats, self._processes)
        return _verdict(health.reasons_not_alive(self._processes))

    async def _ready(self, _: Request) -> Response:
        return await self._probing.shared("ready", lambda: _verdict(health.reasons_not_ready(self._herd())))

    async def _inventory(self, request: Request) -> Response:
        """The inventory as JSON; `resource` in the query selects resources by name or pattern."""
        wanted = frozenset(parse_qs(request.query).get("resource", ()))
        allocations = await self._allocations()
        if wanted and self._rendering.queue_length >= MOST_QUEUED:
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, "too many different queries; ask for all resources\n")

        def make() -> Response:
            herd = self._herd()
            if wanted:
                herd = replace(herd, resources=[each for each in herd.resources if _matches(each.name, wanted)])
            inventory = live_inventory(herd, allocations)
            return Response(HTTPStatus.OK, "application/json", json.dumps(inventory).encode() + b"\n")

        return await self._rendering.shared(("inventory", wanted), make)

    async def _openapi(self, _: Request) -> Response:
        return Response(HTTPStatus.OK, "application/json", Path(__file__).with_name("openapi.json").read_bytes())


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The selection and format that a scraper requests."""

    names: frozenset[str]
    openmetrics: bool
    gzip: bool


def _asset(request: Request) -> Response:
    from devherd.exporter.status_page.page import asset  # noqa: PLC0415 - as in `_status_pages`

    return asset(request)


def _unpacked(answer: Response) -> Response:
    headers = {name: answer.headers[name] for name in answer.headers if name != "Content-Encoding"}
    return replace(answer, body=zlib.decompress(answer.body, _GZIP), headers=headers)


def _takes_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "").lower()


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _verdict(reasons: Iterable[str]) -> Response:
    lines = "".join(f"{reason}\n" for reason in reasons)
    return _text(HTTPStatus.SERVICE_UNAVAILABLE, lines) if lines else _text(HTTPStatus.OK, "ok\n")


def _text(status: HTTPStatus, body: str) -> Response:
    return Response(status, "text/plain; charset=utf-8", body.encode())


def prefers_openmetrics(accept: str) -> bool:
    """True if an Accept header prefers OpenMetrics 1.0 to plain text. The library's own choice ignores weights."""
    weights = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for offer in accept.split(","):
        kind, *parameters = (part.strip() for part in offer.split(";"))
        values = dict(parameter.partition("=")[::2] for parameter in parameters)
        if kind in weights and values.get("version") in (None, "1.0.0", "0.0.4"):
            weights[kind] = max(weights[kind], _weight(values.get("q", "1")))
    return weights["application/openmetrics-text"] > weights["text/plain"]


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
