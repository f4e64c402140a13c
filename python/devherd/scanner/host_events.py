"""Notifications of the host: uevents, directories, signals, devlink's health reporters."""

import contextlib
import logging
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from devherd._native import Devlink, DirectoryWatch, HealthReporter, UeventSocket
from devherd.proto import spool_pb2
from devherd.reasons.registry import DEVLINK

log = logging.getLogger(__name__)

_NOISE = ("/devices/virtual/net/", "/devices/virtual/bdi/", "/kernel/")
"""Objects of containers, mounts and slab caches: there are hundreds on a busy node, and none is a served device.

Driver and module events (`/bus/pci/drivers/amdgpu`, `/module/amdgpu`) are kept: they are rare, and a module that is
loaded or removed without a device bound to it changes what a scan finds.
"""

_ALL_USERS = 2**32 - 1

DUMP_SECONDS = 30.0
"""Time between two dumps of all devlink health reporters: not every change sends a notification."""
_NETLINK = "netlink"
_DEVLINK_CURE = "let devherd open netlink sockets: a seccomp profile or SELinux may refuse them"


class Readable(Protocol):
    """An object with a file descriptor to wait on."""

    def fileno(self) -> int:
        """The descriptor."""


@dataclass(slots=True)
class HostChanges:
    """Changes on the host during a wait; true if there is a reason to look."""

    events: list[dict[str, str]] = field(default_factory=list)
    """Relevant uevents, oldest first."""
    paths: bool = False
    """Entries of watched directories were created or removed."""
    lost: bool = False
    """Events were lost: anything may have changed."""
    named: Sequence[str] = ()
    """Further paths to look at, without the host root: device nodes, and PCI functions that the kernel log names."""
    wakes: bool = False
    """The wait ended for another reason than a change of the host: a signal, a file, the kernel log, devlink."""

    def __bool__(self) -> bool:
        """Whether there is a reason to look."""
        return bool(self.events) or self.paths or self.lost or bool(self.named)

    @property
    def places(self) -> Sequence[str]:
        """The sysfs paths of the uevents, and the paths in `named`, sorted."""
        return sorted({*(f"/sys{event['DEVPATH']}" for event in self.events), *self.named})

    @property
    def nodes(self) -> bool:
        """Whether device nodes may have been created or removed."""
        return self.paths or any("DEVNAME" in event for event in self.events)


ANYTHING = HostChanges(lost=True)


class UeventSource(Readable, Protocol):
    """The part of `devherd._native.UeventSocket` that is used here."""

    def drain(self) -> tuple[list[dict[str, str]], bool]:
        """The variables of each event since the last call, and whether events were lost."""

    def close(self) -> None:
        """Stop listening."""


class HostEvents:
    """Waits for events of the host and for signals; without `uevents` and `watch` for signals only."""

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
        self._is_of_kernel = False
        self._files: DirectoryWatch | None = None
        self._also: list[Readable] = []

    @classmethod
    def of_host(cls, simulated_node: Path | None) -> Self:
        """The events of this machine, or of the simulated node at this path."""
        events = cls(_open_uevents(simulated_node), _open_watch())
        events._is_of_kernel = simulated_node is None and not is_in_user_namespace()
        return events

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
        """Also wake for created and removed entries of these directories; one that cannot be watched is logged once."""
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

    @property
    def are_reported(self) -> bool:
        """Whether the kernel reports all device events and all changes in the watched directories.

        False for a simulated node: it reports changes by its own tools, but not changes made to its files by hand.
        """
        return self._is_of_kernel and self._uevents is not None and self._watch is not None and not self._unwatchable

    @property
    def has_uevents(self) -> bool:
        """Whether this process listens for device events."""
        return self._uevents is not None

    def are_watched(self, directories: Iterable[str]) -> bool:
        """Whether all of these directories are watched."""
        return self._watch is not None and self._unwatchable.isdisjoint(directories)

    def watch_files(self, directory: Path | None) -> bool:
        """Also end `wait` when files of this directory change, until called with None; True if the watch is new."""
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
        """Also end `wait` while one of these is readable. Replaces the sources of the last call; None is ignored."""
        wanted = [source for source in sources if source is not None]
        for source in [known for known in self._also if known not in wanted]:
            with contextlib.suppress(OSError):  # its owner has closed it
                self._selector.unregister(source)
        for source in [one for one in wanted if one not in self._also]:
            self._selector.register(source, selectors.EVENT_READ)
        self._also = wanted

    def wait(self, timeout: float) -> HostChanges:
        """Wait for at most `timeout` seconds; returns what happened on the host."""
        changes = HostChanges()
        for key, _ in self._selector.select(max(0.0, timeout)):
            if key.fileobj is self._uevents:
                events, changes.lost = self._uevents.drain()
                changes.events = list(filter(is_relevant, events))
            elif key.fileobj is self._watch:
                changes.paths = bool(self._watch.drain())
            elif key.fileobj is self._files:
                self._files.drain()
                changes.wakes = True
            else:
                changes.wakes = True
                if key.fileobj == self._wakeup_reader:
                    os.read(self._wakeup_reader, 4096)
        return changes


