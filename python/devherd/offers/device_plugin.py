"""Offers as resource children read them: the lists and answers for the kubelet, within the limits of its API. Pure.

The answer to Allocate is made of this alone: `device_plugin.allocation` only merges.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from devherd._native import NaturalKey
from devherd.cdi import spec
from devherd.health.policy import Verdict
from devherd.inventory import DeviceKey, Entry
from devherd.offers import sharing
from devherd.offers.rules import Offer, Offered, Offers, problem_of
from devherd.proto import spool_pb2
from devherd.spool.listing import ids_of

if TYPE_CHECKING:
    from devherd._native import Edits

EditsOf = Callable[[Entry, str], "Edits | None"]
"""What a container gets for a device under a resource name; None if no longer known."""

MAX_LIST_BYTES = 3_500_000
"""The kubelet refuses a device list of more than 4 194 304 bytes and ends the stream; stay well below."""

_PREFERENCES = {
    "aligned": spool_pb2.ALIGNED,
    "packed": spool_pb2.PACKED,
    "distributed": spool_pb2.DISTRIBUTED,
    "none": spool_pb2.NONE,
}


@dataclass(slots=True)
class Resources:
    """Resources sorted by name, what could not be advertised, and which rule each device met."""

    resources: list[spool_pb2.Resource] = field(default_factory=list)
    problems: list[spool_pb2.Problem] = field(default_factory=list)
    rules: dict[DeviceKey, str] = field(default_factory=dict)
    places: dict[DeviceKey, tuple[int, int]] = field(default_factory=dict)
    """The position of each device: the index of its resource, its index in it."""

    def judged(self, verdicts: Mapping[DeviceKey, Verdict]) -> "Resources":
        """The same, with copies of the resources that have the reasons and warnings of devices."""
        judged = [_copy(resource) for resource in self.resources]
        for key, verdict in verdicts.items():
            if key in self.places:
                resource, device = self.places[key]
                judged[resource].devices[device].reasons.extend(verdict.reasons)
                judged[resource].devices[device].warnings.extend(verdict.warnings)
        return replace(self, resources=judged)


def resources(offers: Offers, edits_of: EditsOf, mps_root: str) -> Resources:
    """The offers as files, whatever the health of their devices."""
    result = Resources(problems=list(offers.problems), rules=offers.rules)
    for offer in offers.offers:
        made = _resource(offer, edits_of, mps_root, result)
        for position, device in enumerate(made.devices):
            result.places[device.vendor, device.card, device.id] = len(result.resources), position
        result.resources.append(made)
    return result


def _resource(offer: Offer, edits_of: EditsOf, mps_root: str, result: Resources) -> spool_pb2.Resource:
    resource = spool_pb2.Resource(
        name=offer.name,
        vendor=offer.vendor,
        preferred=_PREFERENCES[offer.preferred],
        fail_requests_greater_than_one=offer.fail_requests_greater_than_one,
    )
    unique = _unique(offer, result)
    kept = _fitting(unique)
    for offered, replicas in kept:
        edits = _edits(offer, offered.entry, edits_of, result)
        if offered.by_mps:
            sharing.add_mps(edits, offer.name, mps_root)
        device = offered.entry.device
        resource.devices.add(
            id=device.id,
            numa_nodes=device.numa_nodes,
            edits=edits,
            replicas=replicas,
            attributes=device.attributes,
            card=device.card,
            default_resource_name=offered.entry.resource_name,
            vendor=device.vendor,
            distances=device.distances,
        )
    wanted, fitting = (sum(replicas or 1 for replicas in counts) for counts in _replicas(unique, kept))
    if fitting < wanted:
        text = f"{wanted} devices do not fit into one message to the kubelet; the first {fitting} are advertised"
        result.problems.append(_problem(offer, text))
    return resource


def _replicas(unique: list[Offered], kept: list[tuple[Offered, int]]) -> tuple[list[int], list[int]]:
    return [offered.replicas for offered in unique], [replicas for _, replicas in kept]


def _unique(offer: Offer, result: Resources) -> list[Offered]:
    """In natural order of id, each id once: what the last scan found, before what is only remembered by that id."""
    unique: list[Offered] = []
    known: set[str] = set()
    for offered in sorted(
        offer.devices, key=lambda offered: NaturalKey(ids_of(offered.device_id, offered.replicas)[0])
    ):
        ids = ids_of(offered.device_id, offered.replicas)
        if known.isdisjoint(ids):
            known.update(ids)
            unique.append(offered)
        elif offered.entry.is_found:
            text = f"the device id `{ids[0]}` is a duplicate; the second device is skipped"
            result.problems.append(_problem(offer, text, ids[0]))
    return unique


def _fitting(devices: list[Offered]) -> list[tuple[Offered, int]]:
    """The devices that fit into one message, and how many replicas of each; 0 for one that is not shared."""
    kept: list[tuple[Offered, int]] = []
    size = 0
    for offered in devices:
        numa_nodes = len(offered.entry.device.numa_nodes)
        for number, device_id in enumerate(ids_of(offered.device_id, offered.replicas)):
            # Tags and lengths (8), the id, "Unhealthy" (9), and up to 14 bytes for each NUMA node.
            size += 17 + len(device_id.encode()) + 14 * numa_nodes
            if size > MAX_LIST_BYTES:
                return [*kept, (offered, number)] if number else kept
        kept.append((offered, offered.replicas))
    return kept


def _edits(offer: Offer, entry: Entry, edits_of: EditsOf, result: Resources) -> spool_pb2.Edits:
    """What a container gets; names that are not valid are left out: a runtime would refuse the container."""
    edits = edits_of(entry, offer.name)
    if edits is None:
        return spool_pb2.Edits()
    message = message_of(edits)
    illegal = {name for name in (*edits.cdi_devices, *edits.specs) if not spec.is_legal(name)}
    if illegal:
        _leave_out(illegal, message)
        names = ", ".join(sorted(illegal))
        result.problems.append(problem_of(entry, f"is allocated without CDI: not a valid CDI name: {names}"))
    return message


def message_of(edits: "Edits") -> spool_pb2.Edits:
    """What the kubelet's API can carry. It has no field for hooks, and specs are files of their own."""
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


def _copy(resource: spool_pb2.Resource) -> spool_pb2.Resource:
    copy = spool_pb2.Resource()
    copy.CopyFrom(resource)
    return copy


def _problem(offer: Offer, error: str, device: str = "") -> spool_pb2.Problem:
    return spool_pb2.Problem(vendor=offer.vendor, path=offer.name, error=error, device=device)
