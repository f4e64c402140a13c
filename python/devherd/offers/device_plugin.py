"""What the device plugin front end serves: within the limits of the kubelet's API, the Resource of each child. Pure.

A Resource contains everything for the answer to Allocate: `device_plugin.allocation` only merges it.
"""

from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property

from devherd._native import NaturalKey
from devherd.health.policy import Verdict
from devherd.inventory import DeviceKey
from devherd.offers.made import Chosen, EditsOf, Judge, MadeDevice, MadeOffer, OfferMaker, pre_start
from devherd.offers.rules import Offer, Offered, Offers
from devherd.proto import spool_pb2
from devherd.spool import DEVICE_PLUGIN_FRONT_END, encoded

MAX_LIST_BYTES = 3_500_000
"""Well below 4 194 304 bytes, the limit at which the kubelet refuses a device list and ends the stream."""


@dataclass(frozen=True, eq=False)
class ServedOffer:
    """An offer, and the Resource that its child serves. An unchanged one stays the same object."""

    offer: MadeOffer
    head: bytes
    """The Resource without its devices."""
    devices: Mapping[DeviceKey, bytes]
    """The devices in their order, each encoded as the only device of a Resource; concatenated they are one message."""

    @property
    def name(self) -> str:
        """The name of the resource."""
        return self.offer.name

    @property
    def verdicts(self) -> Mapping[DeviceKey, Verdict]:
        """The verdict of each device of the offer that has one, by device."""
        return self.offer.verdicts

    @cached_property
    def in_resource(self) -> bytes:
        """The Resource, without a version."""
        return b"".join([self.head, *self.devices.values()])

    def judged(self, verdicts: Mapping[DeviceKey, Verdict]) -> "ServedOffer":
        """A copy in which devices have the reasons and warnings of these verdicts."""
        judged = {key: _with_reasons(self.devices[key], verdict) for key, verdict in verdicts.items()}
        return ServedOffer(self.offer.judged(verdicts), self.head, {**self.devices, **judged})

    def without(self, leaving: AbstractSet[DeviceKey]) -> "ServedOffer":
        """A copy without these devices; the same object if there are none."""
        if not leaving:
            return self
        devices = {key: device for key, device in self.devices.items() if key not in leaving}
        return ServedOffer(self.offer.without(leaving), self.head, devices)


def _with_reasons(device: bytes, verdict: Verdict) -> bytes:
    resource = spool_pb2.Resource.FromString(device)
    resource.devices[0].reasons.extend(verdict.reasons)
    return encoded(resource)


@dataclass(slots=True)
class DevicePluginOffers:
    """Offers sorted by name, the problems of devices that are not offered, and the rule of each device."""

    served: list[ServedOffer] = field(default_factory=list)
    problems: list[spool_pb2.Problem] = field(default_factory=list)
    rules: dict[DeviceKey, str] = field(default_factory=dict)

    @property
    def offers(self) -> list[spool_pb2.Offer]:
        """The offers as messages."""
        return [served.offer.message for served in self.served]


@dataclass(frozen=True, slots=True)
class _Kept:
    """An offer as last made, and its input."""

    offer: Offer
    processor_nodes: Collection[int]
    served: ServedOffer
    problems: list[spool_pb2.Problem]
    made: dict[DeviceKey, MadeDevice]


