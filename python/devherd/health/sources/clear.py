"""Source `operator`: what an operator has taken back, with `devherd clear`.

It has no process: the command writes the statements, and the scanner reads them as those of any other source. One ends
what was raised before it, in its boot.
"""

import contextlib
import fcntl
from pathlib import Path

from devherd import spool
from devherd.health.clears import Evidence
from devherd.health.registry import OPERATOR
from devherd.health.seen import Now
from devherd.inventory import DeviceKey
from devherd.proto import health_pb2


def clear(findings_directory: Path, key: DeviceKey, reason: str, now: Now) -> None:
    """Take back every event of a reason that was raised against a device until now. Raises OSError."""
    file = spool.path_of(findings_directory, OPERATOR)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (file.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = health_pb2.Findings()
        with contextlib.suppress(FileNotFoundError, spool.SpoolError):  # what was taken in is the policy's by now
            known = spool.read(file, health_pb2.Findings)
        spool.write(file, with_statement(known, key, reason, now))


def with_statement(known: health_pb2.Findings, key: DeviceKey, reason: str, now: Now) -> health_pb2.Findings:
    """The file's content with another statement; those of another boot, and an earlier one of the kind, have no use."""
    vendor, card, device = key
    at = health_pb2.Target(vendor=vendor, card=card, device=device)
    stated = health_pb2.Evidence(at=at, evidence=Evidence.OPERATOR, reason=reason, monotonic_seconds=now.monotonic)
    earlier = known.evidence if known.boot_id == now.boot_id else ()
    kept = [one for one in earlier if (one.at, one.reason) != (at, reason)]
    return health_pb2.Findings(
        source=OPERATOR, boot_id=now.boot_id, timestamp_seconds=now.wall, evidence=[*kept, stated]
    )
