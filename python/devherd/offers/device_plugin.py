"""Offers of the device plugin front end, within the limits of its API, and the Resource that each child serves. Pure.

The messages contain everything for the answer to Allocate: `device_plugin.allocation` only merges them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from devherd import cdi
from devherd._native import NaturalKey
from devherd.health.policy import Verdict
from devherd.inventory import DeviceKey, Entry
from devherd.offers.rules import Offer, Offered, Offers, add_mps, problem_of
from devherd.proto import spool_pb2
from devherd.spool import encoded, ids_of

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


@dataclass(frozen=True, slots=True)
class EncodedDevice:
    """A device, encoded as the only device of an Offer and of a Resource; concatenated encodings are one message."""

    ids: Sequence[str]
    in_offer: bytes
    in_resource: bytes

    def judged(self, verdict: Verdict) -> "EncodedDevice":
        """A copy with the reasons and warnings of this verdict."""
        offer = spool_pb2.Offer.FromString(self.in_offer)
        resource = spool_pb2.Resource.FromString(self.in_resource)
        offer.devices[0].reasons.extend(verdict.reasons)
        offer.devices[0].warnings.extend(verdict.warnings)
        resource.devices[0].reasons.extend(verdict.reasons)
        return EncodedDevice(self.ids, encoded(offer), encoded(resource))


@dataclass(frozen=True, eq=False)
class Made:
    """An encoded offer. An unchanged offer stays the same object, so that readers can skip it."""

    name: str
    head: bytes
    """The offer without its devices."""
    head_of_resource: bytes
    parts: Mapping[DeviceKey, EncodedDevice]
    """The devices, in their order."""
    verdicts: Mapping[DeviceKey, Verdict]
    """The verdict of each device of the offer that has one, by device."""

    @cached_property
    def in_offer(self) -> bytes:
        """The whole offer."""
        return b"".join([self.head, *(part.in_offer for part in self.parts.values())])

    @cached_property
    def in_resource(self) -> bytes:
        """The Resource that its child serves, without a version."""
        return b"".join([self.head_of_resource, *(part.in_resource for part in self.parts.values())])

    @cached_property
    def size(self) -> int:
        """The number of ids."""
        return sum(len(part.ids) for part in self.parts.values())

    @property
    def offer(self) -> spool_pb2.Offer:
        """The whole offer as a message."""
        return spool_pb2.Offer.FromString(self.in_offer)

    @property
    def unhealthy(self) -> list[DeviceKey]:
        """The devices that are Unhealthy."""
        return [key for key, verdict in self.verdicts.items() if verdict.reasons]

    def device(self, key: DeviceKey) -> spool_pb2.Device:
        """One of the devices as a message."""
        return spool_pb2.Offer.FromString(self.parts[key].in_offer).devices[0]

    def judged(self, verdicts: Mapping[DeviceKey, Verdict]) -> "Made":
        """A copy in which devices have the reasons and warnings of these verdicts."""
        judged = {key: self.parts[key].judged(verdict) for key, verdict in verdicts.items()}
        return Made(self.name, self.head, self.head_of_resource, {**self.parts, **judged}, verdicts)

    def without(self, leaving: AbstractSet[DeviceKey]) -> "Made":
        """A copy without these devices; the same object if there are none."""
        if not leaving:
            return self
        parts = {key: part for key, part in self.parts.items() if key not in leaving}
        verdicts = {key: one for key, one in self.verdicts.items() if key not in leaving}
        return Made(self.name, self.head, self.head_of_resource, parts, verdicts)


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


@dataclass(frozen=True, slots=True)
class _KeptPart:
    """A part as last made, and its input."""

    offered: Offered
    shares: Sequence[str]
    replicas: int
    part: EncodedDevice
    problem: spool_pb2.Problem | None


@dataclass(frozen=True, slots=True)
class _Kept:
    """An offer as last made, and its input."""

    offer: Offer
    processor_nodes: Collection[int]
    made: Made
    problems: list[spool_pb2.Problem]
    parts: dict[DeviceKey, _KeptPart]


class Maker:
    """Makes the messages of offers repeatedly; unchanged offers keep their messages.

    `mps_root`, the options of vendors and the data that their devices share must not change during its life.
    """

    def __init__(
        self, edits_of: EditsOf, mps_root: str, processor_nodes: Callable[[], Collection[int]] = tuple
    ) -> None:
        """`processor_nodes` is called if only some devices of an offer have known NUMA nodes."""
        self._edits_of = edits_of
        self._mps_root = mps_root
        self._processor_nodes = processor_nodes
        self._kept: dict[str, _Kept] = {}
        self._more: tuple[bytes, bytes] = b"", b""
        self._more_of: object = None
        """The input from which `_more` was made for the last device."""
        self._judged: dict[str, tuple[Made, Made]] = {}
        """By name: an offer without and with verdicts, as last made."""

    def make(self, offers: Offers) -> DevicePluginOffers:
        """The offers as messages, without regard to health."""
        before, self._kept = self._kept, {}
        result = DevicePluginOffers(problems=list(offers.problems), rules=offers.rules)
        for offer in offers.offers:
            known = [bool(offered.entry.device.numa_nodes) for offered in offer.devices]
            nodes = self._processor_nodes() if any(known) and not all(known) else ()
            kept = before.get(offer.name)
            if kept is None or kept.processor_nodes != nodes or kept.offer != offer:
                kept = self._made(offer, nodes, kept.parts if kept else {})
            self._kept[offer.name] = kept
            result.made.append(kept.made)
            result.problems += kept.problems
        return result

    def judge(self, offers: DevicePluginOffers, verdicts: Mapping[DeviceKey, Verdict]) -> DevicePluginOffers:
        """A copy of the offers in which devices have the reasons and warnings of these verdicts."""
        before, self._judged = self._judged, {}
        judged = []
        for made in offers.made:
            of_it = {key: verdicts[key] for key in verdicts.keys() & made.parts.keys()}
            with_verdicts = made
            if of_it:
                known, last = before.get(made.name, (None, made))
                is_last = known is made and last.verdicts == of_it
                with_verdicts = last if is_last else made.judged(of_it)
                self._judged[made.name] = made, with_verdicts
            judged.append(with_verdicts)
        return replace(offers, made=judged)

    def _made(self, offer: Offer, processor_nodes: Collection[int], before: Mapping[DeviceKey, _KeptPart]) -> _Kept:
        unique, problems = _unique(offer)
        parts: dict[DeviceKey, _KeptPart] = {}
        for offered, shares, replicas in _fitting(unique, len(processor_nodes)):
            key = offered.entry.key
            kept = before.get(key)
            if kept is None or (
                kept.offered is not offered
                and (kept.offered, kept.shares, kept.replicas) != (offered, shares, replicas)
            ):
                kept = self._part(offer, offered, shares, replicas)
            parts[key] = kept
        problems += [kept.problem for kept in parts.values() if kept.problem is not None]
        head = spool_pb2.Offer(
            name=offer.name,
            vendor=offer.vendor,
            front_end=FRONT_END,
            preferred=_PREFERENCES[offer.preferred],
            fail_requests_greater_than_one=offer.fail_requests_greater_than_one,
            processor_nodes=processor_nodes,
        )
        made = Made(
            offer.name,
            encoded(head),
            encoded(_resource_without_devices(head)),
            {key: kept.part for key, kept in parts.items()},
            {},
        )
        wanted = sum(len(offered.ids) for offered in unique)
        if made.size < wanted:
            text = f"{wanted} devices do not fit into one message to the kubelet; the first {made.size} are advertised"
            problems.append(_problem(offer, text))
        return _Kept(offer, processor_nodes, made, problems, parts)

    def _part(self, offer: Offer, offered: Offered, shares: Sequence[str], replicas: int) -> _KeptPart:
        entry, device = offered.entry, offered.entry.device
        edits, problem = _edits(offer, entry, self._edits_of)
        more = entry.resource_name, offer.name, shares, replicas, offered.by_mps, offered.rule, offered.pre_start
        if more != self._more_of:  # as a rule the same for thousands
            self._more, self._more_of = self._more_fields(offer, offered, shares, replicas), more
        is_whole = replicas == offered.replicas and len(shares) == len(device.shares)
        part = EncodedDevice(
            offered.ids if is_whole else ids_of(device.id, replicas, shares),
            device.in_offer(edits, self._more[0]),
            device.in_resource(edits, self._more[1]),
        )
        return _KeptPart(offered, shares, replicas, part, problem)

    def _more_fields(self, offer: Offer, offered: Offered, shares: Sequence[str], replicas: int) -> tuple[bytes, bytes]:
        """What the configuration decides about a device, encoded for both messages."""
        edits = spool_pb2.Edits() if offered.by_mps else None
        if edits is not None:
            add_mps(edits, offer.name, self._mps_root)
        more = spool_pb2.Device(
            edits=edits,
            replicas=replicas,
            default_resource_name=offered.entry.resource_name,
            by_mps=offered.by_mps,
            shares=shares,
            rule=offered.rule,
            pre_start=_pre_start(offered),
        )
        return encoded(more), encoded(_listed(more))


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
    resource = _resource_without_devices(offer)
    resource.devices.extend(map(_listed, offer.devices))
    return resource


def _resource_without_devices(offer: spool_pb2.Offer) -> spool_pb2.Resource:
    return spool_pb2.Resource(
        name=offer.name,
        preferred=offer.preferred,
        fail_requests_greater_than_one=offer.fail_requests_greater_than_one,
        processor_nodes=offer.processor_nodes,
    )


def _listed(device: spool_pb2.Device) -> spool_pb2.ListedDevice:
    return spool_pb2.ListedDevice(
        id=device.id,
        shares=device.shares,
        replicas=device.replicas,
        reasons=device.reasons,
        numa_nodes=device.numa_nodes,
        edits=device.edits if device.HasField("edits") else None,
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
    for offered in sorted(offer.devices, key=lambda offered: NaturalKey(offered.ids[0])):
        ids = offered.ids
        if known.isdisjoint(ids):
            known.update(ids)
            unique.append(offered)
        elif offered.entry.is_found:
            text = f"the device id `{ids[0]}` is a duplicate; the second device is skipped"
            problems.append(_problem(offer, text, ids[0]))
    return unique, problems


def largest_size(device_id: str, numa_nodes: int) -> int:
    """Maximum size of a device in a list in bytes, by the encoding of protocol buffers.

    Tags and lengths (9), the id, "Unhealthy" (9), the topology's tag and length (3), and for each NUMA node, of which
    Linux has up to 1 024, tags, a length and a number of two bytes (5).
    """
    return 21 + len(device_id.encode()) + 5 * numa_nodes


def _fitting(devices: list[Offered], possible_nodes: int) -> list[tuple[Offered, Sequence[str], int]]:
    """The devices that fit into one message, each with its shares and its number of replicas, 0 for none.

    The size of a device with unknown NUMA nodes is computed with `possible_nodes` plus the nodes of the other devices.
    """
    possible_nodes += len({node for offered in devices for node in offered.entry.device.numa_nodes})
    bytes_at_most = sum(
        len(offered.ids) * largest_size(max(offered.ids, key=len), possible_nodes) for offered in devices
    )
    if bytes_at_most <= MAX_LIST_BYTES:
        return [(offered, offered.entry.device.shares, offered.replicas) for offered in devices]
    kept: list[tuple[Offered, Sequence[str], int]] = []
    size = 0
    for offered in devices:
        numa_nodes = len(offered.entry.device.numa_nodes) or possible_nodes
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


def _edits(offer: Offer, entry: Entry, edits_of: EditsOf) -> tuple[bytes, spool_pb2.Problem | None]:
    """The edits of a device, without invalid CDI names, because a runtime would refuse the container."""
    edits = edits_of(entry, offer.name)
    if edits is None:
        return b"", None
    illegal = {name for name in (*edits.cdi_devices, *edits.specs) if not cdi.is_legal(name)}
    if not illegal:
        return edits.encoded(), None
    message = message_of(edits)
    _leave_out(illegal, message)
    names = ", ".join(sorted(illegal))
    return encoded(message), problem_of(entry, f"is allocated without CDI: not a valid CDI name: {names}")


def message_of(edits: "Edits") -> spool_pb2.Edits:
    """The edits that the kubelet's API can carry: it has no field for hooks, and CDI specs are files."""
    return spool_pb2.Edits.FromString(edits.encoded())


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
