"""Devices + configuration → resources: selection, naming, sharing, caps. A pure function.

The first rule that matches a device decides its resource; one that no rule matches goes under its vendor's own name.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from devherd import resource_name
from devherd.config import Config, ResourceRule, Selector, Sharing, Vendors
from devherd.proto import spool_pb2
from devherd.scanner import cdi_spec, sharing
from devherd.scanner.health import Health
from devherd.scanner.inventory import DeviceKey, Entry, key_of

MAX_LIST_BYTES = 3_500_000
"""The kubelet refuses a device list of more than 4 194 304 bytes and ends the stream; stay well below."""

_PREFERENCES = {
    "aligned": spool_pb2.ALIGNED,
    "packed": spool_pb2.PACKED,
    "distributed": spool_pb2.DISTRIBUTED,
    "none": spool_pb2.NONE,
}
_DEFAULT_RULE = ResourceRule()
_PLACE_OF_NAME = "{RESOURCE_NAME}"
_NEITHER_LETTER_NOR_DIGIT = re.compile("[^A-Za-z0-9]")
_NUMBER = re.compile(r"([0-9]+)")


@dataclass(slots=True)
class Resources:
    """Resources sorted by name, what could not be advertised, and which rule each device met."""

    resources: list[spool_pb2.Resource] = field(default_factory=list)
    problems: list[spool_pb2.Problem] = field(default_factory=list)
    rules: dict[DeviceKey, str] = field(default_factory=dict)
    places: dict[DeviceKey, list[tuple[int, int]]] = field(default_factory=dict)
    """Where each device stands: the index of its resource, its index in it; its replicas stand in several places."""

    def judged(self, health: Health) -> "Resources":
        """The same, with copies of the resources that tell why their devices are unhealthy."""
        judged = [_copy(resource) for resource in self.resources]
        for key, reasons in health.all_reasons().items():
            for resource, device in self.places.get(key, ()):
                judged[resource].devices[device].reasons.extend(reasons)
        return replace(self, resources=judged)


def build(config: Config, entries: Iterable[Entry], health: Health) -> Resources:
    """The resources that these devices make under this configuration, with their health."""
    return arrange(config, entries).judged(health)


def arrange(config: Config, entries: Iterable[Entry]) -> Resources:
    """The resources that these devices make under this configuration, whatever their health."""
    result = Resources()
    by_name: dict[str, spool_pb2.Resource] = {}
    for entry in entries:
        number, rule = _rule_for(config.resources, entry)
        result.rules[entry.key] = _describe(number, entry)
        if rule.advertise:
            _advertise(config, rule, entry, by_name, result)
    for name in sorted(by_name):
        _settle(by_name[name], result)
    result.places = _places(result.resources)
    return result


def matches(selector: Selector, facts: Mapping[str, str]) -> bool:
    """Whether every fact of the selector is there and fits one of its globs; letter case counts."""
    return all(
        fact in facts and any(fnmatchcase(facts[fact], pattern) for pattern in patterns)
        for fact, patterns in selector.patterns().items()
    )


def natural_key(text: str) -> tuple[list[str | int], str]:
    """Sorts `card2` before `card10`: numbers by value, text as text; equal numbers spelt differently by their text."""
    parts: list[str | int] = [*_NUMBER.split(text)]
    parts[1::2] = [int(number) for number in parts[1::2]]  # text and numbers alternate
    return parts, text


def _rule_for(rules: list[ResourceRule], entry: Entry) -> tuple[int | None, ResourceRule]:
    if rules:
        facts = _facts(entry)
        for number, rule in enumerate(rules):
            if matches(rule.match, facts) and not any(matches(exception, facts) for exception in rule.match.exclude):
                return number, rule
    return None, _DEFAULT_RULE


def _facts(entry: Entry) -> dict[str, str]:
    """What selectors may name: the device's attributes, and these of every device; vendors as the file has them."""
    return dict(entry.device.attributes) | {
        "vendor": entry.vendor.replace("-", "_"),
        "id": entry.device.id,
        "resource_name": entry.resource_name,
    }


def _advertise(
    config: Config, rule: ResourceRule, entry: Entry, by_name: dict[str, spool_pb2.Resource], result: Resources
) -> None:
    shared, complaint = sharing.feasible(rule.sharing, entry.device)
    name = _name(rule, shared, entry)
    refusal = resource_name.explain(name)
    if refusal is not None:
        complaint = f"cannot be advertised: {refusal}"
    if complaint is not None:
        result.problems.append(_problem(entry, complaint))
    if refusal is not None:
        return
    resource = by_name.get(name)
    if resource is None:
        resource = by_name[name] = spool_pb2.Resource(name=name, vendor=entry.vendor)
    if shared.replicas > 1 or not resource.devices:
        resource.preferred = _PREFERENCES[rule.preferred or _vendors_preference(config.vendors, shared, entry.vendor)]
    resource.fail_requests_greater_than_one |= shared.refuses_more_than_one
    device = resource.devices.add()
    device.CopyFrom(entry.device)
    _finish(device, name, entry, result)
    if shared.strategy == "mps":
        sharing.add_mps(device, name, config.vendors.nvidia.mps_root or "")
    sharing.replicate(device, shared.replicas, resource)


