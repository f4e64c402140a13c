"""The families of /metrics about devices: how many there are, and the series of each.

A device's lines are cached between scrapes, by its bytes in the offer: few of 10 000 devices change in between.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar, cast

from devherd.config.sections import DeviceMetrics
from devherd.exporter import declarations
from devherd.exporter.exposition import Family
from devherd.instance.inventory_json import model_of
from devherd.instance.read import InstanceState
from devherd.inventory import Allocations, DeviceKey, key_of
from devherd.proto import health_pb2, spool_pb2
from devherd.spool import HEALTHY, UNHEALTHY, ids_of

_healthy, _info, _reason, _warning, _held_elsewhere, _open_processes = (
    kind.line()
    for kind in (
        declarations.DEVICE_HEALTHY,
        declarations.DEVICE_INFO,
        declarations.DEVICE_UNHEALTHY_REASON,
        declarations.DEVICE_WARNING,
        declarations.DEVICE_HELD_ELSEWHERE,
        declarations.DEVICE_OPEN_PROCESSES,
    )
)

Value = TypeVar("Value")


class PlainDevice:
    """A device as plain values: a message would keep the memory of the whole file that it was read from."""

    def __init__(
        self, resource_name: str, resource_vendor: str, of_devices: DeviceMetrics, device: spool_pb2.Device
    ) -> None:
        attributes, reasons = device.attributes, list(device.reasons)
        self.id = device.id
        self.key = key_of(device)
        self.health = UNHEALTHY if reasons else HEALTHY
        self.pci_address = attributes.get("pci_address", "")
        self.ibdev = attributes.get("ibdev")
        self.ids = tuple(ids_of(self.id, device.replicas, device.shares))
        """The ids in the kubelet's list: the device's own, or the ids of its shares and replicas."""
        series = [(resource_name, each) for each in (self.ids if of_devices == "all" else (self.id,))]
        self.series = tuple(series)
        """The resource name and the id of each series: the device's own id, or with the setting `all` each of `ids`."""
        self.healthy = self.info = self.reasons = self.warnings = ""
        """Lines of /metrics; empty if the setting omits them."""
        if of_devices in ("all", "physical"):
            vendor = device.vendor or resource_vendor
            facts = vendor, model_of(vendor, attributes), self.pci_address, ",".join(map(str, device.numa_nodes))
            self.healthy = "".join([_healthy(each, not reasons) for each in series])
            self.info = "".join([_info((*each, *facts), 1) for each in series])
        if of_devices != "none":
            self.reasons = "".join([_reason((*each, word), 1) for each in series for word in reasons])
            self.warnings = "".join([_warning((*each, word), 1) for each in series for word in device.warnings])


Resources = Sequence[tuple[str, Sequence[PlainDevice]]]
"""Pairs of a resource's name and its devices."""


class Kept:
    """A cache of the last scrape's results and their inputs, by name: most devices are the same at the next scrape."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[object, object]] = {}
        self._shown: dict[tuple[str, str, DeviceMetrics], dict[bytes, PlainDevice]] = {}

    def of(self, name: str, herd: InstanceState, more: object, make: Callable[[], Value]) -> Value:
        """The cached result if the version of the resources and `more` are unchanged; otherwise the result of `make`.

        `more`: all other inputs of `make`.
        """
        made_from = herd.version, more
        made = self._made.get(name)
        if made is None or herd.version is None or made[0] != made_from:
            made = self._made[name] = made_from, make()
        return cast("Value", made[1])

    def resources(self, herd: InstanceState, of_devices: DeviceMetrics) -> Resources:
        """The devices of all resources, with their lines under this setting."""
        return self.of("resources", herd, of_devices, lambda: self._resources(herd, of_devices))

    def _resources(self, herd: InstanceState, of_devices: DeviceMetrics) -> Resources:
        before, self._shown = self._shown, {}
        found = []
        for resource in herd.resources:
            place = resource.name, resource.vendor, of_devices
            known, made = before.get(place, {}), self._shown.setdefault(place, {})
            devices = []
            for device in resource.devices:
                content = device.SerializeToString()
                shown = made[content] = known.get(content) or PlainDevice(*place, device)
                devices.append(shown)
            found.append((resource.name, devices))
        return found


def device_families(
    herd: InstanceState,
    allocations: Allocations | None,
    of_devices: DeviceMetrics = "physical",
    kept: Kept | None = None,
) -> Iterator[Family]:
    """Number of devices by resource, and the series of single devices that `of_devices` selects."""
    kept = kept or Kept()
    resources = kept.resources(herd, of_devices)
    yield kept.of("count", herd, of_devices, lambda: count(resources))
    given = of_devices, allocations
    yield kept.of("allocated", herd, given, lambda: count_allocated(resources, allocations))
    yield missing(herd)
    if of_devices in ("all", "physical"):
        yield from kept.of("facts", herd, of_devices, lambda: facts(resources))
        yield kept.of("holders", herd, given, lambda: allocated(resources, allocations))
        yield from kept.of("counts", herd, (of_devices, herd.counts), lambda: counts(herd.counts, resources))
    if of_devices != "none":
        ledger, is_elsewhere = herd.ledger, of_devices == "faults"
        yield from kept.of("held", herd, (of_devices, ledger), lambda: held(ledger, resources, only=is_elsewhere))
        yield from kept.of("trouble", herd, of_devices, lambda: trouble(resources))
        standing = _standing(herd)
        yield kept.of("findings", herd, (of_devices, standing), lambda: findings(standing, resources))


def count(resources: Resources) -> Family:
    """Devices by resource and health, as the kubelet counts them."""
    family = declarations.DEVICES.family()
    for name, devices in resources:
        numbers = {HEALTHY: 0, UNHEALTHY: 0}
        for device in devices:
            numbers[device.health] += len(device.ids)
        for health, number in numbers.items():
            family.add_metric((name, health), number)
    return family


def count_allocated(resources: Resources, allocations: Allocations | None) -> Family:
    """Devices that containers hold, as the kubelet counts them; no series while it does not answer."""
    family, given = declarations.DEVICES_ALLOCATED.family(), allocations or {}
    for name, devices in resources if allocations is not None else ():
        numbers = {HEALTHY: 0, UNHEALTHY: 0}
        for device in devices if given else ():
            numbers[device.health] += sum((name, each) in given for each in device.ids)
        for health, number in numbers.items():
            family.add_metric((name, health), number)
    return family


def facts(resources: Resources) -> Sequence[Family]:
    """Health and facts of each device."""
    devices = [each for _, of_resource in resources for each in of_resource]
    return (
        declarations.DEVICE_HEALTHY.family_of(each.healthy for each in devices),
        declarations.DEVICE_INFO.family_of(each.info for each in devices),
    )


def missing(herd: InstanceState) -> Family:
    """The lost devices, including devices that the kubelet's lists no longer have."""
    family = declarations.DEVICE_MISSING.family()
    for one in herd.lost:
        place = (one.pci_address, one.slot, one.serial)
        family.add_metric((one.resource_name, one.device, one.vendor, one.model, *place), 1)
    return family


