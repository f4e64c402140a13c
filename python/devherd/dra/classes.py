"""DeviceClasses for the devices of this node: the vendors' own, and one for each resource name that none of them has.

A vendor's class is as its chart has it. A name that the rules give, or a vendor's default, is a class of its own with
that `extendedResourceName`, so pods that ask for the name get such devices by DRA. Its CEL reads attributes alone, and
those of a vendor's driver have no resource name in them, so it says:

* the driver; the type, but of Intel's GPUs, whose names are alike for virtual functions;
* what the vendor's default names depend on: a MIG device's profile, a partition's, the kernel driver of an Intel GPU;
  for devherd's own drivers the resource name, or the accelerator's id where the name is too long for an attribute;
* without the resource name, whether the device is shared, where all of the name are, or others of the type are;
* what the rule matches, with the values of this node: a rule for `model` is `productName`.

Classes are the cluster's, and devices are even on one node: a read of an attribute that a device of another node lacks
would end every allocation. So each but that of `type`, which all have, stands behind the question whether it is there.

A fact that the rule matches and no attribute shows is told in a notice. Where the expression selects devices of this
node that have another name, there is no class, and a notice: a pod would get the wrong device.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from devherd.config.sections import ResourceRule
from devherd.dra import amd, intel_gpu, nvidia
from devherd.dra.pools import Notice, Pools, Published
from devherd.dra.tables import Value
from devherd.dra.values import subdomain
from devherd.text import amount

LONGEST_EXPRESSION = 10 * 1024
"""Bytes."""

_RULE = re.compile(r"resources\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class _Alternative:
    """Devices of a type with these values: attribute, key of the values, values."""

    driver: str
    type: str | None
    """None for every type of the driver."""
    values: tuple[tuple[str, str, tuple[Value, ...]], ...] = ()
    is_shared: bool | None = None
    """None for both."""

    def selects(self, device: Published) -> bool:
        """Whether it selects a device of this node."""
        return (
            device.type.driver == self.driver
            and self.type in (None, device.type.name)
            and self.is_shared in (None, device.subject.shares > 1)
            and all(
                name in device.attributes and device.attributes[name][1] in values for name, _, values in self.values
            )
        )

    @property
    def expression(self) -> str:
        """Its CEL."""
        parts = [f"device.driver == {_literal(self.driver)}"]
        if self.type is not None:
            parts.append(f"device.attributes[{_literal(self.driver)}].type == {_literal(self.type)}")
        if self.is_shared is not None:
            parts.append("device.allowMultipleAllocations" if self.is_shared else "!device.allowMultipleAllocations")
        parts += [part for value in self.values for part in _conditions(self.driver, *value)]
        return " && ".join(parts)


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A class by its name; `expression` is CEL."""

    name: str
    expression: str
    alternatives: tuple[_Alternative, ...]
    extended_resource_name: str | None = None

    def selects(self, device: Published) -> bool:
        """Whether it selects a device of this node."""
        return any(each.selects(device) for each in self.alternatives)


def _vendors(name: str, driver: str, kind: str | None = None, resource: str | None = None) -> DeviceClass:
    expression = f"device.driver == '{driver}'"
    if kind is not None:
        expression += f" && device.attributes['{driver}'].type == '{kind}'"
    return DeviceClass(name, expression, (_Alternative(driver, kind),), resource)


VENDORS = (
    # deployments/helm/dra-driver-nvidia-gpu/templates/deviceclass-{gpu,mig}.yaml; versions: see the tables.
    _vendors("gpu.nvidia.com", nvidia.DRIVER, "gpu", "nvidia.com/gpu"),
    _vendors("mig.nvidia.com", nvidia.DRIVER, "mig"),
    # helm-charts-k8s/templates/deviceclass.yaml
    _vendors("gpu.amd.com", amd.DRIVER, resource="amd.com/gpu"),
    # charts/intel-gpu-resource-driver/templates/device-class.yaml: no extended resource by default
    _vendors("gpu.intel.com", intel_gpu.DRIVER),
)


def classes_of(pools: Pools, rules: Sequence[ResourceRule]) -> tuple[list[DeviceClass], list[Notice]]:
    """The classes for the published devices, and what they cannot say; `rules` are the configuration's `resources`."""
    published = [device for devices in pools.devices.values() for device in devices]
    classes = [each for each in VENDORS if any(each.selects(device) for device in published)]
    by_name: dict[str, list[Published]] = {}
    for device in published:
        by_name.setdefault(device.subject.resource_name, []).append(device)
    # A class that selects nothing here has its name, too: another node of the cluster prints it.
    covered = {each.extended_resource_name: each for each in VENDORS if each.extended_resource_name}
    notices = [notice for name, each in covered.items() for notice in _of_a_vendors(name, each, published)]
    names = {each.name: each.extended_resource_name for each in VENDORS}
    for resource, devices in sorted(by_name.items()):
        if resource in covered:
            continue
        made, told = _class(resource, devices, published, rules)
        notices += told
        if made is not None and made.name in names:
            other = names[made.name] or made.name
            notices.append(_none_for(resource, f"class `{made.name}` is that of {other}"))
        elif made is not None:
            names[made.name] = resource
            classes.append(made)
    return classes, notices


