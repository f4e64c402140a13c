"""Writes the offers: one file for all readers, and one for each resource child. Unchanged files are not written.

A device that moves to another resource is listed there only after the child of its old resource has sent a list
without it. When the run directory is full, a reserve of disk space is released, so that the failure of a device can
still be written and reach the kubelet.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from devherd import spool
from devherd.inventory import DeviceKey
from devherd.offers.device_plugin import ServedOffer
from devherd.offers.made import MadeOffer
from devherd.proto import spool_pb2
from devherd.spool import encoded, identity_of

log = logging.getLogger(__name__)

Acknowledged = Callable[[str, int | None], bool]
"""Called with a resource's key and a version: True if the kubelet can no longer get an older list; None: any list."""


@dataclass(frozen=True, slots=True)
class _Departure:
    """Devices that a resource no longer lists, starting with `version` of its file; None: its file is removed."""

    key: str
    version: int | None
    devices: frozenset[DeviceKey] | None
    """None: unknown, perhaps any device."""


class Handover:
    """Remembers which resource a device has left, until the departure is acknowledged. Does no I/O itself."""

    def __init__(self, acknowledged: Acknowledged) -> None:
        self._acknowledged = acknowledged
        self._departures: list[_Departure] = []

    def start_unknown(self, key: str, version: int | None) -> None:
        """Note that an earlier scanner wrote this version, and that the devices of the version before are unknown."""
        self._departures.append(_Departure(key, version, None))

    def left(self, key: str, version: int | None, devices: Iterable[DeviceKey]) -> None:
        """Note that a resource drops these devices with this version of its file; None: its file is removed."""
        self._departures.append(_Departure(key, version, frozenset(devices)))

    def returned(self, key: str, version: int) -> None:
        """Note that a removed resource has a file again: its child's list of this version has no earlier device."""
        self._departures = [
            replace(one, version=version) if one.key == key and one.version is None else one for one in self._departures
        ]

    def held_back(self, key: str, arriving: AbstractSet[DeviceKey]) -> set[DeviceKey]:
        """The arriving devices that another resource may still list at the kubelet."""
        if not arriving or not self._departures:
            return set()
        self._departures = [one for one in self._departures if not self._acknowledged(one.key, one.version)]
        return {
            device
            for device in arriving
            for one in self._departures
            if one.key != key and (one.devices is None or device in one.devices)
        }


_PREFIX = "resource:"


class Acknowledgements:
    """Reads the state files of the children and of the supervisor; keeps nothing."""

    def __init__(self, state_directory: Path, children_file: Path) -> None:
        self._state_directory = state_directory
        self._children_file = children_file

    def has(self, key: str, version: int | None) -> bool:
        """Whether the kubelet can no longer get a list of the resource older than `version`; None: any list at all.

        True if the child has sent that version, or does not run: the kubelet's stream ends with the process, and then
        every device of the resource is Unhealthy for the kubelet. A new process starts with the current list.
        """
        if key not in self.running():
            return True
        return version is not None and self._sent_version(key) >= version

    def running(self) -> set[str]:
        """The keys of the resources that have a process. Raises OSError without a descriptor, like `spool.read`."""
        try:
            children = spool.read(self._children_file, spool_pb2.Children).children
        except (FileNotFoundError, spool.SpoolError):
            return set()
        return {child.name.removeprefix(_PREFIX) for child in children if child.pid and child.name.startswith(_PREFIX)}

    def _sent_version(self, key: str) -> int:
        try:
            return spool.read(spool.path_of(self._state_directory, key), spool_pb2.ResourceState).sent_version
        except (FileNotFoundError, spool.SpoolError):
            return 0


Versioned = TypeVar("Versioned", spool_pb2.Offers, spool_pb2.Resource)


