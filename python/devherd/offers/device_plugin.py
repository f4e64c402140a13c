"""Offers of the device plugin front end, within the limits of its API, and the Resource that each child serves. Pure.

They contain everything for the answer to Allocate: `device_plugin.allocation` only merges.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from devherd import cdi
from devherd.health.policy import Verdict
from devherd.inventory import DeviceKey, Entry, key_of
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


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """An offer as messages. One that has not changed is the same object: readers need not look at it again."""

    offer: spool_pb2.Offer
    resource: spool_pb2.Resource
    """What its child serves, without a version."""
    places: Mapping[DeviceKey, int]
    """The position of each device in both."""
    size: int
    """The number of ids."""
    verdicts: Mapping[DeviceKey, Verdict] = field(default_factory=dict)
    """Those on its devices: each has the reasons and warnings of its own."""

    @property
    def unhealthy(self) -> list[DeviceKey]:
        """The devices that are Unhealthy."""
        return [key for key, verdict in self.verdicts.items() if verdict.reasons]

    def judged(self, verdicts: Mapping[DeviceKey, Verdict]) -> "Made":
        """A copy in which devices have the reasons and warnings of these verdicts."""
        offer, resource = spool_pb2.Offer(), spool_pb2.Resource()
        offer.CopyFrom(self.offer)
        resource.CopyFrom(self.resource)
        for key, verdict in verdicts.items():
            place = self.places[key]
            offer.devices[place].reasons.extend(verdict.reasons)
            offer.devices[place].warnings.extend(verdict.warnings)
            resource.devices[place].reasons.extend(verdict.reasons)
        return replace(self, offer=offer, resource=resource, verdicts=verdicts)


def made_of(offer: spool_pb2.Offer) -> Made:
    """An offer that is there as a message."""
    places = {key_of(device): place for place, device in enumerate(offer.devices)}
    verdicts = {
        key_of(device): Verdict(tuple(device.reasons), tuple(device.warnings))
        for device in offer.devices
        if device.reasons or device.warnings
    }
    return Made(offer, resource_of(offer), places, size_of(offer), verdicts)


@dataclass(slots=True)
class DevicePluginOffers:
    """Offers sorted by name, the problems of devices that are not offered, and the rule of each device."""

    made: list[Made] = field(default_factory=list)
    problems: list[spool_pb2.Problem] = field(default_factory=list)
    rules: dict[DeviceKey, str] = field(default_factory=dict)

    @property
    def offers(self) -> list[spool_pb2.Offer]:
        """The offers as messages."""
        return [made.offer for made in self.made]


@dataclass(slots=True)
class _Part:
    """A device of an offer, encoded as a part of each message: thousands need not be made again for one of them."""

    offered: Offered
    shares: Sequence[str]
    replicas: int
    in_offer: bytes
    in_resource: bytes
    problem: spool_pb2.Problem | None

    @property
    def size(self) -> int:
        """The number of ids."""
        return (len(self.shares) or 1) * (self.replicas or 1)


@dataclass(slots=True)
class _Kept:
    """An offer as last made, and what it was made of."""

    offer: Offer
    processor_nodes: Collection[int]
    made: Made
    problems: list[spool_pb2.Problem]
    parts: dict[DeviceKey, _Part]


class Maker:
    """Makes the messages of offers again and again; of what has not changed they are kept.

    `mps_root`, the options of vendors and what their devices share must stay the same for its life.
    """

    def __init__(
        self, edits_of: EditsOf, mps_root: str, processor_nodes: Callable[[], Collection[int]] = tuple
    ) -> None:
        """`processor_nodes` is called if an offer has devices with known NUMA nodes and others."""
        self._edits_of = edits_of
        self._mps_root = mps_root
        self._processor_nodes = processor_nodes
        self._kept: dict[str, _Kept] = {}
        self._judged: dict[str, tuple[Made, Made]] = {}
        """The offers with verdicts, and without, as last made."""

    def make(self, offers: Offers) -> DevicePluginOffers:
        """The offers as messages, without regard to health."""
        before, self._kept = self._kept, {}
        result = DevicePluginOffers(problems=list(offers.problems), rules=offers.rules)
        for offer in offers.offers:
            known = [bool(offered.numa_nodes) for offered in offer.devices]
            nodes = self._processor_nodes() if any(known) and not all(known) else ()
            kept = before.get(offer.name)
            if kept is None or kept.processor_nodes != nodes or kept.offer != offer:
                kept = self._made(offer, nodes, kept.parts if kept else {})
            self._kept[offer.name] = kept
            result.made.append(kept.made)
            result.problems += kept.problems
        return result

    def judge(self, offers: DevicePluginOffers, verdicts: Mapping[DeviceKey, Verdict]) -> DevicePluginOffers:
        """The same in which devices have the reasons and warnings of these verdicts."""
        before, self._judged = self._judged, {}
        judged = []
        for made in offers.made:
            of_it = {key: verdicts[key] for key in verdicts.keys() & made.places.keys()}
            with_verdicts = made
            if of_it:
                known, last = before.get(made.offer.name, (None, made))
                is_last = known is made and last.verdicts == of_it
                with_verdicts = last if is_last else made.judged(of_it)
                self._judged[made.offer.name] = made, with_verdicts
            judged.append(with_verdicts)
        return replace(offers, made=judged)

    def _made(self, offer: Offer, processor_nodes: Collection[int], before: Mapping[DeviceKey, _Part]) -> _Kept:
        unique, problems = _unique(offer)
        parts: dict[DeviceKey, _Part] = {}
        for offered, shares, replicas in _fitting(unique, len(processor_nodes)):
            key = offered.entry.key
            part = before.get(key)
            if part is None or (part.offered, part.shares, part.replicas) != (offered, shares, replicas):
                part = self._part(offer, offered, shares, replicas)
            parts[key] = part
        problems += [part.problem for part in parts.values() if part.problem is not None]
        preferred, refuses = _PREFERENCES[offer.preferred], offer.fail_requests_greater_than_one
        head = spool_pb2.Offer(
            name=offer.name,
            vendor=offer.vendor,
            front_end=FRONT_END,
            preferred=preferred,
            fail_requests_greater_than_one=refuses,
            processor_nodes=processor_nodes,
        )
        head_of_resource = spool_pb2.Resource(
            name=offer.name,
            preferred=preferred,
            fail_requests_greater_than_one=refuses,
            processor_nodes=processor_nodes,
        )
        in_offer = b"".join([head.SerializeToString(), *(part.in_offer for part in parts.values())])
        in_resource = b"".join([head_of_resource.SerializeToString(), *(part.in_resource for part in parts.values())])
        wanted = sum(len(offered.ids) for offered in unique)
        fitting = sum(part.size for part in parts.values())
        if fitting < wanted:
            text = f"{wanted} devices do not fit into one message to the kubelet; the first {fitting} are advertised"
            problems.append(_problem(offer, text))
        made = Made(
            spool_pb2.Offer.FromString(in_offer),
            spool_pb2.Resource.FromString(in_resource),
            {key: place for place, key in enumerate(parts)},
            fitting,
        )
        return _Kept(offer, processor_nodes, made, problems, parts)

    def _part(self, offer: Offer, offered: Offered, shares: Sequence[str], replicas: int) -> _Part:
        edits, problem = _edits(offer, offered.entry, self._edits_of)
        if offered.by_mps:
            add_mps(edits, offer.name, self._mps_root)
        device = offered.entry.device
        vendor, card, device_id = offered.entry.key
        message = spool_pb2.Device(
            id=device_id,
            numa_nodes=offered.numa_nodes,
            edits=edits,
            shares=shares,
            replicas=replicas,
            attributes=device.attributes,
            card=card,
            default_resource_name=offered.entry.resource_name,
            vendor=vendor,
            distances=device.distances or None,
            by_mps=offered.by_mps,
            rule=offered.rule,
            pre_start=_pre_start(offered),
        )
        in_offer = spool_pb2.Offer(devices=[message]).SerializeToString(deterministic=True)
        in_resource = spool_pb2.Resource(devices=[_listed(message)]).SerializeToString(deterministic=True)
        return _Part(offered, shares, replicas, in_offer, in_resource, problem)


def device_plugin_offers(
    offers: Offers,
    edits_of: EditsOf,
    mps_root: str,
    processor_nodes: Callable[[], Collection[int]] = tuple,
    verdicts: Mapping[DeviceKey, Verdict] | None = None,
) -> DevicePluginOffers:
    """The offers as messages, made once."""
    maker = Maker(edits_of, mps_root, processor_nodes)
    return maker.judge(maker.make(offers), verdicts or {})


def resource_of(offer: spool_pb2.Offer) -> spool_pb2.Resource:
    """The Resource that an offer's child serves, without a version."""
    return spool_pb2.Resource(
        name=offer.name,
        preferred=offer.preferred,
        fail_requests_greater_than_one=offer.fail_requests_greater_than_one,
        processor_nodes=offer.processor_nodes,
        devices=map(_listed, offer.devices),
    )


