"""Follows one Node with a watch, in a thread that waits for the API server.

While the watch fails (no server, no right to watch), the Node is read instead, finally once a minute.
"""

import http
import random
import threading
import time
import urllib.parse
from dataclasses import dataclass

from devherd.backoff import Backoff
from devherd.kubernetes.api import Api, ApiError, Json
from devherd.waits import USUAL_WAITS, Waits

_WATCH_SECONDS = 300, 600
"""The server ends a watch after a random time in this range, as in client-go."""
_SHORTEST_SECONDS = 1.0
"""A watch that the server ends sooner is not followed by another at once."""
_JITTER = 0.9


@dataclass(frozen=True, slots=True)
class SeenNode:
    """The Node as it was seen last; None: there is none."""

    node: Json | None

    @property
    def metadata(self) -> Json:
        """The Node's metadata; empty without a Node."""
        return self.node["metadata"] if self.node else {}

    @property
    def labels(self) -> dict[str, str]:
        """The Node's labels."""
        return self.metadata.get("labels") or {}


class NodeWatch(threading.Thread):
    """Follows the Node of a name; `metadata_alone` leaves out its status, which is large."""

    def __init__(self, api: Api, name: str, *, metadata_alone: bool, waits: Waits = USUAL_WAITS) -> None:
        super().__init__(name="node", daemon=True)
        self._api = api
        self._node = name
        self._metadata_alone = metadata_alone
        self._silence_seconds = waits.node_silence
        self._backoff = Backoff(waits.node_again, waits.node_again_at_last, jitter=_JITTER)
        self._version = ""
        self.seen: SeenNode | None = None
        """None before the first answer."""
        self.error: ApiError | None = None
        """Why the Node cannot be followed at present."""
        self.changed = threading.Event()
        """Set when `seen` or `error` has changed."""

    def run(self) -> None:
        """Follow the Node until the process ends."""
        while True:
            try:
                self.follow()
            except ApiError as error:
                self._version = ""
                if error.status != http.HTTPStatus.GONE:  # the server has forgotten the version: no problem
                    self._report(error)
                time.sleep(self._backoff.seconds())

    def follow(self) -> None:
        """Read the Node, unless its last version is known, and follow it until the server ends the watch.

        Raises ApiError.
        """
        if not self._version:
            try:
                self._take(self._api.get(f"/api/v1/nodes/{self._node}", metadata_alone=self._metadata_alone))
            except ApiError as error:
                if error.status == http.HTTPStatus.NOT_FOUND:
                    self._take(None)
                raise
        began, has_events = time.monotonic(), False
        events = self._api.watch(self._path(), self._silence_seconds, metadata_alone=self._metadata_alone)
        self._report(None)
        for event in events:
            self._backoff.reset()
            has_events = True
            self._version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                self._take(event["object"] if event["type"] != "DELETED" else None)
        left = _SHORTEST_SECONDS - (time.monotonic() - began)
        if left > 0 and not has_events:
            raise ApiError(0, "the watch ended at once")
        time.sleep(max(left, 0))

    def _path(self) -> str:
        query = {
            "fieldSelector": f"metadata.name={self._node}",
            "resourceVersion": self._version,
            "timeoutSeconds": random.randint(*_WATCH_SECONDS),  # noqa: S311 - chance, not secrecy
            "allowWatchBookmarks": "true",
            "watch": "true",
        }
        return f"/api/v1/nodes?{urllib.parse.urlencode(query)}"

    def _take(self, node: Json | None) -> None:
        if node is not None:
            self._version = node["metadata"].get("resourceVersion", "")
        self.seen = SeenNode(node)
        self.changed.set()

    def _report(self, error: ApiError | None) -> None:
        if str(error) != str(self.error):
            self.error = error
            self.changed.set()
