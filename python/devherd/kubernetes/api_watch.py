"""Follows objects of the API server with a watch, in a thread that waits for the server.

While the watch fails (no server, no right to watch), the objects are read instead, finally once a minute.
"""

import http
import random
import threading
import time
import urllib.parse
from abc import ABC, abstractmethod

from devherd.api_server import Api, ApiError, Json
from devherd.backoff import Backoff
from devherd.waits import Waits

_WATCH_SECONDS = 300, 600
"""The server ends a watch after a random time in this range, as in client-go."""
_SHORTEST_SECONDS = 1.0
"""A watch that the server ends sooner is not followed by another at once."""
_JITTER = 0.9


class ApiWatch(threading.Thread, ABC):
    """Follows what `selector` selects of `collection`, a path; `metadata_alone` leaves out all but the metadata."""

    def __init__(
        self,
        api: Api,
        collection: str,
        selector: str,
        changed: threading.Event,
        waits: Waits,
        *,
        metadata_alone: bool = False,
    ) -> None:
        super().__init__(name=collection.rpartition("/")[2], daemon=True)
        self._api = api
        self._collection = collection
        self._selector = selector
        self._metadata_alone = metadata_alone
        self._silence_seconds = waits.watch_silence
        self._backoff = Backoff(waits.watch_again, waits.watch_again_at_last, jitter=_JITTER)
        self._version = ""
        self._changed = changed
        self.error: ApiError | None = None
        """Why the objects cannot be followed at present."""

    @abstractmethod
    def _read(self) -> str:
        """Read and take what there is; returns its version. Raises ApiError."""

    @abstractmethod
    def _take(self, kind: str, changed: Json) -> None:
        """Take an event: `ADDED`, `MODIFIED` or `DELETED`, and the object."""

    def run(self) -> None:
        """Follow the objects until the process ends."""
        while True:
            try:
                self.follow()
            except ApiError as error:
                self._version = ""
                if error.status != http.HTTPStatus.GONE:  # the server has forgotten the version: no problem
                    self._report(error)
                time.sleep(max(self._backoff.seconds(), error.retry_after_seconds or 0.0))

    def follow(self) -> None:
        """Read the objects, unless their last version is known, and follow them until the server ends the watch.

        Raises ApiError.
        """
        if not self._version:
            self._version = self._read()
            self._changed.set()
        began, has_events = time.monotonic(), False
        events = self._api.watch(self._path(), self._silence_seconds, metadata_alone=self._metadata_alone)
        self._report(None)
        for event in events:
            self._backoff.reset()
            has_events = True
            self._version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                self._take(event["type"], event["object"])
                self._changed.set()
        left = _SHORTEST_SECONDS - (time.monotonic() - began)
        if left > 0 and not has_events:
            raise ApiError(0, "the watch ended at once")
        time.sleep(max(left, 0))

    def _path(self) -> str:
        query = {
            "fieldSelector": self._selector,
            "resourceVersion": self._version,
            "timeoutSeconds": random.randint(*_WATCH_SECONDS),  # noqa: S311 - chance, not secrecy
            "allowWatchBookmarks": "true",
            "watch": "true",
        }
        return f"{self._collection}?{urllib.parse.urlencode(query)}"

    def _report(self, error: ApiError | None) -> None:
        if str(error) != str(self.error):
            self.error = error
            self._changed.set()
