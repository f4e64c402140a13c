"""The kernel log as the scanner reads it: opened when it can be, read a part at a time, its position kept."""

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from devherd._native import Device, KernelLog, KernelLogEvent
from devherd.config.resolved import Config
from devherd.health.kernel_log_rules import Rule, compiled_from, in_force
from devherd.health.registry import KERNEL_LOG
from devherd.health.remembered import KernelLogPosition
from devherd.proto import spool_pb2

_OF_SHIPPED_RULES = ("nvidia", "amd", "intel-gpu")
"""Vendors that the rules are about which nobody has to ask for."""

RECORDS_A_ROUND = 10_000
"""How many are read before the scanner beats and looks at anything else."""
_CURE = (
    "give devherd the device and CAP_SYSLOG (deploy/kubernetes/components/kernel-log does), or set"
    " health.kernel_log.enabled to false"
)


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of one read."""

    events: tuple[KernelLogEvent, ...] = ()
    lost: int = 0
    more: bool = False


class KernelLogReader:
    """The log of the host, as far as it may be read."""

    def __init__(self, config: Config, *, simulated: bool, position: KernelLogPosition | None = None) -> None:
        """`position` is where an earlier reader was, in this boot."""
        self._simulated = simulated
        self._position = position
        self._log: KernelLog | None = None
        self._refusal: OSError | None = None
        self.reconfigure(config)

    def reconfigure(self, config: Config) -> None:
        """Use another configuration: what was read is not read again."""
        self.close()
        self._config = config
        self.rules: dict[str, Rule] = in_force(config.health.kernel_log)
        self.open()

    def open(self) -> None:
        """Open it, if it is to be read and is not open yet."""
        if self._log is not None or not self._config.health.kernel_log.enabled:
            return
        try:
            root = str(self._config.host_root.absolute())
            self._log = KernelLog(
                root, compiled_from(self.rules.values()), simulated=self._simulated, after=self._position
            )
            self._refusal = None
        except OSError as error:
            self._refusal = error

    def close(self) -> None:
        """Close it."""
        if self._log is not None:
            self._log.close()
        self._log = None
        self._refusal = None

    @property
    def readable(self) -> KernelLog | None:
        """What is readable when there are records; None while the log is not open."""
        return self._log

    @property
    def position(self) -> KernelLogPosition | None:
        """Where it is by now; None where nothing was ever read."""
        return self._position

    def read(self) -> Heard:
        """What came since the last time, without waiting, and in parts when that is much."""
        if self._log is None:
            return Heard()
        try:
            events, lost, more = self._log.drain(RECORDS_A_ROUND)
        except OSError as error:
            self.close()
            self._refusal = error
            return Heard()
        self._position = KernelLogPosition(*self._log.position())
        return Heard(tuple(events), lost, more)

    def speaks_of(self, device: Device) -> bool:
        """Whether a rule in force could be about a device: the shipped ones are about GPUs, others about any card."""
        options = self._config.health.kernel_log
        has_other_rules = bool(options.rules or options.optional)
        return device.vendor in _OF_SHIPPED_RULES or (has_other_rules and "pci_address" in device.attributes)

    def problems(self) -> list[spool_pb2.Problem]:
        """Why less is heard than there might be."""
        if not self._config.health.kernel_log.enabled:
            return []
        if self._refusal is not None:
            return [] if self._is_optional else [_closed(self._refusal)]
        if _is_silent(self._config.host_root / _NVIDIA_PARAMETERS):
            return [_problem(f"/{_NVIDIA_PARAMETERS}", _SILENT)]
        return []

    def notices(self) -> list[spool_pb2.Problem]:
        """What is as it is for want of a right that nobody has asked for: no problem, and to be said all the same."""
        return [_closed(self._refusal)] if self._refusal is not None and self._is_optional else []

    @property
    def _is_optional(self) -> bool:
        options = self._config.health.kernel_log
        return options.enabled == "auto" and not (options.rules or options.optional)


_NVIDIA_PARAMETERS = Path("proc/driver/nvidia/params")
_SILENT = "the NVIDIA driver prints no Xids: RmLogonRC is 0: load the module without the option NVreg_RmLogonRC=0"


def _is_silent(parameters: Path) -> bool:
    try:
        return "RmLogonRC: 0" in parameters.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return False


def _why(refusal: OSError) -> str:
    if refusal.errno == errno.ENODEV:
        return "something else is there"
    return os.strerror(refusal.errno) if refusal.errno else str(refusal)


def _closed(refusal: OSError) -> spool_pb2.Problem:
    return _problem("/dev/kmsg", f"the kernel log cannot be read: {_why(refusal)}: {_CURE}")


def _problem(path: str, error: str) -> spool_pb2.Problem:
    return spool_pb2.Problem(vendor=KERNEL_LOG, path=path, error=error)
