"""The scan core, written in Rust. rust/src/lib.rs describes its data flow."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final, Literal, TypeVar, final

_T = TypeVar("_T")

__all__ = [
    "ClassEntry",
    "Device",
    "Devlink",
    "DirectoryWatch",
    "Edits",
    "Evidence",
    "Fact",
    "FactDeclaration",
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
    "PciFunction",
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
    "answering",
    "awake",
    "boot_id",
    "check_kernel_log_rules",
    "device_list",
    "die_with_parent",
    "facts",
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
class PciFunction:
    """A PCI function of a device; immutable, equal by value."""

    def __new__(cls, path: str, driver: str | None, physical: str | None) -> PciFunction: ...
    @property
    def path(self) -> str:
        """Its directory, `/sys/devices/…/0000:3b:00.0`, without the host root."""
    @property
    def driver(self) -> str | None:
        """The driver that was bound at the scan."""
    @property
    def physical(self) -> str | None:
        """The physical function's directory; None unless this one is virtual."""

@final
class Fact:
    """A known value and the file that it is from. `kind` is a word of `FactDeclaration`; ValueError for others.

    `text` is the value as JSON and rules show it; ValueError if the text is no value of the kind.
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
    """The facts that all devices of a vendor share on a host; immutable, equal by value."""

    def __new__(cls, *, facts: dict[str, Fact] = ..., paths: Sequence[HostPath] = ...) -> Platform: ...
    @property
    def facts(self) -> dict[str, Fact]: ...
    @property
    def paths(self) -> list[HostPath]: ...
    def in_inventory(self, vendor: str) -> bytes:
        """Encoded as the only platform of a `devherd.devices.Inventory`."""

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
        """The file that was read, by its path on the host; empty if it was not a file."""
    @property
    def value(self) -> str:
        """The value that was read; empty if none was."""
    @property
    def count(self) -> int:
        """Number of events that the source has counted since its start; 0 for a state, which lasts while it is seen."""

@final
class Evidence:
    """Proof that the cause of an event is gone. rust/src/health/source.rs documents the words."""

    REBOUND: Final[str]
    READDED: Final[str]
    REBOOTED: Final[str]
    RECOVERY_NONE: Final[str]
    RECOVERY_UNASKED: Final[str]
    RESTARTED: Final[str]
    STARTED: Final[str]
    ANSWERED: Final[str]
    SOURCE_CLEARED: Final[str]
    OPERATOR: Final[str]
    ALL: Final[frozenset[str]]

@final
class Meaning:
    """A reason that a source may report, and its meaning unless the configuration overrides it."""

    @property
    def reason(self) -> str: ...
    @property
    def action(self) -> Literal["unhealthy", "warn", "ignore"]: ...
    @property
    def clears(self) -> Literal["level", "quiet", "until", "never"]: ...
    @property
    def quiet_seconds(self) -> int | None:
        """For `quiet`: it ends after this number of seconds without another event."""
    @property
    def evidence(self) -> list[str]:
        """For `until`: the kinds of evidence that end it."""
    @property
    def after(self) -> int:
        """Seconds for which it must last before it counts."""
    @property
    def is_damped(self) -> bool:
        """Whether it is held longer if it recurs often."""
    @property
    def is_relative(self) -> bool:
        """Whether it compares with the best value of this boot; an operator may accept the present value instead."""
    @property
    def only_when_new(self) -> bool:
        """Whether a finding at the first look at a device is only a warning."""
    @property
    def threshold(self) -> str:
        """When it is raised, as text for users."""
    @property
    def to_do(self) -> str:
        """What a person does about it, with places for facts of the device."""
    @property
    def to_do_by_value(self) -> list[tuple[str, str]]:
        """The same for certain values of the finding."""
    @property
    def by_value(self) -> list[tuple[str, Meaning]]:
        """Other meanings for certain values of the finding."""

@final
class HealthSource:
    """A source of findings, without looking at a host. rust/src/health/source.rs documents the fields."""

    @property
    def name(self) -> str: ...
    @property
    def reads(self) -> str: ...
    @property
    def pace(self) -> str:
        """How often it looks if no event triggers it, as text for users; empty for a source outside the scan core."""
    @property
    def is_of_scan_core(self) -> bool:
        """Whether the scan core runs this source; a process or module in Python runs all others."""
    @property
    def document(self) -> str: ...
    @property
    def meanings(self) -> list[Meaning]: ...

def health_sources() -> list[HealthSource]:
    """Every source: first the scan core's, in the order in which they look at a device, then Python's."""

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
        awaited: AbstractSet[str] = ...,
        distances: dict[str, int] = ...,
        functions: Sequence[PciFunction] = ...,
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
        """The findings of the scan itself, sorted by source, reason and file."""
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
    def awaited(self) -> set[str]:
        """Names of facts whose source has not answered yet; a name that is in neither cannot be known on this host."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Vendor, card and id."""

    @property
    def sources(self) -> dict[str, str]: ...
    @property
    def functions(self) -> list[PciFunction]:
        """The PCI functions that it consists of or belongs to."""

    @property
    def distances(self) -> dict[str, int]: ...
    def in_inventory(self, more: bytes) -> bytes:
        """Encoded as the only device of a `devherd.devices.Inventory`; `more` has further fields of its entry."""

    def in_offer(self, edits: bytes, more: bytes) -> bytes:
        """Encoded as the only device of a `devherd.spool.Offer`, with these edits; `more` has further fields."""

    def in_resource(self, edits: bytes, more: bytes) -> bytes:
        """Encoded as the only device of a `devherd.spool.Resource`, with these edits; `more` has further fields."""

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
        """Encoded as a `devherd.spool.Edits`, without hooks and specs, which the kubelet's API cannot carry."""

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
    """Facts about a vendor that are the same on every host; rust/src/vendors/table.rs documents the columns."""

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
    def uses_ways(self) -> bool: ...
    @property
    def cdi_file_a_device(self) -> str | None: ...