def _listed(device: spool_pb2.Device) -> spool_pb2.ListedDevice:
    return spool_pb2.ListedDevice(
        id=device.id,
        shares=device.shares,
        replicas=device.replicas,
        reasons=device.reasons,
        numa_nodes=device.numa_nodes,
        edits=device.edits,
        vendor=device.vendor,
        card=device.card,
        distances=device.distances or None,
        asks_before_start=device.HasField("pre_start"),
    )


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


def _unique(offer: Offer) -> tuple[list[Offered], list[spool_pb2.Problem]]:
    """The devices in natural order of id, each id once; a device of the last scan wins over one that is remembered.

    A second device of the last scan with the same id becomes a problem.
    """
    unique: list[Offered] = []
    problems: list[spool_pb2.Problem] = []
    known: set[str] = set()
    for offered in sorted(offer.devices, key=lambda offered: offered.order):
        ids = offered.ids
        if known.isdisjoint(ids):
            known.update(ids)
            unique.append(offered)
        elif offered.entry.is_found:
            text = f"the device id `{ids[0]}` is a duplicate; the second device is skipped"
            problems.append(_problem(offer, text, ids[0]))
    return unique, problems


def largest_size(device_id: str, numa_nodes: int) -> int:
    """The most bytes that a device has in a list, by the encoding of protocol buffers.

    Tags and lengths (9), the id, "Unhealthy" (9), the topology's tag and length (3), and for each NUMA node, of which
    Linux has up to 1 024, tags, a length and a number of two bytes (5).
    """
    return 21 + len(device_id.encode()) + 5 * numa_nodes