class _VersionedFile(Generic[Versioned]):
    """A file with one message. The message has a version number, which rises with each change."""

    def __init__(self, path: Path, earlier: Versioned | None) -> None:
        """`earlier`: the message that an earlier scanner left in the file."""
        self._path = path
        self.version = earlier.version if earlier is not None else 0
        self.identity = identity_of(path) if earlier is not None else None
        self.earlier: Versioned | None = earlier
        self._content = b""

    def is_intact(self) -> bool:
        """Whether the file is unchanged since this process, or the scanner before it, wrote it."""
        return self.identity is not None and identity_of(self._path) == self.identity

    def has(self, content: bytes) -> bool:
        """Whether the file has this content, ignoring the version."""
        if self.earlier is not None:  # it may be encoded in another way
            message = type(self.earlier).FromString(content)
            message.version = self.earlier.version
            if message != self.earlier:
                return False
            self.earlier, self._content = None, content
        return content == self._content

    def write(self, content: bytes, version: Versioned) -> None:
        """Write this content, followed by a message that contains only the version."""
        spool.update(self._path, content + encoded(version))
        self.version, self.identity = version.version, identity_of(self._path)
        self.earlier, self._content = None, content


class Publisher:
    """Writes `<run-dir>/offers.pb` and `<run-dir>/offers/device-plugin`."""

    def __init__(self, offers_file: Path, directory: Path, acknowledgements: Acknowledgements) -> None:
        self._offers = _VersionedFile(offers_file, spool.read_or_empty(offers_file, spool_pb2.Offers))
        self._directory = directory
        earlier: dict[str, spool_pb2.Resource] = dict(spool.read_all(directory, spool_pb2.Resource))
        self._resources = {key: self._file(key, resource) for key, resource in earlier.items()}
        """The file of each resource that a child serves, by key."""
        self._served: dict[str, ServedOffer] = {}
        """By key: the offer that this process wrote to the file. If it is the same object, it need not be compared
        again."""
        self._settled: list[MadeOffer] = []
        self._home: dict[str, AbstractSet[DeviceKey]] = {
            key: {(device.vendor, device.card, device.id) for device in resource.devices}
            for key, resource in earlier.items()
        }
        self._handover = Handover(acknowledgements.has)
        self._version = 0
        for key in self._resources.keys() | acknowledgements.running():
            version = self._resources[key].version if key in self._resources else None
            self._handover.start_unknown(key, version)
            self._version = max(self._version, version or 0)

    @property
    def published(self) -> list[spool_pb2.Offer]:
        """What an earlier scanner offered, in whatever way; empty once this process has published its own."""
        return [] if self._offers.earlier is None else [*self._offers.earlier.offers]

    def _file(self, key: str, earlier: spool_pb2.Resource | None = None) -> _VersionedFile[spool_pb2.Resource]:
        return _VersionedFile(spool.path_of(self._directory, key), earlier)

    def is_intact(self) -> bool:
        """Whether the files are as this process wrote them: none changed, removed or added by others."""
        return (
            self._offers.is_intact()
            and spool.keys_in(self._directory) == self._resources.keys()
            and all(file.is_intact() for file in self._resources.values())
        )

    def publish(self, offers: Iterable[ServedOffer], others: Sequence[MadeOffer] = ()) -> bool:
        """Write exactly these offers; False if moving devices have left their old resource but are not in the new one.

        `others` are those that no resource child serves.

        Then call it again when a child has written its state: the old resource must have sent its list without them
        before another resource lists them. Raises OSError when a file cannot be written; what was written stays.
        """
        self._directory.parent.mkdir(mode=0o700, exist_ok=True)
        self._directory.mkdir(mode=0o700, exist_ok=True)
        wanted = {spool.key_of(served.name): served for served in offers}
        self._let_go(wanted)
        complete = True
        settled: list[ServedOffer] = []
        for key, served in wanted.items():
            waiting = self._handover.held_back(key, _more(served, self._home.get(key, frozenset())))
            there = served.without(waiting)
            if not waiting or there.devices or key in self._resources:
                self._write(key, there)
                settled.append(there)
            complete &= not waiting
        self._settle(sorted([*(served.offer for served in settled), *others], key=lambda offer: offer.name))
        return complete

    def _settle(self, settled: list[MadeOffer]) -> None:
        is_intact = self._offers.is_intact()
        if is_intact and settled == self._settled:
            return
        content = spool.encoded(spool_pb2.EncodedOffers(offers=[offer.content for offer in settled]))
        if not is_intact or not self._offers.has(content):
            version = max(self._offers.version + 1, time.time_ns())
            self._offers.write(content, spool_pb2.Offers(version=version))
        self._settled = settled

    def _let_go(self, wanted: Mapping[str, ServedOffer]) -> None:
        """Remove resources that are no longer wanted, and devices that leave a resource."""
        for key in (self._resources.keys() - wanted.keys()) | (spool.keys_in(self._directory) - self._resources.keys()):
            spool.remove(self._directory, key)
            self._resources.pop(key, None)
            self._served.pop(key, None)
            self._handover.left(key, None, self._home.pop(key, frozenset()))
        for key, served in wanted.items():
            home = self._home.get(key, frozenset())
            leaving = frozenset[DeviceKey]() if home == served.devices.keys() else home - served.devices.keys()
            if leaving:
                self._write(key, served.without(_more(served, home)))
                self._handover.left(key, self._version, leaving)

    def _write(self, key: str, served: ServedOffer) -> None:
        file = self._resources.get(key)
        if self._served.get(key) is served and file is not None and file.is_intact():
            return
        if file is None or not (file.is_intact() and file.has(served.in_resource)):
            self._version = max(self._version + 1, time.time_ns())
            is_new = file is None
            file = file or self._file(key)
            file.write(served.in_resource, spool_pb2.Resource(version=self._version))
            self._resources[key] = file
            if is_new:
                self._handover.returned(key, self._version)
            self._home[key] = served.devices.keys()
        self._served[key] = served