def vendors() -> list[VendorRow]:
    """Every vendor, in the order in which scans list them."""

@final
class FactDeclaration:
    """What a fact is, for every device that has it: rust/src/fact_kinds.rs."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str:
        """`text`, `number`, `boolean` or `version`."""
    @property
    def unit(self) -> str:
        """Of a number: `bytes`; empty for others and for counts."""
    @property
    def about(self) -> str: ...

def facts() -> list[FactDeclaration]:
    """Every fact that a device may have, sorted by name."""

@final
class Problem:
    """A failure during a scan."""

    @property
    def vendor(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def error(self) -> str: ...
    @property
    def device(self) -> str | None: ...
    @property
    def refusal(self) -> tuple[str, bool] | None:
        """If its driver makes no device of a function: what went wrong without the cure, and whether it is bound."""

@final
class NotExamined:
    """A part of the host that a scan could not look at.

    `card` may also be the id of a device whose card is not known; None means all devices of the vendor.
    """

    @property
    def vendor(self) -> str: ...
    @property
    def class_name(self) -> str | None:
        """The device class whose devices alone it is about; None for those of all, and for other vendors."""

    @property
    def card(self) -> str | None: ...
    @property
    def finding(self) -> Finding | None:
        """The finding about its devices meanwhile; None if their state is unknown."""

@final
class Scan:
    """The result of one scan."""

    @property
    def devices(self) -> list[Device]: ...
    @property
    def platforms(self) -> dict[str, Platform]: ...
    @property
    def problems(self) -> list[Problem]: ...
    @property
    def driverless(self) -> list[Problem]:
        """PCI functions of served vendors that lack their driver; each has its address as the device."""
    @property
    def not_offered(self) -> list[Problem]:
        """What is not offered, perhaps on purpose; each PCI function has its address as the device."""
    @property
    def unseen(self) -> list[NotExamined]: ...
    @property
    def look_again(self) -> bool:
        """Whether something was changing, so that another scan is needed before the next regular one."""
    @property
    def changes_in_silence(self) -> bool:
        """Whether a device may turn into another one without an event."""
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
class ClassEntry:
    """An entry of a directory in which a class looks for devices."""

    @property
    def path(self) -> str:
        """Without the host root."""

    @property
    def class_name(self) -> str: ...
    @property
    def is_taken(self) -> bool:
        """Whether it is a device of the class, or a part of one."""

    @property
    def why(self) -> str:
        """Why it is none; empty if it is one."""

@final
class Scanner:
    """Scans one host. `settings` is JSON with the keys in rust/src/settings.rs; ValueError if it does not fit.

    `beat` is called every half second while a scan waits for cards that hang.
    """

    def __new__(cls, host_root: str, settings: str) -> Scanner: ...
    def reconfigure(self, settings: str) -> None: ...
    def scan(self, beat: Callable[[], object] | None = None) -> Scan: ...
    def forget(self) -> None:
        """Drop the cache that makes the next scan cheap; call it when something has happened on the host."""

    @property
    def is_simulated(self) -> bool: ...
    def edits(
        self, device: Device, platform: Platform | None, by: str, resource_name: str, mps_root: str | None = None
    ) -> Edits | None:
        """What a container gets for a device. `by` is `device-plugin` or `cdi`; ValueError for others.

        `mps_root`: the directory of NVIDIA's Multi-Process Service, if containers share the device through it. None if
        this scanner does not serve the device's vendor. Device and platform may be from any scan, or restored.
        """

    def left_out(self, device: Device, by: str) -> tuple[str, bool] | None:
        """Why a device is not offered by this way, `device-plugin` or `cdi`; None if it is offered.

        The reason, and whether a rule that names the device offers it all the same. ValueError for another way.
        """

    def are_gone(self, devices: list[Device]) -> list[bool]:
        """Whether each of these devices is known to be gone, although the last scan could not examine it."""

    def class_entries(self) -> list[ClassEntry]:
        """What became of each entry of the directories in which the classes look; by class, in order."""

    def watched_directories(self) -> list[str]: ...
    def processor_nodes(self) -> list[int]:
        """The NUMA nodes of the host that have processors; empty if the kernel does not report them."""

@final
class Look:
    """The result of a poll for one device."""

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
        """By source name: why the source did not look. Its earlier findings stay in force.

        An empty name means all sources: the card does not answer, no thread was left to ask it, or a look failed.
        """

    @property
    def is_unsure(self) -> bool:
        """Whether the result is uncertain, so that another look is needed in a second."""

@final
class Poller:
    """Polls the health of devices on the host of a scanner, behind the same fence.

    `beat` is called every half second while a poll waits for cards that hang.
    """

    def __new__(cls, scanner: Scanner) -> Poller: ...
    def switch_off(self, sources: set[str]) -> None:
        """Switch off exactly these sources; all others read."""

    def watch(self, scan: Scan, kept: list[Device]) -> None:
        """From now on, watch the devices of a scan, and `kept`: the devices that it could not examine."""

    def poll(self, beat: Callable[[], object] | None = None) -> list[Look]:
        """Look at everything.

        The answer has only devices with something to report. Whatever `poll_due` and `poll_named` skip is unchanged.
        """

    def poll_due(
        self,
        awaited: Sequence[tuple[tuple[str, str, str], set[str]]] = ...,
        beat: Callable[[], object] | None = None,
    ) -> list[Look]:
        """Do a regular poll: look only at what is due.

        `awaited` has devices, by vendor, card and id, with names of sources: a finding ends only once these sources
        have found the device in order, so everything that they look at is due.
        """

    def poll_named(self, named: Sequence[str], paths: bool, beat: Callable[[], object] | None = None) -> list[Look]:
        """Between regular polls, look at the cards at these sysfs paths; with `paths`, also at all other paths."""

    def pause(self) -> int:
        """Seconds until a regular poll has something to look at: 1 to 5."""

    def device_dumps(self, beat: Callable[[], object] | None = None) -> list[tuple[str, Finding]]:
        """All state dumps that drivers have made: the path of the device on the host, and its finding.

        Raises OSError, with the reason, if they cannot be listed or a read does not return in time.
        """

    def leave_alone(self, sources: set[str]) -> None:
        """Pause these sources until the next call, which replaces them; their last findings stay."""
    def reads_kernel_log(self, is_logged: bool) -> None:
        """Set whether the kernel log is read and triggers looks: what it reports is then polled less often."""
    def new_memories(self) -> list[tuple[tuple[str, str, str, str], str]] | None:
        """What a successor must remember of this boot, by card, source, file and variant; sorted.

        None if nothing has changed since the last call.
        """

    def new_counts(self) -> list[tuple[str, str, str, str, str, int]] | None:
        """The counts that sources have read, which are not findings.

        PCI address, RDMA device (empty: all there), port or block (empty: the whole), word of the metric, kind, number.
        None if none was read since the last call.
        """

    def recall(self, memories: Sequence[tuple[tuple[str, str, str, str], str]]) -> None:
        """Restore the `new_memories` of an earlier process."""

    def forget_best(self, card: str, reason: str) -> None:
        """Drop the best value with which this reason compares on a card: an operator accepts the present value."""

@final
class UeventSocket:
    """Device events: the kernel's (NETLINK_KOBJECT_UEVENT), or those of the simulated node below a directory.

    `drain` returns the variables of each event since the last call, always with `ACTION` and `DEVPATH`, and whether
    events were lost. Raises OSError if the kernel refuses the socket, ValueError once it is closed.
    """

    def __new__(cls, simulated_node: str | None = None) -> UeventSocket: ...
    def fileno(self) -> int: ...
    def drain(self) -> tuple[list[dict[str, str]], bool]: ...
    def close(self) -> None: ...

@final
class KernelLogEvent:
    """An event in the kernel log, seen `times` times. rust/src/events/kernel_log_rules.rs documents the fields."""

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
    """The driver's health report on a part of a network card. rust/src/events/devlink.rs documents the fields."""

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
    if the kernel does not answer in time, BlockingIOError if no thread can be started. Both raise OSError.
    """

    def __new__(cls, deadline_seconds: float, simulated_node: str | None = None) -> Devlink:
        """Send no request yet. Raises ValueError if the deadline is not positive."""
    @property
    def is_open(self) -> bool:
        """Whether it listens: only after the first `dump`, and only if the kernel has devlink."""
    def fileno(self) -> int:
        """The descriptor to poll. Raises ValueError while it is not open."""
    def receive(self) -> None: ...
    def dump(self, beat: Callable[[], object] | None = None) -> None: ...
    @property
    def is_stale(self) -> bool: ...
    @property
    def reporters(self) -> list[HealthReporter]:
        """The reporters of devices, not of ports, sorted by device and name."""
    def close(self) -> None:
        """Stop listening and drop all reporters, until the next `dump`."""

@final
class DirectoryWatch:
    """Watches directories for created and removed entries (inotify). OSError if the inotify limit is reached."""

    def __new__(cls) -> DirectoryWatch: ...
    def add(self, path: str) -> None: ...
    def add_itself(self, path: str) -> None: ...
    def fileno(self) -> int: ...
    def drain(self) -> list[tuple[str, str]]: ...
    def close(self) -> None: ...

def device_list(resource: bytes) -> tuple[bytes, list[str]]:
    """The `v1beta1.ListAndWatchResponse` for a `devherd.spool.Resource`, and the ids in it that are Unhealthy.

    Raises ValueError if `resource` cannot be parsed.
    """

@final
class Preference:
    """Chooses devices of a resource that fit together. `kind`: `aligned`, `packed` or `distributed`, else ValueError.

    A device is (id, physical id, card, NUMA nodes, whether it is healthy, distances by card).
    rust/src/allocation/mod.rs documents the rules of `choose`.
    """

    def __new__(
        cls, kind: str, devices: Sequence[tuple[str, str, str, Sequence[int], bool, dict[str, int]]]
    ) -> Preference: ...
    def choose(self, available: Sequence[str], must_include: Sequence[str], size: int) -> list[str]: ...

__version__: str

__revision__: str
"""The source revision: DEVHERD_REVISION at compile time; empty if it was unset."""

def check_kernel_log_rules(rules: Sequence[tuple[str, str, str]]) -> None:
    """Raise ValueError if a pattern is not a valid regular expression, or too large."""

def adopt_orphans() -> None:
    """Make this process the parent of orphans of its children: the subreaper of prctl(2). Raises OSError."""

def die_with_parent(signal: int) -> None: ...
def nvml_facts(driver_root: str | None, library: str | None) -> str:
    """The facts from NVML, as JSON (rust/src/nvml/facts.rs). The library may hang or crash; it is unloaded afterwards.

    It is searched below the driver root, then by name or path. Raises FileNotFoundError if there is none, OSError if it
    cannot be used. The error has the attribute `library_version`, perhaps empty, if the loaded driver is of another
    version.
    """

class Hangs(Exception):  # noqa: N818 - it names the state of NVML
    """A call has not returned in time. `args` has the id of its thread, which still exists."""

def answered(ask: Callable[[], _T], seconds: float, beat: Callable[[], object]) -> _T:
    """Call `ask` in a thread of the fence, and return or raise what it does; calls `beat` ten times a second meanwhile.

    Raises Hangs after `seconds`, BlockingIOError if no thread can be started, and any exception of `beat` or of a
    signal handler.
    """

def nvml_interface() -> str:
    """The NVML layouts and constants in use, as JSON (rust/src/nvml/interface.rs); for a test."""

@final
class NvmlWatch:
    """NVML, kept initialised until `close` or the end of the process. It may hang or crash."""

    def __new__(cls, driver_root: str | None, library: str | None, gpus: Sequence[str]) -> NvmlWatch:
        """Open these GPUs, by PCI address, and register for their events.

        Raises FileNotFoundError and OSError as `nvml_facts`; a GPU that does not answer is not an error.
        """

    def wait(self, milliseconds: int) -> str:
        """Wait at most `milliseconds` for events; returns the first at once, as JSON (`Waited` in nvml/watch.rs)."""

    def look(self, gpus: Sequence[str]) -> str:
        """The health of these GPUs, without those that are not open, as a JSON list (`Reading`)."""

    def count(self) -> int | None:
        """The number of GPUs that NVML lists, also of those that are not open here; None if it does not answer."""

    def close(self) -> None:
        """Release the GPUs, shut the library down and unload it. Afterwards no events are reported."""

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
    """Give up all other access, for good, also for new processes; returns what the kernel cannot enforce, as text.

    `devherd.supervisor.sandbox.Access` documents the fields. The process must have one thread. Raises OSError.
    """

def open_devices(proc: Path, numbers: frozenset[tuple[int, int]]) -> tuple[list[tuple[int, tuple[int, int]]], int, int]:
    """The processes that have a device node with one of these numbers open. `proc` is the host's procfs.

    Returns sorted pairs of process and number, each once; the number of processes that may not be looked into; the
    number of processes that were. Raises OSError if `proc` cannot be listed.
    """

def boot_id(host_root: str) -> str:
    """The kernel's id of this boot; empty on a simulated node, which has none."""

