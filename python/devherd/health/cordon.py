"""Operators' orders: cordons, which keep a device from new pods, and clearing of findings."""

import contextlib
import fcntl
import logging
import time
from collections.abc import Iterator
from pathlib import Path

from devherd import spool
from devherd._native import Evidence
from devherd.health.held import Now
from devherd.inventory import DeviceKey
from devherd.proto import health_pb2
from devherd.reasons.registry import CORDON, CORDONED, OPERATOR

log = logging.getLogger(__name__)


def keep_cordons(kept: Path, message: health_pb2.Findings) -> None:
    """Write the copy so that it survives a loss of power. Raises OSError."""
    kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    spool.replace(kept, message.SerializeToString(deterministic=True), mode=0o600, is_synced=True)


def restore_cordons(kept: Path, live: Path) -> None:
    """Restore `live` from its copy at the first start after a boot; at other starts bring the copy up to date."""
    if live.exists():
        _catch_up(kept, live)
        return
    try:
        cordoned = spool.read(kept, health_pb2.Findings)
        live.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        spool.replace(live, cordoned.SerializeToString(deterministic=True), mode=0o600)
    except FileNotFoundError:
        return
    except (OSError, spool.SpoolError) as error:
        log.error("cannot read what was cordoned before the boot: %s; those devices are given to pods", error)


def _catch_up(kept: Path, live: Path) -> None:
    """Bring the copy up to date: it may lack cordons from before the state directory was configured."""
    try:
        cordoned = spool.read(live, health_pb2.Findings)
        if cordoned != spool.read_or_empty(kept, health_pb2.Findings):
            keep_cordons(kept, cordoned)
    except (OSError, spool.SpoolError) as error:
        log.error("cannot keep what is cordoned: %s; a boot will undo it", error)


_COMMAND = "devherd cordon"


class NotKeptError(Exception):
    """The cordons are in force, but cannot be written to the state directory: the next boot will undo them."""


def _keep(kept: Path, message: health_pb2.Findings) -> None:
    try:
        keep_cordons(kept, message)
    except OSError as error:
        raise NotKeptError(f"{kept}: {error.strerror or error}") from error


class Cordons:
    """The cordoned devices of an instance."""

    def __init__(self, findings_directory: Path, kept: Path | None = None) -> None:
        """`kept`: the copy that survives a reboot."""
        self._file = spool.path_of(findings_directory, CORDON)
        self._kept = kept

    @contextlib.contextmanager
    def changing(self) -> Iterator["Changes"]:
        """The cordons, locked for changes by one process; written at the end.

        Raises OSError. Raises SpoolError if the file cannot be read; the file then stays unchanged. Raises NotKeptError
        at the end if the next boot will undo the changes.
        """
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._file.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            changes = Changes(self._read())
            yield changes
            message = changes.message(time.time())
            spool.write(self._file, message)
            if self._kept is not None:
                _keep(self._kept, message)

    def _read(self) -> health_pb2.Findings:
        try:
            return spool.read(self._file, health_pb2.Findings)
        except FileNotFoundError:
            return health_pb2.Findings()


class Changes:
    """The cordoned devices, by key."""

    def __init__(self, message: health_pb2.Findings) -> None:
        self._findings = {(found.at.vendor, found.at.card, found.at.device): found for found in message.findings}

    def cordon(self, key: DeviceKey, reason: str, operator: str) -> None:
        """Keep a device from new pods; a second cordon replaces the reason of the first."""
        vendor, card, device = key
        self._findings[key] = health_pb2.Finding(
            at=health_pb2.Target(vendor=vendor, card=card, device=device),
            reason=CORDONED,
            detail=reason or "cordoned by an operator",
            file=_COMMAND,
            value=f"by {operator}",
        )

    def uncordon(self, key: DeviceKey) -> bool:
        """Give a device back. True if it was cordoned."""
        return self._findings.pop(key, None) is not None

    @property
    def keys(self) -> list[DeviceKey]:
        """The cordoned devices, sorted; some may be unknown."""
        return sorted(self._findings)

    def message(self, now: float) -> health_pb2.Findings:
        """The file's content at wall-clock second `now`."""
        findings = [self._findings[key] for key in self.keys]
        return health_pb2.Findings(source=CORDON, timestamp_seconds=now, findings=findings)


def clear(findings_directory: Path, key: DeviceKey, reason: str, now: Now) -> None:
    """End every event of a reason that was raised against a device until now. Raises OSError."""
    file = spool.path_of(findings_directory, OPERATOR)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (file.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = health_pb2.Findings()
        with contextlib.suppress(FileNotFoundError, spool.SpoolError):  # the policy has taken in the earlier ones
            known = spool.read(file, health_pb2.Findings)
        spool.write(file, with_statement(known, key, reason, now))


def with_statement(known: health_pb2.Findings, key: DeviceKey, reason: str, now: Now) -> health_pb2.Findings:
    """The file's content with one more statement; drops old ones of other boots or of the same kind."""
    vendor, card, device = key
    at = health_pb2.Target(vendor=vendor, card=card, device=device)
    stated = health_pb2.Evidence(at=at, evidence=Evidence.OPERATOR, reason=reason, monotonic_seconds=now.monotonic)
    earlier = known.evidence if known.boot_id == now.boot_id else ()
    kept = [one for one in earlier if (one.at, one.reason) != (at, reason)]
    return health_pb2.Findings(
        source=OPERATOR, boot_id=now.boot_id, timestamp_seconds=now.wall, evidence=[*kept, stated]
    )
