"""Follows the ResourceSlices of a node, those of every driver, by one watch.

A write of this process is seen at once, and not undone by what the server tells later of the time before it. So
versions are compared: they grow with each write (<https://kep.k8s.io/5504>).
"""

import threading
from collections import deque

from devherd.api_server import USER_AGENT, Api, Json
from devherd.kubernetes.api_watch import ApiWatch
from devherd.waits import USUAL_WAITS, Waits

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_PAGE = 2
"""Slices a page, within LARGEST_ANSWER_BYTES: those of other drivers are among them, and etcd takes 1.5 MiB each."""
_REMEMBERED = 1000


class SliceWatch(ApiWatch):
    """The slices that have the node's name. Its methods may be called by any thread."""

    def __init__(self, api: Api, node: str, changed: threading.Event, *, waits: Waits = USUAL_WAITS) -> None:
        """`changed` is set when slices or `error` have changed."""
        super().__init__(api, SLICES, f"spec.nodeName={node}", changed, waits)
        self._lock = threading.Lock()
        self._slices: dict[str, Json] = {}
        """By name."""
        self._removed: deque[str] = deque(maxlen=_REMEMBERED)
        """The uids of those that this process has removed: later news of them is old."""
        self._told = 0
        """The version up to which the server has told what happened."""
        self.reads = 0
        """How often all slices were read: what the server can do may be another after each."""
        self.changes = 0
        """Grows with each change of the slices that is not this process's own."""

    def of(self, driver: str) -> list[Json]:
        """The driver's slices."""
        with self._lock:
            return [each for each in self._slices.values() if each["spec"].get("driver") == driver]

    def drivers(self) -> set[str]:
        """The drivers that have slices."""
        with self._lock:
            return {each["spec"].get("driver", "") for each in self._slices.values()}

    def wrote(self, written: Json) -> None:
        """Note what the server has answered to a write, unless the watch was faster: it may have told the end since."""
        with self._lock:
            if _version(written) > self._told:
                self._put(_complete(written))

    def removed(self, slice_: Json) -> None:
        """Note that a slice was removed."""
        with self._lock:
            self._removed.append(slice_["metadata"]["uid"])
            self._drop(slice_)

    def _read(self) -> str:
        found, version = read_slices(self._api, self._selector)
        with self._lock:
            later = [each for each in self._slices.values() if _version(each) > _number(version)]
            self._slices = {}
            for each in (*found, *later):
                self._put(each)
            self._told = _number(version)
            self.reads += 1
            self.changes += 1
        return version

    def _take(self, kind: str, changed: Json) -> None:
        with self._lock:
            self._told = _version(changed)
            is_news = self._drop(_complete(changed)) if kind == "DELETED" else self._put(_complete(changed))
            self.changes += is_news

    def _put(self, slice_: Json) -> bool:
        """True unless it is known already."""
        metadata = slice_["metadata"]
        known = self._slices.get(metadata["name"])
        if metadata["uid"] in self._removed or (known is not None and _version(known) >= _version(slice_)):
            return False
        self._slices[metadata["name"]] = slice_
        return True

    def _drop(self, slice_: Json) -> bool:
        """True unless it is known already."""
        name = slice_["metadata"]["name"]
        known = self._slices.get(name)
        if known is None or known["metadata"]["uid"] != slice_["metadata"]["uid"]:
            return False
        del self._slices[name]
        return True


def read_slices(api: Api, selector: str) -> tuple[list[Json], str]:
    """The slices that a field selector selects, and the version of their list. Raises ApiError."""
    return api.collection(SLICES, _complete, page=_PAGE, fieldSelector=selector)


def is_devherds(slice_: Json) -> bool:
    """Whether devherd has written it."""
    return any(each.get("manager") == USER_AGENT for each in slice_["metadata"].get("managedFields") or ())


def _complete(slice_: Json) -> Json:
    """With what the API requires of it, whatever answers there."""
    return {**slice_, "metadata": {"name": "", "uid": "", **slice_["metadata"]}, "spec": slice_.get("spec") or {}}


def _version(slice_: Json) -> int:
    return _number(slice_["metadata"].get("resourceVersion", ""))


def _number(version: str) -> int:
    return int(version) if version.isascii() and version.isdecimal() else 0
