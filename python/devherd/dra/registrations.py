"""What process `dra:<a|b>` says of its drivers: <run-dir>/dra/<a|b>/current.pb, and the same file of its twin.

At a hand-over the files of both processes pass to the next instance. Those of the old one know by them when their
successors are registered: the time of the success is another then.
"""

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

from devherd import spool
from devherd.history import History
from devherd.log import Once
from devherd.proto import spool_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

LETTERS = "ab"
"""Of the two processes."""


def twin_of(letter: str) -> str:
    """The other process's letter."""
    return LETTERS.replace(letter, "")


class Registrations:
    """The drivers of one process by name. A failed write is tried again by `keep`."""

    def __init__(self, directory: Path, letter: str, history: History) -> None:
        self._directory = directory
        self._letter = letter
        self._history = history
        before = spool.read_or_empty(self.path, spool_pb2.DraState)
        self._drivers = {driver.name: driver for driver in before.drivers}
        for driver in self._drivers.values():
            driver.registered = False
            driver.detail = "not served yet"
        self._counters = before.counters
        self._frozen: dict[str, Mapping[str, float]] = {}
        self._is_unwritten = True
        self._complaint = Once(log.warning)
        self._refusals: dict[str, Once] = {}

    @property
    def path(self) -> Path:
        """This process's file."""
        return spool.path_of(self._directory, self._letter)

    @property
    def names(self) -> set[str]:
        """All drivers, also those that an earlier process served."""
        return set(self._drivers)

    @property
    def has_registered(self) -> bool:
        """Whether the kubelet has registered any of them."""
        return any(driver.registered for driver in self._drivers.values())

    @property
    def waits(self) -> bool:
        """Whether the kubelet has registered none of them, and there are some."""
        return bool(self._drivers) and not self.has_registered

    def twin_serves(self, since: float) -> bool:
        """Whether the twin is registered, after this Unix second, for each driver that is registered here."""
        try:
            twin = {driver.name: driver for driver in self._read(twin_of(self._letter)).drivers if driver.registered}
        except OSError:  # no descriptor is left
            return False
        here = [name for name, driver in self._drivers.items() if driver.registered]
        return all(name in twin and twin[name].registered_timestamp_seconds >= since for name in here)

    def begins(self, name: str) -> None:
        """The driver is to be served from now on."""
        self._drivers.setdefault(name, spool_pb2.DraDriver(name=name, detail="not served yet"))
        self._is_unwritten = True

    def registered(self, name: str) -> None:
        """The kubelet has reported success."""
        driver = self._drivers[name]
        self._refusals.pop(name, None)
        driver.registered, driver.detail, driver.registered_timestamp_seconds = True, "", time.time()
        log.info("registered %s with the kubelet", name)
        self._history.note("registered", f"registered {name} with the kubelet", details={"driver": name})
        self._write()

    def is_not_registered(self, name: str, why: str) -> None:
        """The driver is not registered, as is to be expected for now; `why` is for people."""
        driver = self._drivers[name]
        if (driver.registered, driver.detail) != (False, why):
            driver.registered, driver.detail = False, why
            self._write()

    def fails(self, name: str, why: str) -> None:
        """The driver cannot be served or is refused; logged once, as long as it is for the same reason."""
        if self._drivers[name].registered:
            self._history.note("unregistered", f"{name}: {why}", details={"driver": name})
        self._refusals.setdefault(name, Once(log.warning)).complain("%s is not registered: %s", name, why)
        self.is_not_registered(name, why)

    def keep(self) -> bool:
        """Write what could not be written, and a removed file; called each second. False if that fails."""
        if not self._frozen and (self._is_unwritten or not self.path.exists()):
            self._write()
        return self._history.keep() and not self._is_unwritten

    def end(self) -> None:
        """Nothing is served any more."""
        for name in self._drivers:
            self.is_not_registered(name, "stopped")
        self.keep()

    def freeze(self) -> None:
        """Write for the last time: from now on the files belong to the next instance."""
        self._history.keep()
        self._write()
        self._frozen = {letter: _times(self._read(letter)) for letter in LETTERS}

    def was_last(self, name: str) -> bool:
        """After `freeze`: whether the kubelet has registered this process's driver later than the twin's.

        It calls the one that was registered last: pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go (`get`).
        """
        return self._time(self._letter, name) > self._time(twin_of(self._letter), name)

    def has_next(self, letter: str, name: str) -> bool:
        """After `freeze`: whether the next instance's process is registered, or does without this driver."""
        try:
            state = self._read(letter)
        except OSError:  # no descriptor is left
            return False
        found = next((driver for driver in state.drivers if driver.name == name), None)
        if found is None:
            return bool(state.drivers) and name in self._frozen[letter]
        return found.registered and found.registered_timestamp_seconds != self._time(letter, name)

    def _time(self, letter: str, name: str) -> float:
        return self._frozen[letter].get(name, 0.0)

    def _read(self, letter: str) -> spool_pb2.DraState:
        return spool.read_or_empty(spool.path_of(self._directory, letter), spool_pb2.DraState)

    def _write(self) -> None:
        self._is_unwritten = True
        if self._frozen:
            return
        drivers = [driver for _, driver in sorted(self._drivers.items())]
        try:
            spool.write(self.path, spool_pb2.DraState(drivers=drivers, counters=self._counters))
        except OSError as error:
            self._complaint.complain("cannot write %s: %s", self.path, error.strerror or error)
        else:
            self._complaint.over()
            self._is_unwritten = False


def _times(state: spool_pb2.DraState) -> dict[str, float]:
    return {driver.name: driver.registered_timestamp_seconds for driver in state.drivers}
