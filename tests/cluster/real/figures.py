"""What was measured on the way, printed as a table at the end of the run."""

import contextlib
import threading
import time

import grpc

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

    def _had_none_between(self, begin, end):
        return any(begin < at < end and not count for at, count in self._seen)

    def _look(self):
        while not self._ended.is_set():
            with contextlib.suppress(grpc.RpcError):  # a kubelet that has had enough questions is asked again
                self._seen.append((time.monotonic(), len(self._cluster.allocatable(self._resource))))
            time.sleep(_LOOK_SECONDS)
