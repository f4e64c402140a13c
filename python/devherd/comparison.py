"""Compares the devices that present plugins give the kubelet with those that devherd would offer. Pure.

The kubelet lists only allocatable devices (`GetAllocatableDevices` of its device manager). A device that its plugin
calls Unhealthy is missing there; only a pod that still holds it shows its id. It knows nothing of what containers get
for a device: that is compared with what devherd would give by the plugin's own settings, where these are known.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from devherd._native import NaturalKey
from devherd.inventory import Allocations, DeviceKey, Entry, key_of
from devherd.proto import spool_pb2
from devherd.spool import listed

if TYPE_CHECKING:
    from devherd.health.held import Held

Nodes = frozenset[int]
Kubelet = Mapping[str, Mapping[str, Nodes]]
"""Resource name → allocatable device id → its NUMA nodes, empty if the plugin reports none."""

_REPLICA = re.compile(r"(?P<of>.+)::\d+")
"""The id of a replica, in devherd and in NVIDIA's plugin."""
_NUMBER = re.compile(r"\d+")
_CARD_SHARE = re.compile(r"(?P<of>(card|renderD)\d+)-\d+")
"""The id of a card's share, in Intel's GPU plugin."""

_KEYS_OF_NAMES = (
    ("nvidia.com/mig-*", "vendors.nvidia.mig_strategy: mixed"),
    ("gpu.intel.com/*monitoring", "vendors.intel_gpu.monitoring: true"),
    ("amd.com/*_nps*", "vendors.amd.naming: mixed"),
    ("fpga.intel.com/region-*", "vendors.intel_fpga.mode: region"),
    ("fpga.intel.com/af-*", "vendors.intel_fpga.mode: af"),
    ("rdma/*", "vendors.rdma.mode: shared, and its pools"),
)
"""The key under which a vendor's devices get names like these."""
_VENDORS_OF_NAMES = (
    ("nvidia.com/*", "nvidia"),
    ("gpu.intel.com/*", "intel_gpu"),
    ("fpga.intel.com/*", "intel_fpga"),
    ("amd.com/gpu*", "amd"),
    ("amd.com/*_nps*", "amd"),
    ("amd.com/*", "xilinx_fpga"),
    ("xilinx.com/*", "xilinx_fpga"),
    ("rdma/*", "rdma"),
)
"""The section of the vendor whose plugin gives names like these; the first pattern that fits."""
_KEYS_OF_NUMBERS = {
    "intel-gpu": "vendors.intel_gpu.shared_devices",
    "rdma": "vendors.rdma.shared_devices, or rdma_hca_max of a pool",
    "generic": "count and paths of generic[].groups",
    "simulated": "simulated[].count",
}
"""By vendor: the key that sets the number of ids of a device."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Devices of one resource that differ in the same way.

    Kinds: `missing-resource`, `extra-resource`, `other-name`, `replicas`, `other-ids`, `missing`, `extra`, `numa`,
    `unhealthy`, `container`. `missing` means that the kubelet has a device and devherd would not offer it, `container`
    that a container would get something else for the device.
    """

    kind: str
    reason: str
    devices: tuple[str, ...]
    key: str = ""
    """The configuration key that removes the difference; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One resource: the number of allocatable ids at the kubelet and here, and their differences."""

    name: str
    kubelet: int
    devherd: int
    differences: tuple[Difference, ...] = ()
    held: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By differing device: the pods that hold it, as NAMESPACE/POD."""
    with_containers: bool = False
    """Whether what containers get was compared for each device of both sides."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """A finding against a device that the kubelet calls Healthy."""

    resource: str
    device: str
    held: "Held"


@dataclass(frozen=True, slots=True)
class _Offered:
    """An id that devherd would list."""

    offer: str
    device: spool_pb2.Device
    nodes: Nodes


class Comparison:
    """Both sides of the comparison, and what is known about devices that are not offered."""

    def __init__(
        self,
        kubelet: Kubelet,
        offers: Sequence[spool_pb2.Offer],
        *,
        allocations: Allocations | None = None,
        entries: Mapping[DeviceKey, Entry] | None = None,
        rules: Mapping[DeviceKey, str] | None = None,
        disabled: Collection[str] = (),
        has_health_rules: bool = False,
        by_plugin: Sequence[spool_pb2.Offer] = (),
        keys_of_vendors: Mapping[str, str] | None = None,
    ) -> None:
        """`disabled` are the sections of vendors that the configuration switches off.

        `by_plugin` are the offers by the settings of the present plugins, of their vendors alone, `keys_of_vendors` by
        vendor the settings that differ from those.
        """
        self._disabled, self._has_health_rules = disabled, has_health_rules
        self._by_plugin = {(offer.name, device.id): device.edits for offer in by_plugin for device in offer.devices}
        self._keys_of_vendors = keys_of_vendors or {}
        self._kubelet = {name: dict(sorted(ids.items(), key=_natural)) for name, ids in kubelet.items()}
        self._rules = rules or {}
        self._vendors = {offer.name: offer.vendor for offer in offers}
        self._offered = {offer.name: dict(_offered(offer)) for offer in offers}
        self._homes = {_base(each): offered for ids in self._offered.values() for each, offered in ids.items()}
        self._there = {_base(each) for ids in kubelet.values() for each in ids}
        self._entries = {entry.device.id: entry for entry in (entries or {}).values()}
        self._of_rule: dict[str, set[str]] = {}
        for offer in offers:
            for device in offer.devices:
                self._of_rule.setdefault(device.rule, set()).add(device.id)
        self._pods: dict[tuple[str, str], list[str]] = {}
        for (name, each), holders in (allocations or {}).items():
            pods = self._pods.setdefault((name, _base(each)), [])
            pods += [pod for one in holders if (pod := f"{one['namespace']}/{one['pod']}") not in pods]

    def resources(self) -> list[Compared]:
        """The result for each resource that either side has, sorted by name."""
        return [self._compared(name) for name in sorted({*self._kubelet, *self._offered})]

    def unseen(self, held: Mapping[DeviceKey, Sequence["Held"]]) -> list[Unseen]:
        """Findings of devherd against devices that are allocatable at the kubelet."""
        return [
            Unseen(name, device.id, one)
            for name, ids in self._offered.items()
            for device in {offered.device.id: offered.device for offered in ids.values()}.values()
            if _base(device.id) in self._there
            for one in held.get(key_of(device), ())
            if one.action != "ignore"
        ]

    def _compared(self, name: str) -> Compared:
        theirs, ours = self._kubelet.get(name, {}), self._offered.get(name, {})
        differences = tuple(self._differences(name, theirs, ours))
        devices = {each for difference in differences for each in difference.devices}
        pods = {each: held for each in sorted(devices) if (held := self._pods.get((name, _base(each))))}
        healthy = sum(not offered.device.reasons for offered in ours.values())
        there = {*map(_base, theirs)}
        shared = {offered.device.id for each, offered in ours.items() if _base(each) in there}
        is_known = bool(self._by_plugin) and all((name, each) in self._by_plugin for each in shared)
        return Compared(name, len(theirs), healthy, differences, pods, with_containers=is_known)

    def _differences(
        self, name: str, theirs: Mapping[str, Nodes], ours: Mapping[str, _Offered]
    ) -> Iterator[Difference]:
        there, here = _by_base(theirs), _by_base(ours)
        missing = [each for base, ids in there.items() if base not in here for each in ids]
        extra = [each for base, ids in here.items() if base not in self._there for each in ids]
        if ours and theirs and not {*there} & {*here} and not any(self._is_known(base) for base in there):
            yield _other_ids(self._vendors[name], missing, list(ours))
            return
        yield from self._replicas(there, here, ours)
        yield from self._missing(name, missing, theirs, is_offered=bool(ours))
        yield from self._extra(name, [each for each in extra if not ours[each].device.reasons], is_there=bool(theirs))
        both = {each: offered for each, offered in ours.items() if each in theirs}
        yield from _unhealthy(both, has_rules=self._has_health_rules)
        yield from _numa(theirs, both)
        shared = [ours[ids[0]].device for base, ids in here.items() if base in there]
        yield from self._containers(name, {device.id: device for device in shared})

    def _is_known(self, base: str) -> bool:
        return base in self._homes or base in self._entries

    def _missing(
        self, name: str, missing: Iterable[str], theirs: Mapping[str, Nodes], *, is_offered: bool
    ) -> Iterator[Difference]:
        groups: dict[tuple[str, str, str], list[str]] = {}
        for each in missing:
            groups.setdefault(self._why_missing(name, each, theirs, is_offered=is_offered), []).append(each)
        for (kind, reason, key), devices in groups.items():
            yield Difference(kind, reason, tuple(devices), key)

    def _why_missing(
        self, name: str, device: str, theirs: Mapping[str, Nodes], *, is_offered: bool
    ) -> tuple[str, str, str]:
        """Kind, reason and key for an id that the kubelet has and devherd does not offer under this resource name."""
        base = _base(device)
        if home := self._homes.get(base):
            replicas = len(_by_base(theirs)[base])
            return "other-name", f"devherd offers it as {home.offer}", self._key_of_name(name, home, replicas)
        if entry := self._entries.get(base):
            rule = self._rules.get(entry.key, "") or "it has no resource yet"
            return "missing", f"devherd finds it and does not offer it: {rule}", _key_of_rule(name, rule)
        if is_offered:
            key = _KEYS_OF_NUMBERS.get(self._vendors[name], "")
            return "missing", "this scan finds no such device", key
        section = next((section for pattern, section in _VENDORS_OF_NAMES if fnmatchcase(name, pattern)), "")
        if section in self._disabled:
            return "missing-resource", f"vendors.{section}.enabled is false", f"vendors.{section}.enabled: auto"
        key = next((key for pattern, key in _KEYS_OF_NAMES if fnmatchcase(name, pattern)), "")
        return "missing-resource", "devherd offers nothing of this name here", key

    def _extra(self, name: str, extra: Sequence[str], *, is_there: bool) -> Iterator[Difference]:
        if not extra:
            return
        if is_there:
            in_mig_mode = [each for each in extra if "mig_devices" in self._offered[name][each].device.attributes]
            if in_mig_mode and any(fnmatchcase(other, "nvidia.com/mig-*") for other in self._kubelet):
                reason = "the kubelet has the MIG devices of these GPUs in their place"
                yield Difference("extra", reason, tuple(in_mig_mode), "vendors.nvidia.mig_strategy: mixed")
                extra = [each for each in extra if each not in in_mig_mode]
        if is_there and extra:
            reason = "not allocatable at the kubelet: its plugin does not list it, or calls it Unhealthy"
            yield Difference("extra", reason, tuple(extra), _KEYS_OF_NUMBERS.get(self._vendors[name], ""))
        if is_there:
            return
        offered = [self._offered[name][each].device for each in extra]
        key = self._key_of_rules(
            offered, f"match: {{resource_name: {_default_name(offered[0], name)}}}", "advertise: false"
        )
        yield Difference("extra-resource", "the kubelet has no allocatable device of this name", tuple(extra), key)

    def _replicas(
        self, there: Mapping[str, list[str]], here: Mapping[str, list[str]], ours: Mapping[str, _Offered]
    ) -> Iterator[Difference]:
        """Devices whose number of replicas differs."""
        groups: dict[tuple[int, int, str], list[spool_pb2.Device]] = {}
        for base, ids in there.items():
            if base in here and {*ids} != {*here[base]}:
                replicas = len(ids) if len(ids) > 1 or _REPLICA.fullmatch(ids[0]) else 1
                device = ours[here[base][0]].device
                of_vendor = not any(map(_REPLICA.fullmatch, (*ids, *here[base])))
                number_key = _KEYS_OF_NUMBERS.get(device.vendor, "") if of_vendor else ""
                groups.setdefault((replicas, len(here[base]), number_key), []).append(device)
        for (of_theirs, of_ours, number_key), devices in groups.items():
            key = f"{number_key}: {of_theirs}" if number_key else ""
            key = key or self._key_of_rules(devices, "", f"sharing: {{replicas: {of_theirs}}}")
            reason = f"shared by {of_theirs} at the kubelet, by {of_ours} here"
            yield Difference("replicas", reason, tuple(_base(device.id) for device in devices), key)

    def _key_of_rules(self, devices: Sequence[spool_pb2.Device], match: str, setting: str) -> str:
        """The setting of these devices, where it has an effect: the first rule that matches a device decides.

        Without a `match`: of their vendor, or of these devices, where others are offered by the same rule.
        """
        rules = sorted({device.rule for device in devices}, key=NaturalKey)
        is_all = {device.id for device in devices} >= set().union(*(self._of_rule[rule] for rule in rules))
        if len(rules) == 1 and is_all and rules[0].startswith("resources["):
            return f"{rules[0]}.{setting}"
        if not is_all and (rules[0].startswith("resources[") or not match):
            match = f"match: {{id: [{', '.join(device.id for device in devices)}]}}"
        match = match or f"match: {{vendor: {devices[0].vendor.replace('-', '_')}}}"
        if first := next((rule for rule in rules if rule.startswith("resources[")), ""):
            return f"before {first}: {{{match}, {setting}}}"
        return f"resources: [{{{match}, {setting}}}]"

    def _key_of_name(self, name: str, home: _Offered, replicas: int) -> str:
        """The setting that gives the devices of `home` the name that the kubelet has."""
        for pattern, key in _KEYS_OF_NAMES:
            if fnmatchcase(name, pattern) and not fnmatchcase(home.offer, pattern):
                return key
        if fnmatchcase(home.offer, "nvidia.com/mig-*") and name == "nvidia.com/gpu":
            return "vendors.nvidia.mig_strategy: single"
        if fnmatchcase(home.offer, "amd.com/*_nps*") and name == "amd.com/gpu":
            return "vendors.amd.naming: single"
        match = f"match: {{resource_name: {_default_name(home.device, home.offer)}}}"
        setting = f"sharing: {{replicas: {replicas}, rename: {name}}}" if replicas > 1 else f"name: {name}"
        devices = [offered.device for offered in self._offered[home.offer].values()]
        return self._key_of_rules(devices, match, setting)

    def _containers(self, name: str, devices: Mapping[str, spool_pb2.Device]) -> Iterator[Difference]:
        """Devices for which a container would get something else than by the plugin's settings."""
        groups: dict[tuple[str, ...], tuple[str, str, list[str]]] = {}
        for each, device in devices.items():
            theirs = self._by_plugin.get((name, each))
            if theirs is None or theirs == device.edits:
                continue
            changes = list(_changes(theirs, device.edits))
            reason = "; ".join(text for _, text in changes)
            key = self._keys_of_vendors.get(device.vendor, "")
            kinds = tuple(_NUMBER.sub("N", kind) for kind, _ in changes)
            groups.setdefault(kinds, (reason, key, []))[2].append(each)
        for reason, key, those in groups.values():
            which = f"for {those[0]} " if len(those) > 1 else ""
            yield Difference("container", f"{which}a container would get {reason}", tuple(those), key)