def is_relevant(event: Mapping[str, str]) -> bool:
    """Whether a uevent may be about a device, a driver or a module that a scan looks at."""
    return not event["DEVPATH"].startswith(_NOISE)


def is_in_user_namespace() -> bool:
    """Whether this process is outside the initial user namespace: the kernel then sends it no device events.

    Source: uevent_net_broadcast_untagged in lib/kobject_uevent.c, which sends only to network namespaces of the initial
    user namespace. user_namespaces(7) describes the map.
    """
    try:
        rows = [row.split() for row in Path("/proc/self/uid_map").read_text().splitlines()]
    except OSError:
        return False
    return max((int(row[2]) for row in rows if len(row) == 3), default=_ALL_USERS) < _ALL_USERS


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


class DevlinkReader:
    """Reads the devlink health reporters of the host, if permitted."""

    def __init__(self, simulated_node: Path | None, deadline: float) -> None:
        """`deadline`: seconds to wait for an answer of the kernel."""
        self._deadline = deadline
        self._devlink = Devlink(deadline, None if simulated_node is None else str(simulated_node))
        self._due_at = 0.0
        self.is_in_use = False
        """Whether there are cards that may have health reporters: `look` was called, and not `pause` since."""
        self.failed = ""
        """Why the last dump failed; `reporters` keeps the earlier state. Empty if it did not fail."""
        self._is_refused = True
        """Whether `failed` is the kernel's refusal, if the socket is closed."""
        self.reporters: list[HealthReporter] = []

    @property
    def readable(self) -> Devlink | None:
        """The open socket, for `HostEvents.also_wait_for`; None while it is closed."""
        return self._devlink if self._devlink.is_open else None

    def look(self, beat: Callable[[], object] | None) -> None:
        """Dump all health reporters, if that is due. `beat` is called while waiting for the kernel."""
        self.is_in_use = True
        now = time.monotonic()
        if now < self._due_at and (not self._devlink.is_open or not self._devlink.is_stale or self.failed):
            return
        self._due_at = now + DUMP_SECONDS
        self._is_refused = True
        try:
            self._devlink.dump(beat)
            self.reporters = self._devlink.reporters
        except TimeoutError:
            self.failed = f"the kernel has not answered within {self._deadline:g} s: a driver keeps it waiting"
            self._is_refused = False
        except BlockingIOError as error:  # no thread could be started
            self.failed = str(error)
            self._is_refused = False
        except OSError as error:
            self.failed = error.strerror or str(error)
        else:
            self.failed = ""

    def pause(self) -> None:
        """Close the socket until the next `look`: no card has devlink health reporters."""
        self._devlink.close()
        self.is_in_use = False
        self._due_at = 0.0
        self.failed = ""
        self.reporters = []

    def receive(self) -> bool:
        """Apply the notifications since the last call; returns True if they change `reporters`."""
        if not self._devlink.is_open:
            return False
        try:
            self._devlink.receive()
        except OSError as error:
            self.failed = error.strerror or str(error)
            self._devlink.close()
            return False
        before, self.reporters = self.reporters, self._devlink.reporters
        return self.reporters != before

    def problems(self) -> list[spool_pb2.Problem]:
        """Why the health reporters cannot be read."""
        if not self.failed:
            return []
        is_refused = not self._devlink.is_open and self._is_refused
        error = f"the health reporters of network cards cannot be read: {self.failed}" + (
            f": {_DEVLINK_CURE}" * is_refused
        )
        return [spool_pb2.Problem(vendor=DEVLINK, path=_NETLINK, error=error)]
