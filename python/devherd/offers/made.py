"""Encoded offers, alike for all front ends: devices with facts, verdict, rule, sharing, and edits by one way. Pure.

A front end chooses the devices of an offer. The device plugin makes of it what it serves (`device_plugin`); for DRA
`MadeOffers` are all: its processes make devices by driver of them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from devherd import cdi
from devherd._native import NaturalKey
from devherd.health.policy import Verdict
from devherd.inventory import DeviceKey, Entry
from devherd.offers.rules import Offer, Offered, Offers, problem_of
from devherd.proto import spool_pb2
from devherd.spool import DRA_FRONT_END, encoded, ids_of

if TYPE_CHECKING:
    from devherd._native import Edits

_PREFERENCES = {
    "aligned": spool_pb2.ALIGNED,
    "packed": spool_pb2.PACKED,
    "distributed": spool_pb2.DISTRIBUTED,
    "none": spool_pb2.NONE,
}


class EditsOf(Protocol):
    """Returns the edits for a device under a resource name by one way; None if the device is no longer known."""

    def __call__(self, entry: Entry, resource_name: str, *, by_mps: bool = False) -> "Edits | None":
        """`by_mps`: containers share the device through NVIDIA's Multi-Process Service."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A device that a front end offers."""

    offered: Offered
    shares: Sequence[str]
    """The ids under which its vendor shares it, as far as they are offered; empty if it is not shared."""
    replicas: int
    """How many containers may share each of its ids; 0 if it is not shared."""

    __hash__ = None  # type: ignore[assignment]

    @property
    def ids(self) -> list[str]:
        """The ids under which it is offered."""
        return ids_of(self.offered.entry.device.id, self.replicas, self.shares)

    def is_like(self, other: "Chosen") -> bool:
        """Whether both are the same device, offered alike: a front end may offer fewer shares of it than before."""
        is_same = self.offered is other.offered or self.offered == other.offered
        return is_same and (self.shares, self.replicas) == (other.shares, other.replicas)


@dataclass(frozen=True, slots=True)
class MadeDevice:
    """A device of an offer, and what was made of it. An unchanged device stays the same object."""

    chosen: Chosen
    ids: Sequence[str]
    """As of `Chosen`."""
    edits: bytes
    in_offer: bytes
    """Encoded as the only device of an Offer; concatenated encodings are one message."""
    problem: spool_pb2.Problem | None


@dataclass(frozen=True, eq=False)
class MadeOffer:
    """An encoded offer. An unchanged offer stays the same object, so that readers can skip it."""

    name: str
    head: bytes
    """The offer without its devices."""
    devices: Mapping[DeviceKey, bytes]
    """The devices in their order, each encoded as the only device of an Offer."""
    ids: Mapping[DeviceKey, Sequence[str]]
    """The ids of each device."""
    verdicts: Mapping[DeviceKey, Verdict] = field(default_factory=dict)
    """The verdict of each device of the offer that has one, by device."""

    @cached_property
    def size(self) -> int:
        """The number of ids."""
        return sum(map(len, self.ids.values()))

    @cached_property
    def content(self) -> bytes:
        """The whole offer."""
        return b"".join([self.head, *self.devices.values()])

    @property
    def message(self) -> spool_pb2.Offer:
        """The whole offer as a message."""
        return spool_pb2.Offer.FromString(self.content)

    @property
    def unhealthy(self) -> list[DeviceKey]:
        """The devices that are Unhealthy."""
        return [key for key, verdict in self.verdicts.items() if verdict.reasons]

    def device(self, key: DeviceKey) -> spool_pb2.Device:
        """One of the devices as a message."""
        return spool_pb2.Offer.FromString(self.devices[key]).devices[0]

    def judged(self, verdicts: Mapping[DeviceKey, Verdict]) -> "MadeOffer":
        """A copy in which devices have the reasons and warnings of these verdicts."""
        judged = {key: _judged(self.devices[key], verdict) for key, verdict in verdicts.items()}
        return replace(self, devices={**self.devices, **judged}, verdicts=verdicts)

    def without(self, leaving: AbstractSet[DeviceKey]) -> "MadeOffer":
        """A copy without these devices."""
        devices = {key: device for key, device in self.devices.items() if key not in leaving}
        ids = {key: self.ids[key] for key in devices}
        verdicts = {key: one for key, one in self.verdicts.items() if key not in leaving}
        return replace(self, devices=devices, ids=ids, verdicts=verdicts)