def _offered(offer: spool_pb2.Offer) -> Iterator[tuple[str, _Offered]]:
    known = {node for device in offer.devices for node in device.numa_nodes}
    possible = known.union(offer.processor_nodes) if known else known  # as in the list for the kubelet
    for each, device in listed(offer):
        yield each, _Offered(offer.name, device, frozenset(device.numa_nodes or possible))


def _natural(pair: tuple[str, Nodes]) -> NaturalKey:
    return NaturalKey(pair[0])


def _base(device: str) -> str:
    """The id of the device that an id is a replica or share of."""
    found = _REPLICA.fullmatch(device) or _CARD_SHARE.fullmatch(device)
    return found["of"] if found else device


def _by_base(ids: Iterable[str]) -> dict[str, list[str]]:
    """The ids by their device."""
    grouped: dict[str, list[str]] = {}
    for each in ids:
        grouped.setdefault(_base(each), []).append(each)
    return grouped


def _key_of_rule(name: str, rule: str) -> str:
    """The setting that offers a device which this rule withholds."""
    if rule.startswith("resources["):
        return f"{rule}.advertise: true"
    if "mig_strategy" in rule:
        return f"vendors.nvidia.mig_strategy: {'mixed' if fnmatchcase(name, 'nvidia.com/mig-*') else 'single'}"
    if "MIG devices" in rule:
        return "vendors.nvidia.mig_strategy: none"
    return "vendors.nvidia.passthrough: false" if "vGPUs" in rule else ""


