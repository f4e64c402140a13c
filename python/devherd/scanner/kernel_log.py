"""The kernel log of the host: reads new records, and finds the devices that they are about."""

import errno
import logging
import math
import os
import time
from collections.abc import Collection
from dataclasses import astuple, dataclass, replace

from devherd._native import Device, KernelLog, KernelLogEvent, prints_no_xids
from devherd.config.resolved import ResolvedConfig
from devherd.config.sections import KernelLogOptions
from devherd.health.held import NOTHING, KernelLogPosition, Remembered
from devherd.health.kernel_log import KernelLogSource, LastWords, Matched, PrintedXid
from devherd.inventory import Entry
from devherd.proto import spool_pb2
from devherd.reasons.kernel_log_rules import Rule, compiled_from, in_force
from devherd.reasons.registry import KERNEL_LOG

log = logging.getLogger(__name__)

RECORDS_A_ROUND = 10_000
"""Kernel log records that are read before the scanner sends a heartbeat and does its other work."""
PAUSE_SECONDS = 0.02
"""Pause between two reads of a busy kernel log: firewalls write a record for each packet."""
_VENDORS_OF_SHIPPED_RULES = ("nvidia", "amd", "intel-gpu")
"""Vendors of the kernel log rules that are always in force."""
_KERNEL_LOG_CURE = (
    "give devherd the device and CAP_SYSLOG (deploy/kubernetes/components/kernel-log does), or set"
    " health.kernel_log.enabled to false"
)
_NVIDIA_PARAMETERS = "/proc/driver/nvidia/params"
_SILENT = "the NVIDIA driver prints no Xids: RmLogonRC is 0: load the module without the option NVreg_RmLogonRC=0"


@dataclass(frozen=True, slots=True)
class Records:
    """The result of one read of the kernel log."""

    events: tuple[KernelLogEvent, ...] = ()
    lost: int = 0
    """Records that the kernel dropped before they were read."""
    more: bool = False


