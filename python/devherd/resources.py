"""Devices + configuration → resources: selection, naming, sharing, caps. A pure function.

The first rule that matches a device decides its resource; one that no rule matches goes under its vendor's own name.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from devherd import resource_name
from devherd.config import Config, ResourceRule, Selector
from devherd.health import Health
from devherd.inventory import DeviceKey, Entry
from devherd.proto import spool_pb2

MAX_LIST_BYTES = 3_500_000
"""The kubelet refuses a device list of more than 4 194 304 bytes and ends the stream; stay well below."""

_PREFERENCES = {"packed": spool_pb2.PACKED, "aligned": spool_pb2.ALIGNED, "none": spool_pb2.NONE}
_DEFAULT_RULE = ResourceRule()
_NUMBER = re.compile(r"(\d+)")


@dataclass(slots=True)
class Resources:
    """Resources sorted by name, what could not be advertised, and which rule each device met."""

    resources: list[spool_pb2.Resource] = field(default_factory=list)
    problems: list[spool_pb2.Problem] = field(default_factory=list)
    rules: dict[DeviceKey, str] = field(default_factory=dict)


def build(config: Config, entries: Iterable[Entry], health: Health) -> Resources:
    """The resources that these devices make under this configuration."""
    result = Resources()
    by_name: dict[str, spool_pb2.Resource] = {}
    for entry in entries:
        number, rule = _rule_for(config.resources, entry)
        result.rules[entry.key] = _describe(number, entry)
        if not rule.advertise:
            continue
        name = _name(rule, entry)
        refusal = resource_name.explain(name)
        if refusal is not None:
            result.problems.append(_problem(entry, f"cannot be advertised: {refusal}"))
            continue
        resource = by_name.get(name)
        if resource is None:
            resource = by_name[name] = spool_pb2.Resource(
                name=name,
                vendor=entry.vendor,
                preferred=_PREFERENCES[rule.preferred],
                fail_requests_greater_than_one=rule.sharing.fail_requests_greater_than_one,
            )
        reasons = health.reasons(entry.key)
        _add(resource, entry, rule.sharing.replicas, reasons)
    for name in sorted(by_name):
        _settle(by_name[name], result)
    return result


def matches(selector: Selector, facts: Mapping[str, str]) -> bool:
    """Whether every fact of the selector is there and fits one of its globs; letter case counts."""
    return all(
        fact in facts and any(fnmatchcase(facts[fact], pattern) for pattern in patterns)
        for fact, patterns in selector.patterns().items()
    )


def natural_key(text: str) -> tuple[tuple[bool, int, str], ...]:
    """Sorts `card2` before `card10`: numbers by value, text as text."""
    parts = _NUMBER.split(text)
    return tuple((part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts)


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


def _name(rule: ResourceRule, entry: Entry) -> str:
    shared = rule.sharing.rename if rule.sharing.replicas > 1 else None
    return shared or rule.name or entry.resource_name


def _describe(number: int | None, entry: Entry) -> str:
    return f"{entry.vendor}'s own name" if number is None else f"resources[{number}]"


def _add(resource: spool_pb2.Resource, entry: Entry, replicas: int, reasons: tuple[str, ...]) -> None:
    for replica in range(replicas):
        device = resource.devices.add()
        device.CopyFrom(entry.device)
        device.reasons.extend(reasons)
        if replicas > 1:
            device.id = f"{entry.device.id}::{replica}"


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