def _default_name(device: spool_pb2.Device, offer: str) -> str:
    """The name that `resource_name` of a match means: the vendor's own."""
    return device.default_resource_name or offer


_FIELDS = (("envs", "variable"), ("mounts", "mount"), ("nodes", "device node"), ("annotations", "annotation"))


def _changes(theirs: spool_pb2.Edits, ours: spool_pb2.Edits) -> Iterator[tuple[str, str]]:
    """What differs in what a container gets: a word that is the same for devices that differ alike, and a text."""
    for field_name, word in _FIELDS:
        there, here = _by_place(theirs, field_name), _by_place(ours, field_name)
        for place in sorted(there.keys() | here.keys()):
            if place not in here:
                yield f"-{field_name} {place}", f"no {word} {place}"
            elif place not in there:
                yield f"+{field_name} {place}", f"the {word} {place}"
            elif there[place] != here[place]:
                yield f"={field_name} {place}", f"the {word} {place} as {here[place]}, not {there[place]}"
    there_names, here_names = list(theirs.cdi_devices), list(ours.cdi_devices)
    if there_names != here_names:
        kind = f"cdi {bool(there_names)} {bool(here_names)}"
        text = f"the CDI name {', '.join(here_names)}" if here_names else "no CDI name"
        yield kind, f"{text}, not {', '.join(there_names)}" if here_names and there_names else text


