"""Compares the devices that present plugins give the kubelet with those that devherd would offer. Pure.

The kubelet lists only allocatable devices (`GetAllocatableDevices` of its device manager). A device that its plugin
calls Unhealthy is missing there; only a pod that still holds it shows its id.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    `unhealthy`. `missing` means that the kubelet has a device and devherd would not offer it.
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
    ) -> None:
        self._kubelet = {name: dict(sorted(ids.items(), key=_natural)) for name, ids in kubelet.items()}
        self._rules = rules or {}
        self._vendors = {offer.name: offer.vendor for offer in offers}
        self._offered = {offer.name: dict(_offered(offer)) for offer in offers}
        self._homes = {_base(each): offered for ids in self._offered.values() for each, offered in ids.items()}
        self._there = {_base(each) for ids in kubelet.values() for each in ids}
        self._entries = {entry.device.id: entry for entry in (entries or {}).values()}
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
        return Compared(name, len(theirs), healthy, differences, pods)

    def _differences(
        self, name: str, theirs: Mapping[str, Nodes], ours: Mapping[str, _Offered]
    ) -> Iterator[Difference]:
        there, here = _by_base(theirs), _by_base(ours)
        missing = [each for base, ids in there.items() if base not in here for each in ids]
        extra = [each for base, ids in here.items() if base not in self._there for each in ids]
        if ours and theirs and not {*there} & {*here} and not any(self._is_known(base) for base in there):
            yield _other_ids(self._vendors[name], missing, list(ours))
            return
        yield from _replicas(there, here, ours)
        yield from self._missing(name, missing, theirs, is_offered=bool(ours))
        yield from self._extra(name, [each for each in extra if not ours[each].device.reasons], is_there=bool(theirs))
        both = {each: offered for each, offered in ours.items() if each in theirs}
        yield from _unhealthy(both)
        yield from _numa(theirs, both)

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
            return "other-name", f"devherd offers it as {home.offer}", _key_of_name(name, home, replicas)
        if entry := self._entries.get(base):
            rule = self._rules.get(entry.key, "") or "it has no resource yet"
            return "missing", f"devherd finds it and does not offer it: {rule}", _key_of_rule(name, rule)
        if is_offered:
            key = _KEYS_OF_NUMBERS.get(self._vendors[name], "")
            return "missing", "this scan finds no such device", key
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
        key = f"resources: [{{match: {{resource_name: {name}}}, advertise: false}}]"
        yield Difference("extra-resource", "the kubelet has no allocatable device of this name", tuple(extra), key)


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


def _replicas(
    there: Mapping[str, list[str]], here: Mapping[str, list[str]], ours: Mapping[str, _Offered]
) -> Iterator[Difference]:
    """Devices whose number of replicas differs."""
    groups: dict[tuple[int, int, str], list[str]] = {}
    for base, ids in there.items():
        if base in here and {*ids} != {*here[base]}:
            replicas = len(ids) if len(ids) > 1 or _REPLICA.fullmatch(ids[0]) else 1
            vendor = ours[here[base][0]].device.vendor
            of_vendor = vendor in _KEYS_OF_NUMBERS and not any(map(_REPLICA.fullmatch, (*ids, *here[base])))
            rule = f"resources: [{{match: {{vendor: {vendor.replace('-', '_')}}}, sharing: {{replicas: {replicas}}}}}]"
            key = f"{_KEYS_OF_NUMBERS[vendor]}: {replicas}" if of_vendor else rule
            groups.setdefault((replicas, len(here[base]), key), []).append(base)
    for (of_theirs, of_ours, key), devices in groups.items():
        reason = f"shared by {of_theirs} at the kubelet, by {of_ours} here"
        yield Difference("replicas", reason, tuple(devices), key)


def _key_of_rule(name: str, rule: str) -> str:
    """The setting that offers a device which this rule withholds."""
    if rule.startswith("resources["):
        return f"{rule}.advertise: true"
    if "mig_strategy" in rule:
        return f"vendors.nvidia.mig_strategy: {'mixed' if fnmatchcase(name, 'nvidia.com/mig-*') else 'single'}"
    if "MIG devices" in rule:
        return "vendors.nvidia.mig_strategy: none"
    return "vendors.nvidia.passthrough: false" if "vGPUs" in rule else ""


def _key_of_name(name: str, home: _Offered, replicas: int) -> str:
    """The setting that gives the devices of `home` the name that the kubelet has."""
    for pattern, key in _KEYS_OF_NAMES:
        if fnmatchcase(name, pattern) and not fnmatchcase(home.offer, pattern):
            return key
    if fnmatchcase(home.offer, "nvidia.com/mig-*") and name == "nvidia.com/gpu":
        return "vendors.nvidia.mig_strategy: single"
    if fnmatchcase(home.offer, "amd.com/*_nps*") and name == "amd.com/gpu":
        return "vendors.amd.naming: single"
    match = f"match: {{resource_name: {home.device.default_resource_name or home.offer}}}"
    if replicas > 1:
        return f"resources: [{{{match}, sharing: {{replicas: {replicas}, rename: {name}}}}}]"
    return f"resources: [{{{match}, name: {name}}}]"


def _other_ids(vendor: str, theirs: Sequence[str], ours: Sequence[str]) -> Difference:
    reason = f"no id is the same: {theirs[0]} at the kubelet, {ours[0]} here"
    return Difference("other-ids", reason, tuple(theirs), _KEYS_OF_NUMBERS.get(vendor, ""))


def _unhealthy(both: Mapping[str, _Offered]) -> Iterator[Difference]:
    groups: dict[tuple[str, ...], list[str]] = {}
    for each, offered in both.items():
        if offered.device.reasons:
            groups.setdefault(tuple(offered.device.reasons), []).append(each)
    for reasons, devices in groups.items():
        key = f"health: {{rules: [{{reason: [{', '.join(reasons)}], action: warn}}]}}"
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
