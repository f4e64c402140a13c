"""Sends Events within the limits of client-go's recorder, and counts repeated Events in one."""

import http
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from devherd.api_server import Api, ApiError, Json, RateLimit

log = logging.getLogger(__name__)

BURST, REFILL_SECONDS = 25, 300.0
"""Limit of Events about one object: BURST at once, then one in each REFILL_SECONDS.

`defaultSpamBurst` and `defaultSpamQPS` of client-go, tools/record/events_cache.go.
"""
LIFETIME_SECONDS = 3600.0
"""The API server removes an Event after this time (`--event-ttl`): a later one starts a new series."""
_REFUSED_FOR_GOOD = {
    http.HTTPStatus.BAD_REQUEST,
    http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    http.HTTPStatus.UNPROCESSABLE_ENTITY,
}
"""The server refuses the content of the Event, and would refuse it again. After other refusals the Event is sent again:
a right may have been granted. client-go never resends a refused Event (`recordEvent`, tools/record/event.go)."""
_MOST_REMEMBERED = 1024
_LONGEST_PREFIX = 253 - 17
"""A name has 253 characters at most; a dot and 16 digits follow."""


@dataclass(slots=True)
class _Series:
    """An Event that was sent, or whose first sending got no answer."""

    name: str
    first: str
    """Its `firstTimestamp`."""
    sent_at: float
    """Monotonic seconds."""
    count: int = 0
    """0: it is not known whether the server has it."""


class EventSeries:
    """The Events of this process. `clock` returns Unix seconds."""

    def __init__(self, api: Api, clock: Callable[[], float] = time.time) -> None:
        self._api = api
        self._clock = clock
        self._series: OrderedDict[Hashable, _Series] = OrderedDict()
        self._limits: OrderedDict[Hashable, RateLimit] = OrderedDict()

    def wait_seconds(self, event: Json) -> float:
        """Seconds until an Event about the same object may be sent; 0 if it may be sent now."""
        return self._limit(event).wait_seconds()

    def send(self, event: Json, what: Hashable, times: int = 1) -> bool:
        """Send an Event; returns False if the limit does not allow it. Raises ApiError: send it again later.

        An Event whose content the server refuses is logged and dropped, so that others can be sent. An Event with the
        same `what` about the same object adds `times` to the count of the first. An Event that got no
        answer is sent again under the same name, so that the server has it once.
        """
        limit = self._limit(event)
        if limit.wait_seconds() > 0:
            return False
        try:
            self._count_or_create(event, what, times)
        except ApiError as error:
            if error.status not in _REFUSED_FOR_GOOD:
                raise
            log.warning("the API server refuses an Event, which is left out: %s: %s", event["message"], error)
        else:
            limit.allows()
        return True

    def _count_or_create(self, event: Json, what: Hashable, times: int) -> None:
        key = (_object_of(event), event["reason"], what)
        series = self._series.get(key) or self._new(event)
        if series.count and time.monotonic() - series.sent_at >= LIFETIME_SECONDS:
            series = self._new(event)
        self._series[key] = series
        self._series.move_to_end(key)
        _trim(self._series)
        if not (series.count and self._has_counted(event, series, times)):
            if series.count:  # the server has removed it, or does not let it be changed
                self._series[key] = series = self._new(event)
            self._create(event, series, times)
        series.count += times
        series.sent_at = time.monotonic()

    def _has_counted(self, event: Json, series: _Series, times: int) -> bool:
        changed = {"message": event["message"], **_counted(series.count + times, self._clock())}
        try:
            self._api.patch(f"{_collection(event)}/{series.name}", changed)
        except ApiError as error:
            if error.status in {http.HTTPStatus.NOT_FOUND, http.HTTPStatus.FORBIDDEN}:
                return False
            raise
        return True

    def _create(self, event: Json, series: _Series, times: int) -> None:
        metadata = {**event["metadata"], "name": series.name}
        body = {**event, "metadata": metadata, "firstTimestamp": series.first, **_counted(times, self._clock())}
        try:
            self._api.create(_collection(event), body)
        except ApiError as error:
            if error.status != http.HTTPStatus.CONFLICT:  # the server has it from an attempt without an answer
                raise

    def _new(self, event: Json) -> _Series:
        prefix = event["involvedObject"]["name"][:_LONGEST_PREFIX].rstrip("-.")
        name = f"{prefix}.{time.time_ns():016x}"
        return _Series(name, event.get("firstTimestamp") or moment(self._clock()), time.monotonic())

    def _limit(self, event: Json) -> RateLimit:
        key = _object_of(event)
        limit = self._limits.get(key) or RateLimit(BURST, REFILL_SECONDS)
        self._limits[key] = limit
        self._limits.move_to_end(key)
        _trim(self._limits)
        return limit


def _object_of(event: Json) -> tuple[str, ...]:
    about = event["involvedObject"]
    return tuple(about.get(key, "") for key in ("kind", "namespace", "name", "uid"))


def _collection(event: Json) -> str:
    return f"/api/v1/namespaces/{event['metadata']['namespace']}/events"


def _counted(count: int, now: float) -> Json:
    """The fields that differ between a first Event and a repeated one."""
    fields: Json = {"count": count, "lastTimestamp": moment(now)}
    if count > 1:
        fields["series"] = {"count": count, "lastObservedTime": moment(now).replace("Z", ".000000Z")}
    return fields


def _trim(remembered: OrderedDict[Hashable, Any]) -> None:
    while len(remembered) > _MOST_REMEMBERED:
        remembered.popitem(last=False)


def moment(seconds: float) -> str:
    """A Unix time in the API server's format."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