def _of_a_vendors(resource: str, made: DeviceClass, published: Iterable[Published]) -> Iterable[Notice]:
    """Where a vendor's class, whose selection is fixed, differs from what the rules say of its resource name."""
    devices = list(published)
    more = [each for each in devices if made.selects(each) and each.subject.resource_name != resource]
    less = [each for each in devices if not made.selects(each) and each.subject.resource_name == resource]
    what = f"class {made.name}"
    if more:
        names = ", ".join(sorted({each.subject.resource_name for each in more}))
        yield Notice(what, f"a pod that asks for {resource} may get {amount(len(more), 'device')} of {names}, too")
    if less:
        yield Notice(what, f"a pod that asks for {resource} never gets {_few(less)}: a claim of another class does")


def _class(
    resource: str, devices: list[Published], published: list[Published], rules: Sequence[ResourceRule]
) -> tuple[DeviceClass | None, list[Notice]]:
    """The class of a resource name; None, with a notice, if no expression selects its devices alone."""
    matched = {fact for device in devices for fact in _matched(device, rules)}
    alternatives: list[_Alternative] = []
    unsaid: set[str] = set()
    for kind in dict.fromkeys(_kind(each) for each in devices):
        of_kind = [each for each in devices if _kind(each) == kind]
        others = [each for each in published if _kind(each) == kind and each.subject.resource_name != resource]
        alternative, left = _alternative(kind, of_kind, others, matched)
        alternatives.append(alternative)
        unsaid |= left
    expression = " || ".join(each.expression for each in alternatives)
    made = DeviceClass(subdomain(resource.replace("/", "-")), expression, tuple(alternatives), resource)
    wrong = [each for each in published if made.selects(each) and each.subject.resource_name != resource]
    if wrong:
        names = ", ".join(sorted({each.subject.resource_name for each in wrong}))
        return None, [_none_for(resource, f"no attribute tells its devices from those of {names}")]
    if len(expression.encode()) > LONGEST_EXPRESSION:
        return None, [_none_for(resource, f"its expression is longer than {LONGEST_EXPRESSION} bytes")]
    if not unsaid:
        return made, []
    facts = ", ".join(f"`{fact}`" for fact in sorted(unsaid))
    return made, [Notice(f"class {made.name}", f"no attribute shows {facts} of its rule: it may select more elsewhere")]


def _matched(device: Published, rules: Sequence[ResourceRule]) -> Iterable[str]:
    """The facts that the rule of a device matches, without those of every device."""
    rule = _RULE.match(device.subject.rule)
    if rule is None or int(rule[1]) >= len(rules):
        return ()
    match = rules[int(rule[1])].match
    facts = [fact for selector in (match, *match.exclude) for fact in selector.facts]
    return (fact for fact in facts if fact not in ("vendor", "resource_name"))


def _kind(device: Published) -> tuple[str, str | None]:
    """The driver, and the type where the name depends on it: elsewhere a node with another type has the same name."""
    return device.type.driver, device.type.name if device.type.is_in_names else None


def _alternative(
    kind: tuple[str, str | None], devices: list[Published], others: list[Published], matched: Iterable[str]
) -> tuple[_Alternative, set[str]]:
    """The expression for the devices of one resource name and kind, and the matched facts that it does not say."""
    first = devices[0]
    common = frozenset(first.attributes).intersection(*(each.attributes for each in (*devices, *others)))
    told_by = next((each for each in first.type.told_by if common.issuperset(each)), ())
    names, unsaid, is_shared = list(told_by), set(), None
    if "resourceName" not in told_by:
        made_of = {fact: one.name for one in first.type.attributes if one.name in common for fact in one.made_of}
        unsaid = {fact for fact in matched if fact not in made_of}
        names += sorted({made_of[fact] for fact in matched if fact in made_of}.difference(told_by))
        shared = {each.subject.shares > 1 for each in devices}
        if shared == {True} or (shared == {False} and any(each.subject.shares > 1 for each in others)):
            is_shared = True in shared
    values = tuple((name, first.attributes[name][0], _distinct(name, devices)) for name in names)
    return _Alternative(*kind, values, is_shared), unsaid


def _distinct(name: str, devices: Iterable[Published]) -> tuple[Value, ...]:
    return tuple(sorted({device.attributes[name][1] for device in devices}, key=str))


def _conditions(driver: str, name: str, kind: str, values: Sequence[Value]) -> tuple[str, str]:
    """That the device has the attribute, as those of another node may not, and one of the values."""
    domain, slash, short = name.rpartition("/")
    of_domain = f"device.attributes[{_literal(domain if slash else driver)}]"
    attribute, has = f"{of_domain}.{short}", f"{_literal(short)} in {of_domain}"
    if kind == "version":
        same = [f"{attribute}.compareTo(semver({_literal(value)})) == 0" for value in values]
        return has, same[0] if len(same) == 1 else f"({' || '.join(same)})"
    if len(values) == 1:
        return has, f"{attribute} == {_literal(values[0])}"
    return has, f"{attribute} in [{', '.join(map(_literal, values))}]"


def _literal(value: Value) -> str:
    """A CEL literal: JSON's strings, numbers and booleans are some."""
    return json.dumps(value, ensure_ascii=False)


def _none_for(resource: str, why: str) -> Notice:
    return Notice(resource, f"there is no DeviceClass for it: {why}; write one for the claims, or change the rules")


def _few(devices: Sequence[Published]) -> str:
    names = [f"{each.type.driver} {each.name}" for each in devices[:3]]
    more = len(devices) - len(names)
    return ", ".join([*names, *([f"{more} more"] if more else [])])