def trouble(resources: Resources) -> Sequence[Family]:
    """The reasons and the warnings of devices."""
    devices = [each for _, of_resource in resources for each in of_resource if each.reasons or each.warnings]
    return (
        declarations.DEVICE_UNHEALTHY_REASON.family_of(each.reasons for each in devices),
        declarations.DEVICE_WARNING.family_of(each.warnings for each in devices),
    )


Standing = Mapping[DeviceKey, Sequence[tuple[str, str, str]]]
"""Source, reason and action of each finding that counts, sorted, by device."""


def _standing(herd: InstanceState) -> Standing:
    return {
        (verdict.vendor, verdict.card, verdict.device): sorted(
            {
                (one.source, one.reason, health_pb2.Action.Name(one.action).lower())
                for one in verdict.held
                if not (one.is_over or one.is_waiting)
            }
        )
        for verdict in herd.verdicts
    }


def findings(standing: Standing, resources: Resources) -> Family:
    """The findings that count for each device, with source and action; includes warnings and ignored findings."""
    family = declarations.DEVICE_FINDING.family()
    for _, devices in resources if standing else ():
        for device in devices:
            for finding in standing.get(device.key, ()):
                for each in device.series:
                    family.add_metric((*each, *finding), 1)
    return family


def allocated(resources: Resources, allocations: Allocations | None) -> Family:
    """The containers that hold each device; no series while the kubelet does not answer."""
    family = declarations.DEVICE_ALLOCATED.family()
    given = allocations or {}
    for name, devices in resources if given else ():
        for device in devices:
            for each in device.series:
                ids = device.ids if len(device.series) == 1 else each[1:]
                holders = {
                    (holder["namespace"], holder["pod"], holder["container"])
                    for device_id in ids
                    for holder in given.get((name, device_id), ())
                }
                for holder in sorted(holders):
                    family.add_metric((*each, *holder), 1)
    return family


def held(ledger: spool_pb2.Ledger | None, resources: Resources, *, only: bool = False) -> Sequence[Family]:
    """By the ledger: whether each device is open elsewhere, and in how many processes; no series without a ledger.

    With `only`: only the devices that are open elsewhere.
    """
    if ledger is None:
        return ()
    known = {(one.vendor, one.card, one.device): one for one in ledger.devices}
    seen = [
        (each, known.get(device.key, spool_pb2.LedgerDevice()))
        for _, devices in resources
        for device in devices
        for each in device.series
    ]
    elsewhere = declarations.DEVICE_HELD_ELSEWHERE.family_of(
        _held_elsewhere(each, one.is_held_elsewhere) for each, one in seen if one.is_held_elsewhere or not only
    )
    processes = declarations.DEVICE_OPEN_PROCESSES.family_of(
        _open_processes(each, len({process.pid for process in one.processes})) for each, one in seen
    )
    return (elsewhere,) if only else (elsewhere, processes)


def counts(found: Iterable[health_pb2.Count], resources: Resources) -> Sequence[Family]:
    """The sources' counts for the card of each device, never of its replicas; families without samples are omitted."""
    by_address: dict[str, dict[tuple[str, ...], health_pb2.Count]] = {}
    for each in found:  # once, even if devices of two vendors share a function
        by_address.setdefault(each.pci_address, {})[each.name, each.ibdev, each.part, each.kind] = each
    families = {name: kind.family() for name, kind in declarations.DEVICE_COUNTS.items()}
    for resource_name, devices in resources if by_address else ():
        for device in devices:
            for one in by_address.get(device.pci_address, {}).values():
                if one.name in families and one.ibdev in ("", device.ibdev):
                    own = declarations.DEVICE_COUNTS[one.name].labels[len(declarations.DEVICE) :]
                    values = (one.kind if label == "kind" else one.part for label in own)
                    families[one.name].add_metric((resource_name, device.id, *values), one.number)
    return [family for family in families.values() if family.samples]