def _more(served: ServedOffer, home: AbstractSet[DeviceKey]) -> AbstractSet[DeviceKey]:
    """The devices of the offer that its resource does not list yet."""
    return frozenset() if home == served.devices.keys() else served.devices.keys() - home


RESERVE_BYTES = 256 * 1024
"""Size of the reserve: room for the old and new files of some hundred devices."""
_SCARCE_BYTES = 32 * 1024
"""Free space below which the next file of a source may not fit."""


class Reserve:
    """A file of RESERVE_BYTES in the run directory. While the file is missing, `problem` says so."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.problem: spool_pb2.Problem | None = None

    def tend(self) -> None:
        """Create the reserve, or release it if little other space is left: sources also write into the directory."""
        try:
            place = os.statvfs(self._path.parent)
            room, is_there = place.f_bfree * place.f_frsize, self._path.exists()
            if is_there and room < _SCARCE_BYTES:
                self.give_up()
            elif not is_there and room > 2 * RESERVE_BYTES:
                self._make()
                is_there = True
        except OSError as error:
            log.debug("cannot keep %s: %s", self._path, error)
            return
        if is_there and self.problem:
            log.info("there is room again in %s", self._path.parent)
        self.problem = None if self._path.exists() else self._lacking()

    def give_up(self) -> bool:
        """Release the reserved space; False if it was already released."""
        try:
            self._path.unlink()
        except OSError:
            return False
        directory = self._path.parent
        log.error("%s is full: the reserve of %d KiB is in use; make room there", directory, RESERVE_BYTES // 1024)
        self.problem = self._lacking()
        return True

    def _lacking(self) -> spool_pb2.Problem:
        error = (
            "the run directory is full: when its last room is used up, devices that fail stay allocatable — make room"
        )
        return spool_pb2.Problem(vendor="devherd", path=str(self._path.parent), error=error)

    def _make(self) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
        finally:
            os.close(descriptor)
