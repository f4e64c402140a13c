"""The scan core, written in Rust: see rust/src/lib.rs for the way of the data through it."""

from collections.abc import Sequence
from typing import final

__all__ = [
    "Device",
    "DirectoryWatch",
    "Mount",
    "Node",
    "Preference",
    "Problem",
    "Scan",
    "Scanner",
    "UeventSocket",
    "Unseen",
    "die_with_parent",
    "nvml_facts",
    "set_process_name",
]

@final
class Node:
    """A device node given to a container."""

    def __new__(cls, host_path: str, container_path: str, permissions: str) -> Node: ...
    @property
    def host_path(self) -> str: ...
    @property
    def container_path(self) -> str: ...
    @property
    def permissions(self) -> str: ...

@final
class Mount:
    """A file, directory or socket bound into a container."""

    def __new__(cls, host_path: str, container_path: str, read_only: bool) -> Mount: ...
    @property
    def host_path(self) -> str: ...
    @property
    def container_path(self) -> str: ...
    @property
    def read_only(self) -> bool: ...

@final
class Device:
    """One device as its vendor's file found it; immutable, equal by value. rust/src/device.rs documents its fields."""

    def __new__(
        cls,
        *,
        vendor: str,
        id: str,
        card: str = ...,
        resource_name: str | None = None,
        first_sight_resource_name: str | None = None,
        reasons: Sequence[str] = ...,
        numa_nodes: Sequence[int] = ...,
        nodes: Sequence[Node] = ...,
        mounts: Sequence[Mount] = ...,
        envs: dict[str, str] = ...,
        annotations: dict[str, str] = ...,
        cdi_devices: Sequence[str] = ...,
        cdi_edits: dict[str, str] = ...,
        attributes: dict[str, str] = ...,
        sources: dict[str, str] = ...,
        distances: dict[str, int] = ...,
    ) -> Device: ...
    @property
    def vendor(self) -> str: ...
    @property
    def card(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def resource_name(self) -> str | None: ...
    @property
    def first_sight_resource_name(self) -> str | None: ...
    @property
    def reasons(self) -> list[str]: ...
    @property
    def numa_nodes(self) -> list[int]: ...
    @property
    def nodes(self) -> list[Node]: ...
    @property
    def mounts(self) -> list[Mount]: ...
    @property
    def envs(self) -> dict[str, str]: ...
    @property
    def annotations(self) -> dict[str, str]: ...
    @property
    def cdi_devices(self) -> list[str]: ...
    @property
    def cdi_edits(self) -> dict[str, str]: ...
    @property
    def attributes(self) -> dict[str, str]: ...
    @property
    def sources(self) -> dict[str, str]: ...
    @property
    def distances(self) -> dict[str, int]: ...

@final
class Problem:
    """Something a scan could not do."""

    @property
    def vendor(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def error(self) -> str: ...
    @property
    def device(self) -> str | None: ...

@final
class Unseen:
    """A part of the host that a scan could not look at; card None means all cards of the vendor."""

    @property
    def vendor(self) -> str: ...
    @property
    def card(self) -> str | None: ...
    @property
    def reason(self) -> str | None: ...

@final
class Scan:
    """What one scan yielded."""

    @property
    def devices(self) -> list[Device]: ...
    @property
    def problems(self) -> list[Problem]: ...
    @property
    def unseen(self) -> list[Unseen]: ...
    @property
    def vendors(self) -> list[str]: ...
    @property
    def duration_seconds(self) -> float: ...
    @property
    def changed(self) -> bool: ...

@final
class Scanner:
    """Looks at one host. `settings` is JSON, rust/src/settings.rs names its keys; ValueError when it does not fit."""

    def __new__(cls, host_root: str, settings: str) -> Scanner: ...
    def reconfigure(self, settings: str) -> None: ...
    def scan(self) -> Scan: ...
    def poll(self) -> list[tuple[str, str, str, list[str]]]: ...
    def watched_directories(self) -> list[str]: ...

@final
class UeventSocket:
    """The kernel's device events (NETLINK_KOBJECT_UEVENT). OSError where the kernel refuses one."""

    def __new__(cls) -> UeventSocket: ...
    def fileno(self) -> int: ...
    def drain(self) -> list[str]: ...
    def close(self) -> None: ...

@final
class DirectoryWatch:
    """Watches directories for entries that come and go (inotify). OSError when the inotify limit is reached."""

    def __new__(cls) -> DirectoryWatch: ...
    def add(self, path: str) -> None: ...
    def fileno(self) -> int: ...
    def drain(self) -> list[tuple[str, str]]: ...
    def close(self) -> None: ...

@final
class Preference:
    """Which free devices of a resource fit together. `kind` is `aligned`, `packed` or `distributed`, else ValueError.

    A device is (id, physical id, card, NUMA nodes, whether it is healthy, distances by card).
    rust/src/allocation/mod.rs says what `choose` keeps to.
    """

    def __new__(
        cls, kind: str, devices: Sequence[tuple[str, str, str, Sequence[int], bool, dict[str, int]]]
    ) -> Preference: ...
    def choose(self, available: Sequence[str], must_include: Sequence[str], size: int) -> list[str]: ...

def die_with_parent(signal: int) -> None: ...
def nvml_facts(driver_root: str | None, library: str | None) -> str:
    """What NVIDIA's library tells, as JSON (rust/src/nvml/facts.rs); it may hang or crash, and is loaded for good.

    It is looked for below the driver root, then by name or path. FileNotFoundError when there is none, OSError when it
    cannot be used.
    """

def set_process_name(name: str) -> None: ...
