"""Offers of the device plugin front end, within the limits of its API, and the Resource that each child serves. Pure.

They contain everything for the answer to Allocate: `device_plugin.allocation` only merges.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from devherd import cdi
from devherd._native import NaturalKey
from devherd.health.policy import Verdict
from devherd.inventory import DeviceKey, Entry
from devherd.offers.rules import Offer, Offered, Offers, add_mps, problem_of
from devherd.proto import spool_pb2
from devherd.spool import size_of

if TYPE_CHECKING:
    from devherd._native import Edits

EditsOf = Callable[[Entry, str], "Edits | None"]
"""The edits for a device under a resource name; None if the device is no longer known."""

FRONT_END = "device-plugin"
MAX_LIST_BYTES = 3_500_000
"""Well below 4 194 304 bytes, the limit at which the kubelet refuses a device list and ends the stream."""

_PREFERENCES = {
    "aligned": spool_pb2.ALIGNED,
    "packed": spool_pb2.PACKED,
    "distributed": spool_pb2.DISTRIBUTED,
    "none": spool_pb2.NONE,
}


@dataclass(slots=True)
class DevicePluginOffers:
    """Offers sorted by name, the problems of devices that are not offered, and the rule of each device."""

    offers: list[spool_pb2.Offer] = field(default_factory=list)
    problems: list[spool_pb2.Problem] = field(default_factory=list)
    rules: dict[DeviceKey, str] = field(default_factory=dict)
    places: dict[DeviceKey, tuple[int, int]] = field(default_factory=dict)
    """The position of each device: the index of its offer, and its index in that offer."""

    def judged(self, verdicts: Mapping[DeviceKey, Verdict]) -> "DevicePluginOffers":
        """A copy in which devices have the reasons and warnings of these verdicts."""
        judged = [_copy(offer) for offer in self.offers]
        for key, verdict in verdicts.items():
            if key in self.places:
                offer, device = self.places[key]
                judged[offer].devices[device].reasons.extend(verdict.reasons)
                judged[offer].devices[device].warnings.extend(verdict.warnings)
        return replace(self, offers=judged)


def device_plugin_offers(
    offers: Offers, edits_of: EditsOf, mps_root: str, processor_nodes: Callable[[], Collection[int]] = tuple
) -> DevicePluginOffers:
    """The offers as messages, without regard to health.

    `processor_nodes` is called if an offer has devices with known NUMA nodes and others.
    """
    result = DevicePluginOffers(problems=list(offers.problems), rules=offers.rules)
    for offer in offers.offers:
        known = [bool(offered.entry.device.numa_nodes) for offered in offer.devices]
        nodes = processor_nodes() if any(known) and not all(known) else ()
        made = _message(offer, edits_of, mps_root, nodes, result)
        for position, device in enumerate(made.devices):
            result.places[device.vendor, device.card, device.id] = len(result.offers), position
        result.offers.append(made)
    return result


def resource_of(offer: spool_pb2.Offer) -> spool_pb2.Resource:
    """The Resource that an offer's child serves, without a version."""
    resource = spool_pb2.Resource(
        name=offer.name,
        preferred=offer.preferred,
        fail_requests_greater_than_one=offer.fail_requests_greater_than_one,
        processor_nodes=offer.processor_nodes,
    )
    for device in offer.devices:
        resource.devices.add(
            id=device.id,
            shares=device.shares,
            replicas=device.replicas,
            reasons=device.reasons,
            numa_nodes=device.numa_nodes,
            edits=device.edits,
            vendor=device.vendor,
            card=device.card,
            distances=device.distances,
            asks_before_start=device.HasField("pre_start"),
        )
    return resource


def _message(
    offer: Offer, edits_of: EditsOf, mps_root: str, processor_nodes: Collection[int], result: DevicePluginOffers
) -> spool_pb2.Offer:
    message = spool_pb2.Offer(
        name=offer.name,
        vendor=offer.vendor,
        front_end=FRONT_END,
        preferred=_PREFERENCES[offer.preferred],
        fail_requests_greater_than_one=offer.fail_requests_greater_than_one,
        processor_nodes=processor_nodes,
    )
    unique = _unique(offer, result)
    kept = _fitting(unique, len(processor_nodes))
    for offered, shares, replicas in kept:
        edits = _edits(offer, offered.entry, edits_of, result)
        if offered.by_mps:
            add_mps(edits, offer.name, mps_root)
        device = offered.entry.device
        message.devices.add(
            id=device.id,
            numa_nodes=device.numa_nodes,
            edits=edits,
            shares=shares,
            replicas=replicas,
            attributes=device.attributes,
            card=device.card,
            default_resource_name=offered.entry.resource_name,
            vendor=device.vendor,
            distances=device.distances,
            by_mps=offered.by_mps,
            rule=result.rules[offered.entry.key],
            pre_start=_pre_start(offered),
        )
    wanted, fitting = sum(len(offered.ids) for offered in unique), size_of(message)
    if fitting < wanted:
        text = f"{wanted} devices do not fit into one message to the kubelet; the first {fitting} are advertised"
        result.problems.append(_problem(offer, text))
    return message


