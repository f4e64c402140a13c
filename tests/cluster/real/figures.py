"""What is watched and measured on the way; the figures are printed as a table at the end of the run."""

import contextlib
import threading
import time

import grpc
from control_plane import PODS

FIGURES = []
_LOOK_SECONDS = 0.015
"""The kubelet answers a hundred questions a second."""


def note(what, value):
    """One more row; of what has been measured several times there are several values."""
    for row in FIGURES:
        if row[0] == what:
            row[1].append(value)
            return
    FIGURES.append((what, [value]))


@contextlib.contextmanager
def timed(what):
    """Note how long the block takes."""
    began = time.monotonic()
    yield
    note(what, f"{time.monotonic() - began:.1f} s")


def table():
    """Rows of Markdown."""
    return ["| measured | |", "|---|---|", *(f"| {what} | {', '.join(values)} |" for what, values in FIGURES)]


class Watched:
    """Looks all the time whether the kubelet has devices of a resource, from `with` to its end."""

    def __init__(self, cluster, resource):
        self._cluster = cluster
        self._resource = resource
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._seen = []

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    @property
    def gap(self):
        """The longest time without any, as seconds from the last look that saw some to the first that did again."""
        longest, had = 0.0, None
        for at, count in self._seen:
            if count and had is not None and self._had_none_between(had, at):
                longest = max(longest, at - had)
            if count:
                had = at
        return longest

    @property
    def fewest(self):
        """The fewest devices at any look."""
        return min(count for _, count in self._seen)

    def _had_none_between(self, begin, end):
        return any(begin < at < end and not count for at, count in self._seen)

    def _look(self):
        while not self._ended.is_set():
            with contextlib.suppress(grpc.RpcError):  # a kubelet that has had enough questions is asked again
                self._seen.append((time.monotonic(), len(self._cluster.allocatable(self._resource))))
            time.sleep(_LOOK_SECONDS)


class PodsAllTheTime:
    """Has a pod with devices each tick, from `with` to its end; each goes when the kubelet has decided on it."""

    MOST = 20
    """How many there are at once: a tick that comes when there are as many brings none."""

    def __init__(self, cluster, spec, seconds=0.1):
        self._cluster = cluster
        # It waits for a volume: the kubelet has admitted it, and the runtime is spared what two cores cannot do.
        absent = {"name": "absent", "configMap": {"name": "absent"}}
        self._spec = spec | {"volumes": [absent]}
        self._seconds = seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._decided = set()
        self.admitted = 0
        self.refused = []
        """What the kubelet says of each pod that it did not admit."""

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    def _run(self):
        number = 0
        while not self._ended.is_set():
            began = time.monotonic()
            if self._look() < self.MOST:
                number += 1
                name = f"tick-{number}"
                metadata = {"name": name, "labels": {"app": "tick"}}
                manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": self._spec}
                self._cluster.control_plane.make(PODS, manifest)
            self._ended.wait(max(0.0, began + self._seconds - time.monotonic()))
        self._cluster.eventually(lambda: not self._look(), "the last pods are gone", 120)

    def _look(self):
        """Remove the pods that the kubelet has decided on; returns how many there are."""
        there = self._cluster.control_plane.get(f"{PODS}?labelSelector=app%3Dtick")["items"]
        for pod in there:
            name, status = pod["metadata"]["name"], pod["status"]
            if name in self._decided:
                continue
            if status.get("reason"):
                self.refused.append(f"{name}: {status['reason']}: {status.get('message', '')}")
            elif "containerStatuses" in status:
                self.admitted += 1
            else:
                continue
            self._decided.add(name)
            self._cluster.control_plane.delete(name)
        return len(there)
