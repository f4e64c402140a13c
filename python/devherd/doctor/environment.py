"""The environment: container or host, user, kernel, Python, sandbox, clock."""

import ctypes
import os
import platform
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from devherd import _native
from devherd.doctor.line import Line, ok, problem, warning
from devherd.process import OLDEST_CLOCK, is_in_container
from devherd.text import version_line

TOPIC = "environment"
_OLDEST_KERNEL = (5, 6)
"""The first kernel with openat2(2), which confines the scan to the host's root."""
_TIME_ERROR = 5  # adjtimex(2): the clock is not synchronised
_TIMEX_BYTES = 512  # more than struct timex has


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Facts about the environment."""

    is_container: bool
    user: int
    kernel: str
    python: str
    capabilities: int
    sandbox_lacks: tuple[str, ...]
    now: float
    is_synchronised: bool | None
    """None if the kernel refuses the call."""


def look() -> Environment:
    """Read the facts."""
    return Environment(
        is_container=is_in_container(),
        user=os.geteuid(),
        kernel=platform.release(),
        python=platform.python_version(),
        capabilities=_capabilities(Path("/proc/self/status").read_text("utf-8", errors="replace")),
        sandbox_lacks=tuple(_native.sandbox_missing()),
        now=time.time(),
        is_synchronised=_is_synchronised(),
    )


def judge(found: Environment) -> Iterator[Line]:
    """The report lines."""
    where = "in a container" if found.is_container else "on the host"
    yield ok(TOPIC, f"{version_line()}, Python {found.python}, Linux {found.kernel}, {where}")
    if found.user == 0:
        yield ok(TOPIC, f"runs as root, with {found.capabilities.bit_count()} capabilities")
    else:
        yield warning(TOPIC, f"runs as user {found.user}: `devherd run` needs root", "use sudo")
    if _kernel_version(found.kernel) < _OLDEST_KERNEL:
        oldest = ".".join(map(str, _OLDEST_KERNEL))
        yield problem(TOPIC, f"Linux {found.kernel} is older than {oldest}", f"use a kernel from {oldest} on")
    if found.sandbox_lacks:
        lacking = ", ".join(found.sandbox_lacks)
        cure = "start the kernel with `lsm=landlock,…`, or use a newer one; devherd works without"
        yield warning(TOPIC, f"children are not fully confined: Landlock lacks {lacking}", cure)
    else:
        yield ok(TOPIC, "Landlock confines the children")
    yield _of_the_clock(found)


def _of_the_clock(found: Environment) -> Line:
    if found.now < OLDEST_CLOCK:
        shown = time.strftime("%Y-%m-%d", time.gmtime(found.now))
        return problem(TOPIC, f"the clock shows {shown}", "set the clock: logs, metrics and certificates depend on it")
    if found.is_synchronised is False:
        return warning(TOPIC, "the clock is not synchronised", "run chrony, systemd-timesyncd or ntpd")
    return ok(TOPIC, "the clock is synchronised" if found.is_synchronised else "the clock shows a plausible time")


def _kernel_version(release: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", release)[:2]))


def _capabilities(status: str) -> int:
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return int(found[1], 16) if found else 0


def _is_synchronised() -> bool | None:
    """Ask adjtimex(2), which only reads if the structure is zero; None if a seccomp profile refuses it."""
    state: int = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    return None if state < 0 else state != _TIME_ERROR
