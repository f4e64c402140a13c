"""What the environment chooses of a real cluster."""

import os
from pathlib import Path

import pytest

CGROUP_DRIVERS = ("cgroupfs", "systemd")
_RELEASES = Path(__file__).with_name("runtime") / "releases"


def cgroup_driver() -> str:
    """Who makes the cgroups of pods: "cgroupfs", the kubelet and runc themselves, or "systemd"."""
    return _one_of("DEVHERD_TEST_CGROUP_DRIVER", CGROUP_DRIVERS) or CGROUP_DRIVERS[0]


def older_containerd() -> str:
    """An older containerd that has its files in runtime/releases, such as "2.0"; empty for the one of go.mod."""
    return _one_of("DEVHERD_TEST_CONTAINERD", sorted(file.stem[1:] for file in _RELEASES.glob("v*.mod")))


def _one_of(variable: str, known: "tuple[str, ...] | list[str]") -> str:
    """Raises UsageError, with which pytest ends, for a value that is none of these."""
    value = os.environ.get(variable, "")
    if value and value not in known:
        raise pytest.UsageError(
            f"{variable}: {value} — there is no such choice, and another cluster than the one that is meant would be"
            f" tested — set it to {' or '.join(known)}, or leave it out"
        )
    return value