def _pre_start(offered: Offered) -> spool_pb2.PreStart | None:
    """What must hold before a start; None for nothing. A shared device may be open in other containers."""
    asked = offered.pre_start
    is_shared = bool(offered.replicas or offered.entry.device.shares)
    if not asked.is_on or (is_shared and not (asked.unhealthy or asked.program)):
        return None
    return spool_pb2.PreStart(
        occupied="" if is_shared else asked.occupied or "",
        unhealthy=asked.unhealthy or "",
        program=asked.program or (),
        when=asked.when,
        timeout_seconds=asked.timeout,
    )


def _unique(offer: Offer, result: DevicePluginOffers) -> list[Offered]:
    """The devices in natural order of id, each id once; a device of the last scan wins over one that is remembered.

    A second device of the last scan with the same id becomes a problem.
    """
    unique: list[Offered] = []
    known: set[str] = set()
    for offered in sorted(offer.devices, key=lambda offered: NaturalKey(offered.ids[0])):
        ids = offered.ids
        if known.isdisjoint(ids):
            known.update(ids)
            unique.append(offered)
        elif offered.entry.is_found:
            text = f"the device id `{ids[0]}` is a duplicate; the second device is skipped"
            result.problems.append(_problem(offer, text, ids[0]))
    return unique


def largest_size(device_id: str, numa_nodes: int) -> int:
    """The most bytes that a device has in a list, by the encoding of protocol buffers.

    Tags and lengths (9), the id, "Unhealthy" (9), the topology's tag and length (3), and for each NUMA node, of which
    Linux has up to 1 024, tags, a length and a number of two bytes (5).
    """
    return 21 + len(device_id.encode()) + 5 * numa_nodes


def _fitting(devices: list[Offered], possible_nodes: int) -> list[tuple[Offered, list[str], int]]:
    """The devices that fit into one message, each with its shares and its number of replicas, 0 for none.

    A device whose NUMA nodes are unknown has `possible_nodes`, and those of others.
    """
    possible_nodes += len({node for offered in devices for node in offered.entry.device.numa_nodes})
    kept: list[tuple[Offered, list[str], int]] = []
    size = 0
    for offered in devices:
        numa_nodes = len(offered.entry.device.numa_nodes) or possible_nodes
        for number, device_id in enumerate(offered.ids):
            size += largest_size(device_id, numa_nodes)
            if size > MAX_LIST_BYTES:
                return [*kept, *_cut(offered, number)]
        kept.append((offered, offered.entry.device.shares, offered.replicas))
    return kept


def _cut(offered: Offered, number: int) -> list[tuple[Offered, list[str], int]]:
    """The device with at most this number of its ids, in complete shares; empty if none is left."""
    shares = offered.entry.device.shares
    whole = shares[: number // (offered.replicas or 1)]
    if shares:
        return [(offered, whole, offered.replicas)] if whole else []
    return [(offered, [], number)] if number else []


def _edits(offer: Offer, entry: Entry, edits_of: EditsOf, result: DevicePluginOffers) -> spool_pb2.Edits:
    """The edits of a device, without CDI names that are not valid, for which a runtime would refuse the container."""
    edits = edits_of(entry, offer.name)
    if edits is None:
        return spool_pb2.Edits()
    message = message_of(edits)
    illegal = {name for name in (*edits.cdi_devices, *edits.specs) if not cdi.is_legal(name)}
    if illegal:
        _leave_out(illegal, message)
        names = ", ".join(sorted(illegal))
        result.problems.append(problem_of(entry, f"is allocated without CDI: not a valid CDI name: {names}"))
    return message


def message_of(edits: "Edits") -> spool_pb2.Edits:
    """The edits that the kubelet's API can carry: it has no field for hooks, and CDI specs are files."""
    return spool_pb2.Edits(
        nodes=[
            spool_pb2.Node(host_path=node.host_path, container_path=node.container_path, permissions=node.permissions)
            for node in edits.nodes
        ],
        mounts=[
            spool_pb2.Mount(host_path=mount.host_path, container_path=mount.container_path, read_only=mount.read_only)
            for mount in edits.mounts
        ],
        envs=edits.envs,
        annotations=edits.annotations,
        cdi_devices=edits.cdi_devices,
    )


def _leave_out(illegal: set[str], edits: spool_pb2.Edits) -> None:
    kept = [name for name in edits.cdi_devices if name not in illegal]
    del edits.cdi_devices[:]
    edits.cdi_devices.extend(kept)
    for key, names in [*edits.annotations.items()]:
        others = [name for name in names.split(",") if name not in illegal]
        if others:
            edits.annotations[key] = ",".join(others)
        else:
            del edits.annotations[key]


def _copy(offer: spool_pb2.Offer) -> spool_pb2.Offer:
    copy = spool_pb2.Offer()
    copy.CopyFrom(offer)
    return copy


def _problem(offer: Offer, error: str, device: str = "") -> spool_pb2.Problem:
    return spool_pb2.Problem(vendor=offer.vendor, path=offer.name, error=error, device=device)
