"""The pages: which path answers what. A WSGI application; each request looks at the run directory afresh."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, make_wsgi_app

from devherd import run_directory
from devherd.exporter import health, status_page
from devherd.exporter.metrics import HerdCollector
from devherd.exporter.pod_resources import PodResources
from devherd.heartbeat import Heartbeats
from devherd.run_directory import Herd
from devherd.settings import Settings

Environment = dict[str, Any]
StartResponse = Callable[..., Any]

TEXT = "text/plain; charset=utf-8"
_METHODS = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a page says."""

    status: str
    content_type: str
    body: str


class Application:
    """Answers GET and HEAD on its pages, tells everything else so in a line of text. Thread-safe: keeps nothing."""

    def __init__(self, settings: Settings, heartbeats: Heartbeats, pod_resources: PodResources) -> None:
        self._settings = settings
        self._heartbeats = heartbeats
        self._pod_resources = pod_resources
        registry = CollectorRegistry()
        registry.register(HerdCollector(self._herd, pod_resources.allocations, heartbeats, settings.counters_directory))
        self._metrics = make_wsgi_app(registry)
        self._pages: dict[str, Callable[[], Answer]] = {
            "/": self._status_page,
            "/healthz": self._alive,
            "/readyz": self._ready,
            "/api/v1/inventory": self._inventory,
        }

    def __call__(self, environment: Environment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        method, path = environment["REQUEST_METHOD"], environment["PATH_INFO"] or "/"
        if method in _METHODS and path == "/metrics":
            return self._send_metrics(environment, start_response)
        return _send(self._answer(method, path), method, start_response)

    def _answer(self, method: str, path: str) -> Answer:
        if path not in self._pages and path != "/metrics":
            return Answer("404 Not Found", TEXT, f"no such page; there are: {', '.join([*self._pages, '/metrics'])}\n")
        if method not in _METHODS:
            return Answer("405 Method Not Allowed", TEXT, "only GET and HEAD: nothing here can be changed over HTTP\n")
        return self._pages[path]()

    def _send_metrics(self, environment: Environment, start_response: StartResponse) -> Iterable[bytes]:
        """prometheus_client answers no HEAD: it is asked with GET."""
        starts: list[tuple[str, list[tuple[str, str]]]] = []
        asked = {**environment, "REQUEST_METHOD": "GET"}
        body = b"".join(self._metrics(asked, lambda status, headers: starts.append((status, headers))))
        [(status, headers)] = starts
        start_response(status, [*headers, ("Content-Length", str(len(body)))])
        return [] if environment["REQUEST_METHOD"] == "HEAD" else [body]

    def _herd(self) -> Herd:
        return run_directory.read(self._settings)

    def _status_page(self) -> Answer:
        herd = self._herd()
        reasons = [*health.reasons_not_alive(herd, self._heartbeats), *health.reasons_not_ready(herd)]
        page = status_page.render(herd, self._pod_resources.allocations(), reasons, self._heartbeats)
        return Answer("200 OK", "text/html; charset=utf-8", page)

    def _alive(self) -> Answer:
        return _verdict(health.reasons_not_alive(self._herd(), self._heartbeats))

    def _ready(self) -> Answer:
        return _verdict(health.reasons_not_ready(self._herd()))

    def _inventory(self) -> Answer:
        inventory = run_directory.live_inventory(self._herd(), self._pod_resources.allocations())
        return Answer("200 OK", "application/json", json.dumps(inventory) + "\n")


def _verdict(reasons: Iterable[str]) -> Answer:
    lines = "".join(f"{reason}\n" for reason in reasons)
    return Answer("503 Service Unavailable", TEXT, lines) if lines else Answer("200 OK", TEXT, "ok\n")


def _send(answer: Answer, method: str, start_response: StartResponse) -> Iterable[bytes]:
    body = answer.body.encode()
    headers = [
        ("Content-Type", answer.content_type),
        ("Content-Length", str(len(body))),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
        ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    ]
    if answer.status.startswith("405"):
        headers.append(("Allow", "GET, HEAD"))
    start_response(answer.status, headers)
    return [] if method == "HEAD" else [body]