def _fitting(devices: list[Offered], possible_nodes: int) -> list[tuple[Offered, Sequence[str], int]]:
    """The devices that fit into one message, each with its shares and its number of replicas, 0 for none.

    A device whose NUMA nodes are unknown has `possible_nodes`, and those of others.
    """
    possible_nodes += len({node for offered in devices for node in offered.numa_nodes})
    bytes_at_most = sum(len(offered.ids) * largest_size(offered.longest, possible_nodes) for offered in devices)
    if bytes_at_most <= MAX_LIST_BYTES:
        return [(offered, offered.entry.device.shares, offered.replicas) for offered in devices]
    kept: list[tuple[Offered, Sequence[str], int]] = []
    size = 0
    for offered in devices:
        numa_nodes = len(offered.numa_nodes) or possible_nodes
        for number, device_id in enumerate(offered.ids):
            size += largest_size(device_id, numa_nodes)
            if size > MAX_LIST_BYTES:
                return [*kept, *_cut(offered, number)]
        kept.append((offered, offered.entry.device.shares, offered.replicas))
    return kept


def _cut(offered: Offered, number: int) -> list[tuple[Offered, Sequence[str], int]]:
    """The device with at most this number of its ids, in complete shares; empty if none is left."""
    shares = offered.entry.device.shares
    whole = shares[: number // (offered.replicas or 1)]
    if shares:
        return [(offered, whole, offered.replicas)] if whole else []
    return [(offered, [], number)] if number else []


def _edits(offer: Offer, entry: Entry, edits_of: EditsOf) -> tuple[spool_pb2.Edits, spool_pb2.Problem | None]:
    """The edits of a device, without CDI names that are not valid, for which a runtime would refuse the container."""
    edits = edits_of(entry, offer.name)
    if edits is None:
        return spool_pb2.Edits(), None
    message = message_of(edits)
    illegal = {name for name in (*edits.cdi_devices, *edits.specs) if not cdi.is_legal(name)}
    if not illegal:
        return message, None
    _leave_out(illegal, message)
    names = ", ".join(sorted(illegal))
    return message, problem_of(entry, f"is allocated without CDI: not a valid CDI name: {names}")


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
        envs=edits.envs or None,
        annotations=edits.annotations or None,
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


def _problem(offer: Offer, error: str, device: str = "") -> spool_pb2.Problem:
    return spool_pb2.Problem(vendor=offer.vendor, path=offer.name, error=error, device=device)