class KernelLogReader:
    """Reads the kernel log of the host, if permitted."""

    def __init__(self, config: ResolvedConfig, *, simulated: bool, known: Remembered = NOTHING) -> None:
        """`known`: the state of an earlier reader in this boot."""
        self._simulated = simulated
        self.known = known
        """State for a later reader in this boot."""
        self.readable: KernelLog | None = None
        """The open log, for `HostEvents.also_wait_for`; None while it is closed."""
        self._refusal: OSError | None = None
        self.due_at = math.inf
        """Monotonic second of the next read; infinite: the log is read only when it becomes readable."""
        self._source = KernelLogSource(known)
        self._matched_for = -1
        """Version of the inventory that the waiting records were matched with; -1 before the first."""
        self.has_new_records = False
        """Whether records were matched since a caller last reset this flag."""
        self.xids: list[PrintedXid] = []
        """Xids that no caller has taken yet."""
        self.reconfigure(config)

    def reconfigure(self, config: ResolvedConfig) -> None:
        """Use another configuration. Records are not read a second time."""
        self.close()
        self._config = config
        self.rules: dict[str, Rule] = _rules_in_force(config.health.kernel_log)
        self.open()

    def open(self) -> None:
        """Open the log if it is enabled and not open."""
        if self.readable is not None or not self._is_wanted:
            return
        try:
            root = str(self._config.host_root.absolute())
            after = astuple(self.known.kernel_log) if self.known.kernel_log else None
            self.readable = KernelLog(root, compiled_from(self.rules.values()), simulated=self._simulated, after=after)
            self._refusal = None
        except OSError as error:
            self._refusal = error

    def close(self) -> None:
        """Close the log."""
        if self.readable is not None:
            self.readable.close()
        self.readable = None
        self._refusal = None

    @property
    def is_resting(self) -> bool:
        """Whether reading is paused, although there may be records."""
        return time.monotonic() < self.due_at < math.inf

    def read(self) -> Records:
        """The records since the last call, at most RECORDS_A_ROUND. Does not wait."""
        self.due_at = math.inf
        if self.readable is None:
            return Records()
        try:
            events, lost, more = self.readable.drain(RECORDS_A_ROUND)
        except OSError as error:
            self.close()
            self._refusal = error
            return Records()
        position = KernelLogPosition(*self.readable.position())
        if more or position != self.known.kernel_log:
            self.known = replace(self.known, kernel_log=position)
            self.due_at = 0.0 if more else time.monotonic() + PAUSE_SECONDS
        return Records(tuple(events), lost, more)

    def match(self, records: Records, entries: Collection[Entry], version: int) -> Matched | None:
        """The findings of these records and of records that wait for a device; None if there is nothing to match.

        `version` changes with the entries of the inventory.
        """
        self.has_new_records |= bool(records.events)
        is_due = bool(records.events) or (self._matched_for != version and self._source.is_waiting)
        self._matched_for = version
        if not is_due:
            return None
        matched = self._source.match(records.events, self.rules, entries, version)
        self.xids += matched.xids
        source = self._source
        self.known = Remembered(
            self.known.kernel_log,
            source.waiting,
            source.at_unknown_links,
            source.uuids,
            self.known.memories,
            source.last_words.events,
        )
        return matched

    @property
    def last_words(self) -> LastWords:
        """What drivers last said of functions that may be no device."""
        return self._source.last_words

    def applies_to(self, device: Device) -> bool:
        """Whether a device needs the log: GPUs do; of other cards the shipped rules say what polls find as well."""
        options = self._config.health.kernel_log
        has_other_rules = bool(options.rules or options.optional)
        return device.vendor in _VENDORS_OF_SHIPPED_RULES or (has_other_rules and "pci_address" in device.attributes)

    def problems(self) -> list[spool_pb2.Problem]:
        """The problem if the log should be read, but cannot be read or lacks records; empty otherwise."""
        if not self._is_wanted:
            return []
        if self._refusal is not None:
            return [] if self._is_optional else [_closed(self._refusal)]
        if prints_no_xids(str(self._config.host_root)):
            return [_problem(_NVIDIA_PARAMETERS, _SILENT)]
        return []

    def notices(self) -> list[spool_pb2.Problem]:
        """A note that the log cannot be read, if the configuration uses it only where possible; otherwise empty."""
        return [_closed(self._refusal)] if self._refusal is not None and self._is_optional else []

    @property
    def _is_wanted(self) -> bool:
        health = self._config.health
        return bool(health.kernel_log.enabled) and KERNEL_LOG not in health.sources_off

    @property
    def _is_optional(self) -> bool:
        options = self._config.health.kernel_log
        return options.enabled == "auto" and not (options.rules or options.optional)


def last_words_of_boot(config: ResolvedConfig, *, simulated: bool) -> LastWords:
    """What drivers have said of functions, by one read of the whole log; nothing if it may not be read."""
    reader = KernelLogReader(config, simulated=simulated)
    is_more = True
    while is_more:
        records = reader.read()
        reader.match(records, (), 0)
        is_more = records.more
    reader.close()
    return reader.last_words


def _why(refusal: OSError) -> str:
    if refusal.errno == errno.ENODEV:
        return "something else is there"
    return os.strerror(refusal.errno) if refusal.errno else str(refusal)


def _closed(refusal: OSError) -> spool_pb2.Problem:
    return _problem("/dev/kmsg", f"the kernel log cannot be read: {_why(refusal)}: {_KERNEL_LOG_CURE}")


def _problem(path: str, error: str) -> spool_pb2.Problem:
    return spool_pb2.Problem(vendor=KERNEL_LOG, path=path, error=error)


def _rules_in_force(options: KernelLogOptions) -> dict[str, Rule]:
    return in_force(options.optional, [(rule.name, rule.contains, rule.pattern) for rule in options.rules])
