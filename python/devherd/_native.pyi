"""The scan core, written in Rust: see rust/src/lib.rs for the way of the data through it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal, TypeVar, final

_T = TypeVar("_T")

__all__ = [
    "Device",
    "Devlink",
    "DirectoryWatch",
    "Edits",
    "Evidence",
    "Fact",
    "Finding",
    "Hangs",
    "HealthReporter",
    "HealthSource",
    "Hook",
    "HostPath",
    "KernelLog",
    "KernelLogEvent",
    "Look",
    "Meaning",
    "Mount",
    "NaturalKey",
    "Node",
    "NotExamined",
    "NvmlWatch",
    "Platform",
    "Poller",
    "Preference",
    "Problem",
    "Scan",
    "Scanner",
    "UeventSocket",
    "VendorRow",
    "__revision__",
    "__version__",
    "adopt_orphans",
    "answered",
    "awake",
    "boot_id",
    "check_kernel_log_rules",
    "device_list",
    "die_with_parent",
    "health_sources",
    "kfd_slots",
    "machine",
    "nvml_facts",
    "nvml_interface",
    "open_devices",
    "pci_driver",
    "pci_functions",
    "prints_no_xids",
    "restrict",
    "sandbox_missing",
    "set_process_name",
    "vendors",
]

@final
class HostPath:
    """A path of the host that belongs to a device or a platform. rust/src/device.rs documents its fields."""

    def __new__(
        cls,
        path: str,
        role: str,
        is_node: bool,
        number: tuple[int, int] | None,
        is_required: bool,
        target: str,
        access: tuple[int, int] | None,
    ) -> HostPath: ...
    @property
    def path(self) -> str: ...
    @property
    def role(self) -> str: ...
    @property
    def is_node(self) -> bool: ...
    @property
    def number(self) -> tuple[int, int] | None: ...
    @property
    def is_required(self) -> bool: ...
    @property
    def target(self) -> str: ...
    @property
    def access(self) -> tuple[int, int] | None:
        """Group and mode."""

@final
class Fact:
    """What is known, and the file that says so. `kind` is `text`, `integer` or `version`; ValueError for another.

    `text` is the value as JSON and rules have it; ValueError for an integer that is none.
    """

    def __new__(cls, kind: str, text: str, source: str) -> Fact: ...
    @property
    def kind(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def source(self) -> str: ...

@final
class Platform:
    """What all devices of a vendor have in common on a host; immutable, equal by value."""

    def __new__(cls, *, facts: dict[str, Fact] = ..., paths: Sequence[HostPath] = ...) -> Platform: ...
    @property
    def facts(self) -> dict[str, Fact]: ...
    @property
    def paths(self) -> list[HostPath]: ...
    def in_inventory(self, vendor: str) -> bytes:
        """As the only platform of a `devherd.devices.Inventory`."""

@final
class Finding:
    """What one source saw of one device; immutable, hashable, equal by value.

    `detail` and `value` become one line of at most 200 and 100 characters. rust/src/finding.rs documents the fields.
    """

    def __new__(
        cls, *, source: str, reason: str, detail: str = "", file: str = "", value: str = "", count: int = 0
    ) -> Finding: ...
    def __hash__(self) -> int: ...
    @property
    def source(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def detail(self) -> str: ...
    @property
    def file(self) -> str:
        """What was looked at, as the host itself names it; empty where it was no file."""
    @property
    def value(self) -> str:
        """What was read; empty where nothing was."""
    @property
    def count(self) -> int:
        """How many events the source has counted since it began; 0 for what holds as long as it is seen."""

@final
class Evidence:
    """What shows that the cause of an event is gone. rust/src/health/source.rs documents the words."""

    REBOUND: Final[str]
    READDED: Final[str]
    REBOOTED: Final[str]
    RECOVERY_NONE: Final[str]
    RECOVERY_UNASKED: Final[str]
    RESTARTED: Final[str]
    SOURCE_CLEARED: Final[str]
    OPERATOR: Final[str]
    ALL: Final[frozenset[str]]

@final
class Meaning:
    """A reason that a source may give, and what that means unless the configuration says otherwise."""

    @property
    def reason(self) -> str: ...
    @property
    def action(self) -> Literal["unhealthy", "warn", "ignore"]: ...
    @property
    def clears(self) -> Literal["level", "quiet", "until", "never"]: ...
    @property
    def quiet_seconds(self) -> int | None:
        """Of `quiet`: after how many seconds without a further event it is over."""
    @property
    def evidence(self) -> list[str]:
        """Of `until`: what ends it."""
    @property
    def after(self) -> int:
        """For how many seconds it must stand before it counts."""
    @property
    def is_damped(self) -> bool:
        """Whether it is held for longer when it comes often."""
    @property
    def is_relative(self) -> bool:
        """Whether it is worse than the best in this boot, which an operator may take back."""
    @property
    def only_when_new(self) -> bool:
        """Whether what stands at the first look at a device is a warning only."""
    @property
    def threshold(self) -> str:
        """When it is raised, for people."""
    @property
    def by_value(self) -> list[tuple[str, Meaning]]:
        """Meanings of their own for certain values of the finding."""

@final
class HealthSource:
    """A source of findings, without looking at a host. rust/src/health/source.rs documents the fields."""

    @property
    def name(self) -> str: ...
    @property
    def reads(self) -> str: ...
    @property
    def pace(self) -> str:
        """How often it looks if nothing calls it, for people; empty if it is none of the scan core."""
    @property
    def is_of_scan_core(self) -> bool:
        """Whether the scan core looks itself; for all others a process or module in Python does."""
    @property
    def document(self) -> str: ...
    @property
    def meanings(self) -> list[Meaning]: ...

def health_sources() -> list[HealthSource]:
    """Every source: those of the scan core, in the order in which a device is looked at, then those of Python."""

@final
class Device:
    """Facts of one device; immutable, equal by value. rust/src/device.rs documents its fields.

    `attributes` has the facts as text, `sources` the file of each that has one.
    """

    def __new__(
        cls,
        *,
        vendor: str,
        id: str,
        card: str = ...,
        resource_name: str | None = None,
        first_sight_resource_name: str | None = None,
        shares: Sequence[str] = ...,
        findings: Sequence[Finding] = ...,
        numa_nodes: Sequence[int] = ...,
        numa_source: str = ...,
        paths: Sequence[HostPath] = ...,
        facts: dict[str, Fact] = ...,
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
    def shares(self) -> list[str]:
        """The ids under which containers share it, its own id first; empty for a device that is not shared."""
    @property
    def findings(self) -> list[Finding]:
        """What the scan itself came across, sorted by source, reason and file."""
    @property
    def numa_nodes(self) -> list[int]: ...
    @property
    def numa_source(self) -> str: ...
    @property
    def paths(self) -> list[HostPath]: ...
    @property
    def facts(self) -> dict[str, Fact]: ...
    @property
    def attributes(self) -> dict[str, str]: ...
    def attribute(self, name: str) -> str | None:
        """One of `attributes`; None if the device has no such fact."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Vendor, card and id."""

    @property
    def sources(self) -> dict[str, str]: ...
    @property
    def functions(self) -> list[str]:
        """The directories of its PCI functions, as the host names them; none of a device that no scan of it made."""

    @property
    def distances(self) -> dict[str, int]: ...
    def in_inventory(self, more: bytes) -> bytes:
        """As the only device of a `devherd.devices.Inventory`, with `more` fields of what is known of it."""

    def in_offer(self, edits: bytes, more: bytes) -> bytes:
        """As the only device of a `devherd.spool.Offer`, with these edits, and `more` fields of it."""

    def in_resource(self, edits: bytes, more: bytes) -> bytes:
        """As the only device of a `devherd.spool.Resource`, likewise."""

