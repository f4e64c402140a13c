"""The cordons where they outlive a boot, which empties the run directory: a copy in the state directory.

Each change is copied (health/sources/cordon.py); the next start puts it back, before the first scan.
"""

import logging
from pathlib import Path

from devherd import spool
from devherd.proto import health_pb2

log = logging.getLogger(__name__)


def keep(kept: Path, message: health_pb2.Findings) -> None:
    """Write the copy, also through a loss of power. Raises OSError."""
    kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    spool.replace(kept, message.SerializeToString(deterministic=True), mode=0o600, is_synced=True)


def restore(kept: Path, live: Path) -> None:
    """Make both the same: `live`, which devherd obeys, is as young as its copy or younger, where it is there."""
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
    """What was cordoned under another state directory, or before there was one, has no copy here."""
    try:
        cordoned = spool.read(live, health_pb2.Findings)
        if cordoned != spool.read_or_empty(kept, health_pb2.Findings):
            keep(kept, cordoned)
    except (OSError, spool.SpoolError) as error:
        log.error("cannot keep what is cordoned: %s; a boot will undo it", error)