def machine(host_root: str) -> str:
    """The identity of this machine, also in a container: the firmware's UUID or serial number; empty if unknown."""

def pci_driver(host_root: str, address: str) -> str | None:
    """The driver of the PCI function with this address, empty without one; None if there is no such function."""

def pci_functions(host_root: str, addresses: Sequence[str]) -> list[str]:
    """The sysfs paths of PCI functions, without the host root."""

def awake(host_root: str, addresses: Sequence[str]) -> list[str]:
    """The addresses of PCI functions that do not sleep, among these; a function of unknown state counts as awake."""

def answering(host_root: str, addresses: Sequence[str]) -> list[str]:
    """The addresses of PCI functions that are awake and answer, among these: their configuration is not all ones."""

def kfd_slots(host_root: str) -> dict[int, str]:
    """The PCI device of each GPU, `0000:0c:00`, by KFD's id for it; partitions have ids of their own.

    Unreadable ones are left out: the kernel hides a GPU whose render node the device cgroup denies.
    """

def prints_no_xids(host_root: str) -> bool:
    """Whether NVIDIA's driver is configured to print no Xids."""

def sandbox_missing() -> list[str]:
    """What the kernel cannot enforce of a sandbox of files, ports and signals; the process keeps all its rights."""

def set_process_name(name: str) -> None: ...