@final
class Node:
    """A device node given to a container."""

    @property
    def host_path(self) -> str: ...
    @property
    def container_path(self) -> str: ...
    @property
    def permissions(self) -> str: ...
    @property
    def access(self) -> tuple[int, int] | None:
        """Group and mode."""

@final
class Mount:
    """A file, directory or socket bound into a container."""

    @property
    def host_path(self) -> str: ...
    @property
    def container_path(self) -> str: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def options(self) -> list[str]: ...

@final
class Hook:
    """A program of the host that the container runtime runs for a container."""

    @property
    def hook_name(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def args(self) -> list[str]: ...

@final
class Edits:
    """What a container gets; immutable, equal by value. rust/src/edits.rs documents its fields."""

    @property
    def envs(self) -> dict[str, str]: ...
    @property
    def annotations(self) -> dict[str, str]: ...
    @property
    def nodes(self) -> list[Node]: ...
    @property
    def mounts(self) -> list[Mount]: ...
    @property
    def hooks(self) -> list[Hook]: ...
    @property
    def cdi_devices(self) -> list[str]: ...
    @property
    def specs(self) -> dict[str, Edits]: ...
    def encoded(self) -> bytes:
        """As a `devherd.spool.Edits`: what the kubelet's API can carry, neither hooks nor specs."""

@final
class NaturalKey:
    """A key for `sorted`: numbers in the text by value, `card2` before `card10`. rust/src/order.rs has the rules."""

    def __new__(cls, text: str) -> NaturalKey: ...
    def __lt__(self, other: NaturalKey, /) -> bool: ...
    def __le__(self, other: NaturalKey, /) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __gt__(self, other: NaturalKey, /) -> bool: ...
    def __ge__(self, other: NaturalKey, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class VendorRow:
    """What is known of a vendor without looking at a host; rust/src/vendors/table.rs documents the columns."""

    @property
    def name(self) -> str: ...
    @property
    def section(self) -> str:
        """Its name in the configuration file: `intel_fpga`."""
    @property
    def title(self) -> str: ...
    @property
    def found_in(self) -> str: ...
    @property
    def facts(self) -> list[str]: ...
    @property
    def model(self) -> list[str]: ...
    def preferred(self, is_shared: bool) -> str: ...
    @property
    def cdi_file_a_device(self) -> str | None: ...

def vendors() -> list[VendorRow]:
    """Every vendor, in the order in which scans list them."""

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
class NotExamined:
    """A part of the host that a scan could not look at.

    `card` may also be the id of a device whose card is not known; None means all devices of the vendor.
    """

    @property
    def vendor(self) -> str: ...
    @property
    def card(self) -> str | None: ...
    @property
    def finding(self) -> Finding | None:
        """What is the matter with its devices meanwhile; None where nothing can be said of them."""

@final
class Scan:
    """What one scan yielded."""

    @property
    def devices(self) -> list[Device]: ...
    @property
    def platforms(self) -> dict[str, Platform]: ...
    @property
    def problems(self) -> list[Problem]: ...
    @property
    def driverless(self) -> list[Problem]:
        """PCI functions of served vendors without their driver, each with its address as the device."""
    @property
    def not_offered(self) -> list[Problem]:
        """Hardware that is not offered, which may be as intended; each PCI function with its address as the device."""
    @property
    def unseen(self) -> list[NotExamined]: ...
    @property
    def look_again(self) -> bool:
        """Whether something was changing: a scan before the next regular one tells more."""
    @property
    def changes_in_silence(self) -> bool:
        """Whether a device may become another without an event."""
    @property
    def requests(self) -> dict[str, str]: ...
    @property
    def vendors(self) -> list[str]: ...
    @property
    def vendors_with_devices(self) -> set[str]: ...
    @property
    def duration_seconds(self) -> float: ...
    @property
    def changed(self) -> bool: ...

@final
class Scanner:
    """Scans one host. `settings` is JSON, rust/src/settings.rs names its keys; ValueError when it does not fit.

    `beat` is called every half second while a scan waits for cards that hang.
    """

    def __new__(cls, host_root: str, settings: str) -> Scanner: ...
    def reconfigure(self, settings: str) -> None: ...
    def scan(self, beat: Callable[[], object] | None = None) -> Scan: ...
    def forget(self) -> None:
        """Drop what was kept to make the next scan cheap: something has happened on the host."""

    @property
    def is_simulated(self) -> bool: ...
    def edits(self, device: Device, platform: Platform | None, by: str, resource_name: str) -> Edits | None:
        """What a container gets for a device, `by` `device-plugin` or `cdi` (ValueError for another way).

        None for a device of a vendor that is not asked for. Device and platform may be of any scan, or restored.
        """

    def left_out(self, device: Device) -> str | None:
        """Why the options keep a device out of the offers; None if it is offered."""

    def are_gone(self, devices: list[Device]) -> list[bool]:
        """Whether each of these devices, which the last scan could not examine, is known to be gone all the same."""

    def watched_directories(self) -> list[str]: ...
    def processor_nodes(self) -> list[int]:
        """The NUMA nodes of the host that have processors; empty where the kernel does not tell."""

@final
class Look:
    """What a poll says of one device."""

    @property
    def vendor(self) -> str: ...
    @property
    def card(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def findings(self) -> list[Finding]:
        """Sorted by source, reason and file."""
    @property
    def not_looked(self) -> dict[str, str]:
        """Why a source did not look, by its name; its earlier findings stay in force.

        The name is empty where no source looked: the card does not answer, nobody was left to ask, or a look failed.
        """

    @property
    def is_unsure(self) -> bool:
        """Whether another look in a second tells more."""

@final
class Poller:
    """Polls the health of devices on the host of a scanner, behind the same fence.

    `beat` is called every half second while a poll waits for cards that hang.
    """

    def __new__(cls, scanner: Scanner) -> Poller: ...
    def switch_off(self, sources: set[str]) -> None:
        """Let these sources read nothing, and all others read."""

    def watch(self, scan: Scan, kept: list[Device]) -> None:
        """Watch the devices of a scan from now on, and those that it could not examine."""

    def poll(self, beat: Callable[[], object] | None = None) -> list[Look]:
        """Look at everything.

        Only devices with something to say are answered. What is not looked at by one of the following two is as it was.
        """

    def poll_due(
        self,
        awaited: Sequence[tuple[tuple[str, str, str], set[str]]] = ...,
        beat: Callable[[], object] | None = None,
    ) -> list[Look]:
        """Look, as one of the regular polls, at what is due.

        Where something has to be found in order before a finding goes, at all that its sources look at: `awaited` has
        these devices by vendor, card and id, and the names of the sources.
        """

    def poll_named(self, named: Sequence[str], paths: bool, beat: Callable[[], object] | None = None) -> list[Look]:
        """Look, between regular polls, at the cards at these places of sysfs; on wish at all nodes and other paths."""

    def pause(self) -> int:
        """Seconds until a regular poll has something to look at: 1 to 5."""

    def device_dumps(self, beat: Callable[[], object] | None = None) -> list[tuple[str, Finding]]:
        """All dumps that drivers have made of devices' states: path of the device on the host, and its finding.

        Raises OSError with the reason where they cannot be listed, or a read has not come back in time.
        """

    def leave_alone(self, sources: set[str]) -> None:
        """Look at nothing for these sources until others are given: what they last said stays."""
    def reads_kernel_log(self, is_logged: bool) -> None:
        """Whether the kernel log is read, and calls for a look: what it reports is polled less often then."""
    def new_memories(self) -> list[tuple[tuple[str, str, str, str], str]] | None:
        """What a later process has to know of what was seen in this boot, by card, source, file and variant: sorted.

        None where that is as when it was asked last.
        """

    def new_counts(self) -> list[tuple[str, str, str, str, str, int]] | None:
        """The numbers that sources have read that are no findings.

        PCI address, RDMA device (empty: all there), port or block (empty: the whole), word of the metric, kind, number.
        None where none was read since this was asked last.
        """

    def recall(self, memories: Sequence[tuple[tuple[str, str, str, str], str]]) -> None:
        """Take in what an earlier process knew."""

    def forget_best(self, card: str, reason: str) -> None:
        """Let what this reason is relative to begin again on a card: an operator says that what is now is right."""

@final
class UeventSocket:
    """Device events: the kernel's (NETLINK_KOBJECT_UEVENT), or those of the simulated node below a directory.

    `drain` answers the variables of each event since the last call, `ACTION` and `DEVPATH` always among them, and
    whether events were lost. OSError where the kernel refuses the socket; ValueError once it is closed.
    """

    def __new__(cls, simulated_node: str | None = None) -> UeventSocket: ...
    def fileno(self) -> int: ...
    def drain(self) -> tuple[list[dict[str, str]], bool]: ...
    def close(self) -> None: ...

@final
class KernelLogEvent:
    """What the kernel log said, `times` times. rust/src/events/kernel_log_rules.rs documents the fields."""

    def __new__(
        cls,
        *,
        rule: str,
        pci_address: str,
        uuid: str,
        gpu_instance: int | None,
        compute_instance: int | None,
        link: int | None,
        xid: str,
        value: str,
        text: str,
        monotonic: float,
        times: int,
    ) -> KernelLogEvent: ...
    @property
    def rule(self) -> str: ...
    @property
    def pci_address(self) -> str: ...
    @property
    def uuid(self) -> str: ...
    @property
    def gpu_instance(self) -> int | None: ...
    @property
    def compute_instance(self) -> int | None: ...
    @property
    def link(self) -> int | None: ...
    @property
    def xid(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def monotonic(self) -> float: ...
    @property
    def times(self) -> int: ...

@final
class KernelLog:
    """The kernel log below a root, read without waiting. A rule is its name, what a text must contain, its pattern.

    `drain` reads at most so many records, and answers what they said, how many were overwritten before they were read,
    and whether more may wait. `position` is to be given to the next reader in the same boot. OSError where the kernel
    refuses it, or ENODEV where the path is not the log; ValueError for a pattern that is none, and once it is closed.
    """

    def __new__(
        cls,
        host_root: str,
        rules: Sequence[tuple[str, str, str]],
        *,
        simulated: bool = False,
        after: tuple[int, float] | None = None,
    ) -> KernelLog: ...
    def fileno(self) -> int: ...
    def drain(self, most: int) -> tuple[list[KernelLogEvent], int, bool]: ...
    def position(self) -> tuple[int, float]: ...
    def close(self) -> None: ...

@final
class HealthReporter:
    """What a network card's driver says of a part of it. rust/src/events/devlink.rs documents the fields."""

    @property
    def device(self) -> str:
        """`pci/0000:3b:00.0`."""
    @property
    def name(self) -> str: ...
    @property
    def is_in_error(self) -> bool: ...
    @property
    def errors(self) -> int: ...
    @property
    def recovers(self) -> bool: ...

@final
class Devlink:
    """The health reporters of this network namespace, or of a simulated node.

    `dump` asks for everything; from then on `receive` applies the notifications since the last call, without waiting.
    If `is_stale`, another `dump` is needed: it calls `beat` every half second while it waits, and raises TimeoutError
    if the kernel does not answer in time. Both raise OSError.
    """

    def __new__(cls, deadline_seconds: float, simulated_node: str | None = None) -> Devlink:
        """Sends no request yet. ValueError for a deadline that is not positive."""
    @property
    def is_open(self) -> bool:
        """Whether it listens: not before the first `dump`, and never where the kernel has no devlink."""
    def fileno(self) -> int:
        """ValueError while it is not open."""
    def receive(self) -> None: ...
    def dump(self, beat: Callable[[], object] | None = None) -> None: ...
    @property
    def is_stale(self) -> bool: ...
    @property
    def reporters(self) -> list[HealthReporter]:
        """Sorted by device and name; none of a port's."""
    def close(self) -> None:
        """Listens no longer, and knows nothing, until the next `dump`."""

@final
class DirectoryWatch:
    """Watches directories for entries that come and go (inotify). OSError when the inotify limit is reached."""

    def __new__(cls) -> DirectoryWatch: ...
    def add(self, path: str) -> None: ...
    def add_itself(self, path: str) -> None: ...
    def fileno(self) -> int: ...
    def drain(self) -> list[tuple[str, str]]: ...
    def close(self) -> None: ...

def device_list(resource: bytes) -> tuple[bytes, list[str]]:
    """The `v1beta1.ListAndWatchResponse` of a `devherd.spool.Resource`, and the ids in it that are Unhealthy.

    Raises ValueError if it is none.
    """

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

__version__: str

__revision__: str
"""The source revision: what DEVHERD_REVISION was when the module was compiled; empty without it."""

def check_kernel_log_rules(rules: Sequence[tuple[str, str, str]]) -> None:
    """Refuse a pattern that is none, or too large, with ValueError."""

def adopt_orphans() -> None:
    """Makes this process the parent of what its children leave behind: it is the subreaper of prctl(2). OSError."""

def die_with_parent(signal: int) -> None: ...
def nvml_facts(driver_root: str | None, library: str | None) -> str:
    """What NVIDIA's library says, as JSON (rust/src/nvml/facts.rs). It may hang or crash, and is unloaded afterwards.

    It is looked for below the driver root, then by name or path. FileNotFoundError when there is none, OSError when it
    cannot be used; with the attribute `library_version`, perhaps empty, when it is not that of the loaded driver.
    """

class Hangs(Exception):  # noqa: N818 - it names the state of NVML
    """A call has not returned in time. `args` has the id of its thread, which still exists."""

def answered(ask: Callable[[], _T], seconds: float, beat: Callable[[], object]) -> _T:
    """What `ask` returns or raises, called in a thread of the fence; `beat` is called ten times a second meanwhile.

    Raises Hangs after `seconds`, and what `beat` or the handler of a signal raises.
    """

def nvml_interface() -> str:
    """The layouts and numbers of NVML that are used, as JSON (rust/src/nvml/interface.rs), for a test."""

@final
class NvmlWatch:
    """NVIDIA's library, kept initialised. It may hang or crash; not closed, it stays until the process ends."""

    def __new__(cls, driver_root: str | None, library: str | None, gpus: Sequence[str]) -> NvmlWatch:
        """Open these GPUs, by PCI address, and register for their events.

        FileNotFoundError and OSError as `nvml_facts`; a GPU that does not answer is no error.
        """

    def wait(self, milliseconds: int) -> str:
        """What happens within so many milliseconds, at once when it does: JSON (`Waited` in nvml/watch.rs)."""

    def look(self, gpus: Sequence[str]) -> str:
        """The health of those of these GPUs that are open, as a JSON list (`Reading`)."""

    def close(self) -> None:
        """Let go of the GPUs, shut the library down and unload it. Afterwards nothing is told."""

def restrict(
    *,
    read: Sequence[Path],
    write: Sequence[Path],
    sockets: Sequence[Path],
    devices: Sequence[Path],
    execute: Sequence[Path],
    modes: bool,
    families: Sequence[int],
    listens: bool,
    connects: bool,
    sees_processes: bool,
    capabilities: Sequence[int],
) -> list[str]:
    """Give up everything but this, for good and for all that will be started; what the kernel cannot enforce, in words.

    `devherd.supervisor.sandbox.Access` documents the fields. For a process with one thread. Raises OSError.
    """

def open_devices(proc: Path, numbers: frozenset[tuple[int, int]]) -> tuple[list[tuple[int, tuple[int, int]]], int, int]:
    """The processes that have a device node with one of these numbers open, by `proc`, the host's procfs.

    The first part has process and number, each pair once, sorted; the others count the processes that must not be
    looked into, and those that were. Raises OSError if `proc` cannot be listed.
    """

def boot_id(host_root: str) -> str:
    """The id that the kernel has given this boot; empty on a simulated node, which has none."""

def machine(host_root: str) -> str:
    """What tells this machine from others, also in a container: its firmware's UUID or serial number, or nothing."""

def pci_driver(host_root: str, address: str) -> str | None:
    """The driver of the PCI function with this address, empty without one; None if there is no such function."""

def pci_functions(host_root: str, addresses: Sequence[str]) -> list[str]:
    """The sysfs paths of PCI functions, without the host root."""

def awake(host_root: str, addresses: Sequence[str]) -> list[str]:
    """Those of the PCI functions with these addresses that do not sleep, as far as the kernel tells."""

def kfd_slots(host_root: str) -> dict[int, str]:
    """The PCI device of each GPU, `0000:0c:00`, by KFD's id for it; partitions have ids of their own.

    Unreadable ones are left out: the kernel hides a GPU whose render node the device cgroup denies.
    """

def prints_no_xids(host_root: str) -> bool:
    """Whether NVIDIA's driver was told to print no Xids."""

def sandbox_missing() -> list[str]:
    """What the kernel cannot enforce of a sandbox of files, ports and signals; nothing is given up."""

def set_process_name(name: str) -> None: ...