def _name(rule: ResourceRule, shared: Sharing, entry: Entry) -> str:
    renamed = shared.rename if shared.replicas > 1 else None
    return renamed or rule.name or entry.resource_name


def _vendors_preference(vendors: Vendors, shared: Sharing, vendor: str) -> str:
    """Which devices the vendor's own plugin prefers to give together."""
    match vendor:
        case "nvidia" if shared.replicas > 1:
            return vendors.nvidia.shared_devices_allocation_policy
        case "amd" if shared.replicas > 1:
            return "distributed"  # its plugin shares nothing; two replicas of one device bring no more than one
        case "nvidia" | "amd":
            return "aligned"
        case "intel-gpu" if vendors.intel_gpu.allocation_policy != "packed":
            return "distributed"
    return "packed"


def _describe(number: int | None, entry: Entry) -> str:
    return f"{entry.vendor}'s own name" if number is None else f"resources[{number}]"


def _finish(device: spool_pb2.Device, name: str, entry: Entry, result: Resources) -> None:
    """Make it what it is in the resource of this name."""
    illegal = {cdi for cdi in (*device.cdi_devices, *device.cdi_edits) if not cdi_spec.is_legal(cdi)}
    if illegal:
        _leave_out(illegal, device)
        names = ", ".join(sorted(illegal))
        result.problems.append(_problem(entry, f"is given without CDI: no runtime accepts the name {names}"))
    for variable in [variable for variable in device.envs if _PLACE_OF_NAME in variable]:
        in_capitals = _NEITHER_LETTER_NOR_DIGIT.sub("_", name).upper()
        device.envs[variable.replace(_PLACE_OF_NAME, in_capitals)] = device.envs.pop(variable)
    device.cdi_edits.clear()  # they name every library of a driver; whoever reads the spool needs the names alone


def _leave_out(illegal: set[str], device: spool_pb2.Device) -> None:
    kept = [name for name in device.cdi_devices if name not in illegal]
    del device.cdi_devices[:]
    device.cdi_devices.extend(kept)
    for key, names in [*device.annotations.items()]:
        others = [name for name in names.split(",") if name not in illegal]
        if others:
            device.annotations[key] = ",".join(others)
        else:
            del device.annotations[key]


def _settle(resource: spool_pb2.Resource, result: Resources) -> None:
    """Order, uniqueness and size, as the kubelet needs them."""
    devices = sorted(resource.devices, key=lambda device: natural_key(device.id))
    unique: dict[str, spool_pb2.Device] = {}
    for device in devices:
        if device.id in unique:
            result.problems.append(
                _resource_problem(
                    resource, f"the device id `{device.id}` is given twice; the second is left out", device.id
                )
            )
        unique.setdefault(device.id, device)
    kept = _cap(list(unique.values()))
    if len(kept) < len(unique):
        text = f"{len(unique)} devices do not fit into one message to the kubelet; the first {len(kept)} are advertised"
        result.problems.append(_resource_problem(resource, text))
    if len(kept) < len(devices) or kept != list(resource.devices):
        del resource.devices[:]
        resource.devices.extend(kept)
    result.resources.append(resource)


def _places(resources: list[spool_pb2.Resource]) -> dict[DeviceKey, list[tuple[int, int]]]:
    places: dict[DeviceKey, list[tuple[int, int]]] = {}
    for place, resource in enumerate(resources):
        for position, device in enumerate(resource.devices):
            places.setdefault(key_of(device), []).append((place, position))
    return places


def _copy(resource: spool_pb2.Resource) -> spool_pb2.Resource:
    copy = spool_pb2.Resource()
    copy.CopyFrom(resource)
    return copy


def _cap(devices: list[spool_pb2.Device]) -> list[spool_pb2.Device]:
    size = 0
    for count, device in enumerate(devices):
        # Tags and lengths (8), the id, "Unhealthy" (9), and up to 14 bytes for each NUMA node.
        size += 17 + len(device.id.encode()) + 14 * len(device.numa_nodes)
        if size > MAX_LIST_BYTES:
            return devices[:count]
    return devices


def _problem(entry: Entry, error: str) -> spool_pb2.Problem:
    return spool_pb2.Problem(vendor=entry.vendor, path=entry.resource_name, error=error, device=entry.device.id)


def _resource_problem(resource: spool_pb2.Resource, error: str, device: str = "") -> spool_pb2.Problem:
    return spool_pb2.Problem(vendor=resource.vendor, path=resource.name, error=error, device=device)