class Judgeable(Protocol):
    """An offer in some form."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def devices(self) -> Mapping[DeviceKey, bytes]:
        """Its devices."""

    @property
    def verdicts(self) -> Mapping[DeviceKey, Verdict]:
        """The verdict of each device that has one."""

    def judged(self, verdicts: Mapping[DeviceKey, Verdict]) -> Self:
        """A copy in which devices have the reasons and warnings of these verdicts."""


Form = TypeVar("Form", bound=Judgeable)


class Judge(Generic[Form]):
    """Applies verdicts to offers again and again; one that is judged as before is the same object."""

    def __init__(self) -> None:
        self._judged: dict[str, tuple[Form, Form]] = {}
        """By name: an offer without and with verdicts, as last made."""

    def judge(self, offers: Iterable[Form], verdicts: Mapping[DeviceKey, Verdict]) -> list[Form]:
        """The offers, of which devices have the reasons and warnings of these verdicts."""
        before, self._judged = self._judged, {}
        judged = []
        for offer in offers:
            of_it = {key: verdicts[key] for key in verdicts.keys() & offer.devices.keys()}
            with_verdicts = offer
            if of_it:
                known, last = before.get(offer.name, (None, offer))
                with_verdicts = last if known is offer and last.verdicts == of_it else offer.judged(of_it)
                self._judged[offer.name] = offer, with_verdicts
            judged.append(with_verdicts)
        return judged


def _judged(device: bytes, verdict: Verdict) -> bytes:
    offer = spool_pb2.Offer.FromString(device)
    offer.devices[0].reasons.extend(verdict.reasons)
    offer.devices[0].warnings.extend(verdict.warnings)
    return encoded(offer)


class OfferMaker:
    """Makes the offers of one front end; what a device is made of must not change otherwise during its life."""

    def __init__(self, front_end: str, edits_of: EditsOf) -> None:
        """`front_end`: its name in `Offer.front_end`. `edits_of`: the edits by its way."""
        self._front_end, self._edits_of = front_end, edits_of
        self._more = b""
        """What the configuration decides about the last device, encoded."""
        self._more_of: object = None
        """The input from which `_more` was made."""

    def head(self, offer: Offer, processor_nodes: Collection[int] = ()) -> spool_pb2.Offer:
        """The offer without its devices. `processor_nodes`: NUMA nodes with processors, if a front end needs them."""
        return spool_pb2.Offer(
            name=offer.name,
            vendor=offer.vendor,
            front_end=self._front_end,
            preferred=_PREFERENCES[offer.preferred],
            fail_requests_greater_than_one=offer.fail_requests_greater_than_one,
            processor_nodes=processor_nodes,
        )

    def devices(
        self, offer: Offer, chosen: Iterable[Chosen], before: Mapping[DeviceKey, MadeDevice]
    ) -> dict[DeviceKey, MadeDevice]:
        """The chosen devices of an offer, in their order. `before`: as last made; an unchanged one is kept."""
        made = {}
        for one in chosen:
            kept = before.get(one.offered.entry.key)
            if kept is None or not kept.chosen.is_like(one):
                kept = self._device(offer, one)
            made[one.offered.entry.key] = kept
        return made

    def _device(self, offer: Offer, chosen: Chosen) -> MadeDevice:
        offered, entry = chosen.offered, chosen.offered.entry
        edits, problem = _edits(offer, offered, self._edits_of)
        more = entry.resource_name, chosen.shares, chosen.replicas, offered.by_mps, offered.rule, offered.pre_start
        if more != self._more_of:  # as a rule the same for thousands
            self._more, self._more_of = _more(chosen), more
        return MadeDevice(chosen, chosen.ids, edits, entry.device.in_offer(edits, self._more), problem)


@dataclass(frozen=True, slots=True)
class MadeOffers:
    """Offers sorted by name, and the problems of devices that are not offered, or not as they should be."""

    offers: Sequence[MadeOffer]
    problems: Sequence[spool_pb2.Problem]

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class _Kept:
    """An offer as last made, and its input."""

    offer: Offer
    made: MadeOffer
    devices: Mapping[DeviceKey, MadeDevice]


class DraOffers:
    """Makes the offers of DRA again and again: every device that the rules offer, each as a whole, without limits.

    The options of vendors and the data that their devices share must not change during its life.
    """

    def __init__(self, edits_of: EditsOf) -> None:
        """`edits_of`: the edits by CDI."""
        self._maker = OfferMaker(DRA_FRONT_END, edits_of)
        self._kept: dict[str, _Kept] = {}

    def make(self, offers: Offers) -> MadeOffers:
        """The offers, without regard to health. An unchanged one is the same object as before."""
        before, self._kept = self._kept, {}
        for offer in offers.offers:
            kept = before.get(offer.name)
            self._kept[offer.name] = kept if kept and kept.offer == offer else self._made(offer, kept)
        problems = [device.problem for kept in self._kept.values() for device in kept.devices.values()]
        return MadeOffers(
            [kept.made for kept in self._kept.values()], [*offers.problems, *(one for one in problems if one)]
        )

    def _made(self, offer: Offer, before: _Kept | None) -> _Kept:
        in_order = sorted(offer.devices, key=lambda one: NaturalKey(one.entry.device.id))
        chosen = [Chosen(one, one.entry.device.shares, one.replicas) for one in in_order]
        devices = self._maker.devices(offer, chosen, before.devices if before else {})
        made = MadeOffer(
            offer.name,
            encoded(self._maker.head(offer)),
            {key: device.in_offer for key, device in devices.items()},
            {key: device.ids for key, device in devices.items()},
        )
        return _Kept(offer, made, devices)


def _more(chosen: Chosen) -> bytes:
    """What the configuration decides about a device."""
    offered = chosen.offered
    return encoded(
        spool_pb2.Device(
            replicas=chosen.replicas,
            default_resource_name=offered.entry.resource_name,
            by_mps=offered.by_mps,
            shares=chosen.shares,
            rule=offered.rule,
            pre_start=pre_start(offered),
        )
    )


def pre_start(offered: Offered) -> spool_pb2.PreStart | None:
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


def _edits(offer: Offer, offered: Offered, edits_of: EditsOf) -> tuple[bytes, spool_pb2.Problem | None]:
    """The edits of a device, without invalid CDI names, because a runtime would refuse the container."""
    entry = offered.entry
    edits = edits_of(entry, offer.name, by_mps=True) if offered.by_mps else edits_of(entry, offer.name)
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
