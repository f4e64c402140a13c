"""The ResourceSlices of one driver at the API server: carries out what is planned, and sees who else writes them.

What others remove or change is repaired at once. One who changes it again and again is another publisher of the driver:
that would never end, so the slices are left alone for a while.
"""

import json
import math
import re
import secrets
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from devherd.api_server import USER_AGENT, Api, ApiError, Json, RateLimit
from devherd.backoff import Backoff
from devherd.dra.slice_plan import SlicePlan, content_of, dropped, normal, plan_slices
from devherd.kubernetes.slice_watch import SLICES, SliceWatch

COME_BACKS, COME_BACK_SECONDS, STOPPED_SECONDS = 3, 60.0, 300.0
"""A writer who comes back so often within this time is left alone for the last."""
WIPES, WIPED_SECONDS = 10, 5.0
"""Slices that are removed so often within COME_BACK_SECONDS come back after this time, no more at once: a kubelet that
starts again and again removes them each time."""
_LONGEST_NAME = 253
_OF_ONE = {400, 409, 413, 422}
"""The statuses that say something of one object; others concern every driver."""
_PLACE = re.compile(r"spec\.devices\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class SliceServer:
    """What the drivers of a node share."""

    api: Api
    watch: SliceWatch
    limit: RateLimit


class _LimitReachedError(Exception):
    """The limit allows no further write at present."""


class DriverSlices:
    """Brings the slices of one driver to what is wanted."""

    def __init__(self, name: str, server: SliceServer) -> None:
        self._name = name
        self._server = server
        self.error = ""
        """Why the slices are not as they are to be; empty if they are, or will be in a moment."""
        self.dropped: set[str] = set()
        """The fields of devices that the server has dropped."""
        self._stored: dict[int, tuple[object, object]] = {}
        self._backoff = Backoff(0.2, 60.0, jitter=0.2)
        self._refused: SlicePlan | None = None
        """The plan of which the server has refused a write: it is tried again later, another one at once."""
        self._sent: Json = {}
        self._wrote: dict[str, int] = {}
        """By name: a fingerprint of each slice as this process wrote it, or found it right."""
        self._has_published = False
        self._counted: set[tuple[str, str]] = set()
        """Name and version of the changes by others that are counted already."""
        self._come_backs: dict[str, deque[float]] = {}
        self._wipes: deque[float] = deque()
        self._is_settled = False
        self._again_at = self._stopped_until = 0.0
        self.wrote_at = 0.0
        """Monotonic second of the last write; 0 before the first."""

    @property
    def due_at(self) -> float:
        """Monotonic second of the next attempt, if nothing changes before; infinite if all is as it is to be."""
        return math.inf if self._is_settled else max(self._again_at, self._stopped_until)

    def begin_again(self) -> None:
        """Publish again, though another writer is there."""
        self._again_at = self._stopped_until = 0.0

    def forget_answers(self) -> None:
        """Forget what the server has made of slices: it may be another server."""
        self._stored.clear()
        self.dropped.clear()

    def plan(self, wanted: Sequence[Json]) -> SlicePlan:
        """What is to be written."""
        return plan_slices(wanted, self._server.watch.of(self._name), self._stored)

    def bring(self, plan: SlicePlan, now: float) -> None:
        """Carry out a plan, unless it is to wait. Raises ApiError for what concerns other drivers, too."""
        there = {each["metadata"]["name"]: each for each in self._server.watch.of(self._name)}
        if not plan.writes:
            self._wrote = {name: _fingerprint(each) for name, each in there.items()}
            self._counted.clear()
            self._settle()
            return
        self._is_settled = False
        self._note_others(plan, there, now)
        if now < self._stopped_until or (now < self._again_at and plan == self._refused):
            return
        try:
            self._carry_out(plan)
        except _LimitReachedError:
            return
        except ApiError as error:
            was_there = "resourceVersion" in self._sent["metadata"]
            if error.status not in _OF_ONE and not (error.status == 404 and was_there):
                raise
            self._refuse(error, plan, now)
        else:
            self._settle()

    def _settle(self) -> None:
        self.error, self._refused = "", None
        self._is_settled = self._has_published = True
        self._backoff.reset()

    def _refuse(self, error: ApiError, plan: SlicePlan, now: float) -> None:
        """Note a refusal; the first conflict is none: the watch tells what has changed meanwhile."""
        is_conflict = error.status in (404, 409)
        if not (is_conflict and self._backoff.is_fresh):
            place = _PLACE.search(str(error))
            devices = self._sent["spec"].get("devices") or ()
            number = int(place[1]) if place and len(place[1]) < 5 else len(devices)
            device = f"device {devices[number]['name']}: " if number < len(devices) else ""
            self.error = f"{self._name}: {device}the API server refuses it: {error}"
        self._refused, self._again_at = plan, now + max(self._backoff.seconds(), error.retry_after_seconds or 0.0)

    def _carry_out(self, plan: SlicePlan) -> None:
        """Raises ApiError and _LimitReachedError."""
        api, watch = self._server.api, self._server.watch
        for slice_ in plan.deletes:
            self._take_turn(slice_)
            metadata = slice_["metadata"]
            api.delete(_path(slice_), uid=metadata["uid"], resourceVersion=metadata["resourceVersion"])
            self._wrote.pop(metadata["name"], None)
            watch.removed(slice_)
        for index, slice_ in plan.updates:
            self._take_turn(slice_)
            self._keep(index, slice_, api.replace(_path(slice_), slice_))
        for index, slice_ in plan.creates:
            named = with_name(slice_)
            self._take_turn(named)
            self._keep(index, named, api.create(SLICES, named))

    def _take_turn(self, slice_: Json) -> None:
        self._sent = slice_
        if not self._server.limit.allows():
            raise _LimitReachedError
        self.wrote_at = time.monotonic()

    def _keep(self, index: int, sent: Json, answer: Json) -> None:
        """Note what the server has made of a slice. Raises ApiError if it is none."""
        if not isinstance(answer.get("metadata"), dict) or not isinstance(answer.get("spec"), dict):
            raise ApiError(200, f"not a ResourceSlice: {json.dumps(answer)[:200]}")
        self._server.watch.wrote(answer)
        self._wrote[sent["metadata"]["name"]] = _fingerprint(answer)
        self._stored.pop(index, None)
        contents = content_of(sent), content_of(answer)
        if contents[0] != contents[1]:
            self._stored[index] = contents
            self.dropped |= dropped(sent["spec"], answer["spec"])

    def _note_others(self, plan: SlicePlan, there: Mapping[str, Json], now: float) -> None:
        """Note what others have done since the slices were right; stop if one comes back again and again."""
        if gone := self._wrote.keys() - there.keys():
            self._wrote = {name: of for name, of in self._wrote.items() if name not in gone}
            if _often(self._wipes, now) >= WIPES:
                self._stopped_until = now + WIPED_SECONDS
        touched = {each["metadata"]["name"] for each in (*plan.deletes, *(each for _, each in plan.updates))}
        changed = [there[name] for name in touched & there.keys() if self._is_by_others(there[name])]
        self._counted |= {_version_of(each) for each in changed}
        for writer in {_writer(each) for each in changed}:
            times = self._come_backs.setdefault(writer, deque())
            if _often(times, now) > COME_BACKS:
                times.clear()
                self._stopped_until = now + STOPPED_SECONDS
                self.error = (
                    f"{self._name}: {writer} writes its slices, too, and came back {COME_BACKS} times within a minute:"
                    f" devherd leaves them alone for {STOPPED_SECONDS / 60:.0f} minutes: end one of both publishers,"
                    " then `devherd reload`"
                )

    def _is_by_others(self, slice_: Json) -> bool:
        """Whether others have written it since the slices were right, and it is not counted yet."""
        is_own = self._wrote.get(slice_["metadata"]["name"]) == _fingerprint(slice_)
        return self._has_published and not is_own and _version_of(slice_) not in self._counted


def with_name(slice_: Json) -> Json:
    """The slice with a name of its own: the server's would end after 63 characters, and may be made twice."""
    metadata = {key: value for key, value in slice_["metadata"].items() if key != "generateName"}
    token = secrets.token_hex(3)
    base = slice_["metadata"]["generateName"][: _LONGEST_NAME - 1 - len(token)].rstrip("-.")
    return {**slice_, "metadata": {**metadata, "name": f"{base}-{token}"}}


def _path(slice_: Json) -> str:
    return f"{SLICES}/{slice_['metadata']['name']}"


def _fingerprint(slice_: Json) -> int:
    return hash(json.dumps(normal(slice_["spec"]), sort_keys=True, default=str))


def _version_of(slice_: Json) -> tuple[str, str]:
    metadata = slice_["metadata"]
    return metadata["uid"], str(metadata.get("resourceVersion"))


def _writer(slice_: Json) -> str:
    """The name of the program that has written last, other than this one."""
    fields = slice_["metadata"].get("managedFields") or ()
    others = [each for each in fields if each.get("manager") != USER_AGENT]
    latest: Json = max(others, key=lambda each: str(each.get("time", "")), default={})
    return str(latest.get("manager") or ("another devherd" if fields else "another writer"))


def _often(times: deque[float], now: float) -> int:
    """How often it has happened within COME_BACK_SECONDS, with now."""
    times.append(now)
    while times[0] < now - COME_BACK_SECONDS:
        times.popleft()
    return len(times)
