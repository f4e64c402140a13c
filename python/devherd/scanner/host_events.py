"""Wake-ups from the host: uevents, directories whose entries come and go, and this process's signals.

Everything here may be missing (no netlink in a sandbox, inotify limit reached): the periodic rescan finds changes then.
"""

import contextlib
import logging
import os
import selectors
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from devherd._native import DirectoryWatch, UeventSocket

log = logging.getLogger(__name__)

_NOISE = ("/devices/virtual/net/", "/devices/virtual/bdi/", "/kernel/")
"""Objects of containers, mounts and slab caches: there are hundreds on a busy node, and none is a served device.

Driver and module events (`/bus/pci/drivers/amdgpu`, `/module/amdgpu`) are kept: they are rare, and a module that is
loaded or removed without a device bound to it changes what a scan finds.
"""


class Readable(Protocol):
    """What tells by its descriptor that there is something to be read."""

    def fileno(self) -> int:
        """The descriptor."""


@dataclass(slots=True)
class Happened:
    """What happened on the host while it was waited; true when that is anything."""

    events: list[dict[str, str]] = field(default_factory=list)
    """Uevents that count, in their order."""
    paths: bool = False
    """Entries of watched directories came or went."""
    lost: bool = False
    """There was more, and nobody knows what."""

    def __bool__(self) -> bool:
        """Whether there is a reason to look."""
        return bool(self.events) or self.paths or self.lost

    @property
    def places(self) -> Sequence[str]:
        """What of sysfs the uevents are about."""
        return sorted({f"/sys{event['DEVPATH']}" for event in self.events})

    @property
    def nodes(self) -> bool:
        """Whether nodes came or went."""
        return self.paths or any("DEVNAME" in event for event in self.events)


ANYTHING = Happened(lost=True)


class UeventSource(Readable, Protocol):
    """What `devherd._native.UeventSocket` is here."""

    def drain(self) -> tuple[list[dict[str, str]], bool]:
        """The variables of each event since the last call, and whether events were lost."""

    def close(self) -> None:
        """Stop listening."""


class HostEvents:
    """One place to wait for the host and for signals; without `uevents` and `watch`, only signals wake it."""

    def __init__(self, uevents: UeventSource | None = None, watch: DirectoryWatch | None = None) -> None:
        self._selector = selectors.DefaultSelector()
        self._wakeup_reader, self._wakeup_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wakeup_reader, selectors.EVENT_READ)
        signal.set_wakeup_fd(self._wakeup_writer, warn_on_full_buffer=False)
        self._uevents = uevents
        self._watch = watch
        for source in (uevents, watch):
            if source is not None:
                self._selector.register(source, selectors.EVENT_READ)
        self._unwatchable: set[str] = set()
        self._files: DirectoryWatch | None = None
        self._also: list[Readable] = []

    @classmethod
    def of_host(cls, simulated_node: Path | None) -> Self:
        """The events of this machine, or of the simulated node that is at a path."""
        return cls(_open_uevents(simulated_node), _open_watch())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(-1)
        self._selector.close()
        for source in (self._uevents, self._watch, self._files):
            if source is not None:
                source.close()
        os.close(self._wakeup_reader)
        os.close(self._wakeup_writer)

    def watch(self, directories: Iterable[str]) -> None:
        """Wake for created and removed entries of these directories, too; one that cannot be watched is logged once."""
        if self._watch is None:
            return
        for directory in directories:
            try:
                self._watch.add(directory)
                self._unwatchable.discard(directory)
            except OSError as error:
                if directory not in self._unwatchable:
                    reason = error.strerror or error
                    log.warning("cannot watch %s: %s; changes are found by the periodic rescan", directory, reason)
                self._unwatchable.add(directory)

    def watch_files(self, directory: Path | None) -> bool:
        """End `wait` for changed files of this directory, too, until None is given; True when this is new."""
        if directory is None and self._files is not None:
            self._selector.unregister(self._files)
            self._files.close()
            self._files = None
        if directory is None or self._files is not None or (watch := _open_watch_of(directory)) is None:
            return False
        self._files = watch
        self._selector.register(watch, selectors.EVENT_READ)
        return True

    def also_wait_for(self, *sources: Readable | None) -> None:
        """End `wait` while there is something to be read there, too, until this is called again; None is nothing."""
        wanted = [source for source in sources if source is not None]
        for source in [known for known in self._also if known not in wanted]:
            with contextlib.suppress(OSError):  # its owner has closed it
                self._selector.unregister(source)
        for source in [one for one in wanted if one not in self._also]:
            self._selector.register(source, selectors.EVENT_READ)
        self._also = wanted

    def wait(self, timeout: float) -> Happened:
        """Wait for at most `timeout` seconds; what happened on the host."""
        happened = Happened()
        for key, _ in self._selector.select(max(0.0, timeout)):
            if key.fileobj is self._uevents:
                events, happened.lost = self._uevents.drain()
                happened.events = list(filter(is_relevant, events))
            elif key.fileobj is self._watch:
                happened.paths = bool(self._watch.drain())
            elif key.fileobj is self._files:
                self._files.drain()
            elif key.fileobj == self._wakeup_reader:
                os.read(self._wakeup_reader, 4096)
        return happened


def is_relevant(event: Mapping[str, str]) -> bool:
    """Whether a uevent may be about a device, a driver or a module that a scan looks at."""
    return not event["DEVPATH"].startswith(_NOISE)


def _open_uevents(simulated_node: Path | None) -> UeventSocket | None:
    try:
        return UeventSocket(None if simulated_node is None else str(simulated_node))
    except OSError as error:
        log.warning("cannot listen for uevents: %s; changes are found by the periodic rescan", error)
        return None


def _open_watch() -> DirectoryWatch | None:
    try:
        return DirectoryWatch()
    except OSError as error:
        log.warning("no inotify: %s; raise fs.inotify.max_user_instances; until then only rescans see changes", error)
        return None


def _open_watch_of(directory: Path) -> DirectoryWatch | None:
    try:
        watch = DirectoryWatch()
    except OSError:
        return None  # the periodic rescan covers it
    try:
        watch.add(str(directory))
    except OSError:
        watch.close()
        return None
    return watch