def _by_place(edits: spool_pb2.Edits, field_name: str) -> dict[str, str]:
    """A field's entries by their place in the container, each as a text."""
    if field_name in {"envs", "annotations"}:
        return dict(getattr(edits, field_name))
    if field_name == "mounts":
        return {each.container_path: f"{each.host_path}{' (ro)' if each.read_only else ''}" for each in edits.mounts}
    return {each.container_path: f"{each.host_path} ({each.permissions})" for each in edits.nodes}


def _other_ids(vendor: str, theirs: Sequence[str], ours: Sequence[str]) -> Difference:
    reason = f"no id is the same: {theirs[0]} at the kubelet, {ours[0]} here"
    return Difference("other-ids", reason, tuple(theirs), _KEYS_OF_NUMBERS.get(vendor, ""))


def _unhealthy(both: Mapping[str, _Offered], *, has_rules: bool) -> Iterator[Difference]:
    groups: dict[tuple[str, ...], list[str]] = {}
    for each, offered in both.items():
        if offered.device.reasons:
            groups.setdefault(tuple(offered.device.reasons), []).append(each)
    for reasons, devices in groups.items():
        rule = f"{{reason: [{', '.join(reasons)}], action: warn}}"
        key = f"before health.rules[0]: {rule}" if has_rules else f"health: {{rules: [{rule}]}}"
        yield Difference(
            "unhealthy", f"Healthy at the kubelet, Unhealthy here: {', '.join(reasons)}", tuple(devices), key
        )


def _numa(theirs: Mapping[str, Nodes], both: Mapping[str, _Offered]) -> Iterator[Difference]:
    groups: dict[tuple[Nodes, Nodes], list[str]] = {}
    for each, offered in both.items():
        if theirs[each] != offered.nodes:
            groups.setdefault((theirs[each], offered.nodes), []).append(each)
    for (there, here), devices in groups.items():
        yield Difference("numa", f"{_node(there)} at the kubelet, {_node(here)} here", tuple(devices))


def _node(nodes: Nodes) -> str:
    return f"NUMA node {','.join(map(str, sorted(nodes)))}" if nodes else "no NUMA node"
