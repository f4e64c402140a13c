"""Wake-ups from the host: kernel device events, directories whose entries come and go, and this process's signals.

Everything here may be missing (no netlink in a network namespace, inotify limit reached): the slow rescan covers for
it.
"""

import logging
import os
import selectors
import signal
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from devherd._native import DirectoryWatch, UeventSocket

log = logging.getLogger(__name__)

# Kernel events of things that are never devices of ours but come by the thousand on a busy node.
_IRRELEVANT = ("/devices/virtual/net/", "/devices/virtual/bdi/", "/kernel/", "/bus/", "/module/")


class HostEvents:
    """One place to wait for the host and for signals. Without `listen`, only signals wake it."""

    def __init__(self, *, listen: bool) -> None:
        self._selector = selectors.DefaultSelector()
        self._wakeup_reader, self._wakeup_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wakeup_reader, selectors.EVENT_READ)
        signal.set_wakeup_fd(self._wakeup_writer, warn_on_full_buffer=False)
        self._uevents = _open_uevents() if listen else None
        self._watch = _open_watch() if listen else None
        for source in (self._uevents, self._watch):
            if source is not None:
                self._selector.register(source, selectors.EVENT_READ)
        self._unwatchable: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(-1)
        self._selector.close()
        for source in (self._uevents, self._watch):
            if source is not None:
                source.close()
        os.close(self._wakeup_reader)
        os.close(self._wakeup_writer)

    def watch(self, directories: Iterable[str]) -> None:
        """Wake for entries that come and go in these directories, too; one that cannot be watched is said once."""
        if self._watch is None:
            return
        for directory in directories:
            try:
                self._watch.add(directory)
                self._unwatchable.discard(directory)
            except OSError as error:
                if directory not in self._unwatchable:
                    log.warning("%s: cannot be watched: %s; rescans see its changes", directory, error)
                self._unwatchable.add(directory)

    def wait(self, timeout: float) -> bool:
        """Wait for at most `timeout` seconds; True when something happened on the host."""
        happened = False
        for key, _ in self._selector.select(max(0.0, timeout)):
            if key.fileobj is self._uevents:
                happened |= any(_is_relevant(event) for event in self._uevents.drain())
            elif key.fileobj is self._watch:
                happened |= bool(self._watch.drain())
            else:
                os.read(self._wakeup_reader, 4096)
        return happened


def _is_relevant(event: str) -> bool:
    path = event.partition("@")[2]
    return not path.startswith(_IRRELEVANT)


def _open_uevents() -> UeventSocket | None:
    try:
        return UeventSocket()
    except OSError as error:
        log.warning("no kernel device events: %s; new devices are seen by the next rescan", error)
        return None


def _open_watch() -> DirectoryWatch | None:
    try:
        return DirectoryWatch()
    except OSError as error:
        log.warning("no inotify: %s; raise fs.inotify.max_user_instances; until then only rescans see changes", error)
        return None