class Maker:
    """Makes the messages of offers repeatedly; unchanged offers keep their messages.

    The options of vendors and the data that their devices share must not change during its life.
    """

    def __init__(self, edits_of: EditsOf, processor_nodes: Callable[[], Collection[int]] = tuple) -> None:
        """`processor_nodes` is called if only some devices of an offer have known NUMA nodes."""
        self._offers = OfferMaker(DEVICE_PLUGIN_FRONT_END, edits_of)
        self._processor_nodes = processor_nodes
        self._kept: dict[str, _Kept] = {}
        self._more: bytes = b""
        self._more_of: object = None
        """The input from which `_more` was made for the last device."""

    def make(self, offers: Offers) -> DevicePluginOffers:
        """The offers as messages, without regard to health."""
        before, self._kept = self._kept, {}
        result = DevicePluginOffers(problems=list(offers.problems), rules=offers.rules)
        for offer in offers.offers:
            known = [bool(offered.entry.device.numa_nodes) for offered in offer.devices]
            nodes = self._processor_nodes() if any(known) and not all(known) else ()
            kept = before.get(offer.name)
            if kept is None or kept.processor_nodes != nodes or kept.offer != offer:
                kept = self._made(offer, nodes, kept)
            self._kept[offer.name] = kept
            result.served.append(kept.served)
            result.problems += kept.problems
        return result

    def _made(self, offer: Offer, processor_nodes: Collection[int], before: _Kept | None) -> _Kept:
        unique, problems = _unique(offer)
        made = self._offers.devices(offer, _fitting(unique, len(processor_nodes)), before.made if before else {})
        problems += [device.problem for device in made.values() if device.problem is not None]
        head = self._offers.head(offer, processor_nodes)
        served = ServedOffer(
            MadeOffer(
                offer.name,
                encoded(head),
                {key: device.in_offer for key, device in made.items()},
                {key: device.ids for key, device in made.items()},
            ),
            encoded(_resource_without_devices(head)),
            {key: self._kept_device(key, device, before) or self._device(device) for key, device in made.items()},
        )
        wanted = sum(len(offered.ids) for offered in unique)
        if (size := served.offer.size) < wanted:
            text = f"{wanted} devices do not fit into one message to the kubelet; the first {size} are advertised"
            problems.append(_problem(offer, text))
        return _Kept(offer, processor_nodes, served, problems, made)

    @staticmethod
    def _kept_device(key: DeviceKey, device: MadeDevice, before: _Kept | None) -> bytes | None:
        return before.served.devices[key] if before is not None and before.made.get(key) is device else None

    def _device(self, device: MadeDevice) -> bytes:
        chosen = device.chosen
        asks = pre_start(chosen.offered) is not None
        more = chosen.shares, chosen.replicas, asks
        if more != self._more_of:  # as a rule the same for thousands
            of_all = spool_pb2.ListedDevice(shares=chosen.shares, replicas=chosen.replicas, asks_before_start=asks)
            self._more, self._more_of = encoded(of_all), more
        return chosen.offered.entry.device.in_resource(device.edits, self._more)


def device_plugin_offers(
    offers: Offers,
    edits_of: EditsOf,
    processor_nodes: Callable[[], Collection[int]] = tuple,
    verdicts: Mapping[DeviceKey, Verdict] | None = None,
) -> DevicePluginOffers:
    """The offers as messages, made once."""
    made = Maker(edits_of, processor_nodes).make(offers)
    return replace(made, served=Judge[ServedOffer]().judge(made.served, verdicts or {}))


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


def _fitting(devices: list[Offered], possible_nodes: int) -> list[Chosen]:
    """The devices that fit into one message.

    The size of a device with unknown NUMA nodes is computed with `possible_nodes` plus the nodes of the other devices.
    """
    possible_nodes += len({node for offered in devices for node in offered.entry.device.numa_nodes})
    bytes_at_most = sum(
        len(offered.ids) * largest_size(max(offered.ids, key=len), possible_nodes) for offered in devices
    )
    if bytes_at_most <= MAX_LIST_BYTES:
        return [_whole(offered) for offered in devices]
    kept: list[Chosen] = []
    size = 0
    for offered in devices:
        numa_nodes = len(offered.entry.device.numa_nodes) or possible_nodes
        for number, device_id in enumerate(offered.ids):
            size += largest_size(device_id, numa_nodes)
            if size > MAX_LIST_BYTES:
                return [*kept, *_cut(offered, number)]
        kept.append(_whole(offered))
    return kept


def _whole(offered: Offered) -> Chosen:
    return Chosen(offered, offered.entry.device.shares, offered.replicas)


def _cut(offered: Offered, number: int) -> list[Chosen]:
    """The device with at most this number of its ids, in complete shares; empty if none is left."""
    shares = offered.entry.device.shares
    whole = shares[: number // (offered.replicas or 1)]
    if shares:
        return [Chosen(offered, whole, offered.replicas)] if whole else []
    return [Chosen(offered, [], number)] if number else []


def _problem(offer: Offer, error: str, device: str = "") -> spool_pb2.Problem:
    return spool_pb2.Problem(vendor=offer.vendor, path=offer.name, error=error, device=device)
