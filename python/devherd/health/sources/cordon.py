"""Source `cordon`: devices that an operator keeps from new pods.

It has no process: the commands `devherd cordon` and `devherd uncordon` write its findings, and the scanner reads them
as those of any other source. The file outlives devherd; a copy of it outlives a boot (health/kept_cordons.py).
"""

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path

from devherd import spool
from devherd.health import kept_cordons
from devherd.health.registry import CORDON, CORDONED
from devherd.inventory import DeviceKey
from devherd.proto import health_pb2

_COMMAND = "devherd cordon"


class NotKeptError(Exception):
    """The cordons are in force, and cannot be written where they outlive a boot."""


def _keep(kept: Path, message: health_pb2.Findings) -> None:
    try:
        kept_cordons.keep(kept, message)
    except OSError as error:
        raise NotKeptError(f"{kept}: {error.strerror or error}") from error


class Cordons:
    """The cordoned devices of an instance."""

    def __init__(self, findings_directory: Path, kept: Path | None = None) -> None:
        """`kept`: where they are to be found after a boot."""
        self._file = spool.path_of(findings_directory, CORDON)
        self._kept = kept

    @contextlib.contextmanager
    def changing(self) -> Iterator["Changes"]:
        """What is cordoned, to be changed by one process at a time; written at the end.

        Raises OSError, and SpoolError for a file that cannot be read, which is left as it is. Raises NotKeptError, at
        the end, where a boot will undo what is done.
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
        """Keep a device from new pods; on one that is cordoned already, the later reason stands."""
        vendor, card, device = key
        self._findings[key] = health_pb2.Finding(
            at=health_pb2.Target(vendor=vendor, card=card, device=device),
            reason=CORDONED,
            detail=reason or "cordoned by an operator",
            file=_COMMAND,
            value=f"by {operator}",
        )

    def uncordon(self, key: DeviceKey) -> bool:
        """Give a device back; whether it was cordoned."""
        return self._findings.pop(key, None) is not None

    @property
    def keys(self) -> list[DeviceKey]:
        """The cordoned devices, known or not, in order."""
        return sorted(self._findings)

    def message(self, now: float) -> health_pb2.Findings:
        """The file's content at wall-clock second `now`."""
        findings = [self._findings[key] for key in self.keys]
        return health_pb2.Findings(source=CORDON, timestamp_seconds=now, findings=findings)
