"""The moment at which something is seen, on all clocks that matter."""

import functools
import time
from pathlib import Path

from devherd.config.resolved import Config
from devherd.health.seen import Now


def now(config: Config) -> Now:
    """This moment on the host."""
    return Now(time.time(), time.monotonic(), _boot_id(config.host_root))


@functools.cache
def _boot_id(host_root: Path) -> str:
    """Empty where the host has none: a simulated node."""
    try:
        return (host_root / "proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
