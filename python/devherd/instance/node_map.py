"""The map of a node: NUMA nodes, PCIe roots and switches, the cards in their places, and the links between cards.

`read_paths` reads where the cards are; `node_map` lays out what is offered and what is lost. The status page and
`devherd status --map` draw the same map.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from devherd import spool
from devherd._native import vendors
from devherd.instance.inventory_json import is_ill, model_of
from devherd.instance.read import InstanceState
from devherd.inventory import Allocations, key_of
from devherd.proto import devices_pb2, health_pb2, spool_pb2
from devherd.reasons.registry import GONE
from devherd.settings import Settings
from devherd.spool import ids_of

GOOD, OFF, WARN, LOST, BAD = "good", "off", "warn", "lost", "bad"
"""States of a device: Healthy, cordoned, with a warning, lost, Unhealthy."""
_WORST_FIRST = (BAD, LOST, WARN, OFF, GOOD)
FREE, UNKNOWN = "free", "holder unknown"
NUMA, ROOT, SWITCH, OTHERS = "NUMA node", "PCIe root", "PCIe switch", "other devices"
"""Kinds of branches."""
MOST_CELLS = 16
"""Limit of the cells of a card; a card with more of them has a count."""
_LONGEST_NAME = 12
_NOWHERE = math.inf

_TITLES = {row.name: row.title for row in vendors()}

Paths = Mapping[str, str]
"""Directories of PCI functions below /sys/devices, by address."""


@dataclass(slots=True)
class CardPart:
    """A device on a card; `ids` in the kubelet's list, of which pods hold `held`."""

    resource_name: str
    device_id: str
    state: str
    why: str
    """The reasons or warnings; empty for a Healthy device."""
    ids: int
    held: int
    pods: Sequence[str]


@dataclass(slots=True)
class Card:
    """A card in its place, or the devices of a resource that are on no PCI bus."""

    name: str = ""
    address: str = ""
    """The PCI address; empty without one."""
    model: str = ""
    title: str = ""
    """What the vendor's devices are called: `NVIDIA GPUs`."""
    parts: list[CardPart] = field(default_factory=list)
    knows_holders: bool = True
    """False if the kubelet could not be asked."""

    @property
    def state(self) -> str:
        """The worst state of its parts; LOST only if all are lost."""
        states = {part.state for part in self.parts}
        if LOST in states and len(states) > 1:
            states = (states - {LOST}) | {BAD}
        return next(state for state in _WORST_FIRST if state in states)

    @property
    def size(self) -> int:
        """The number of ids in the kubelet's list."""
        return sum(part.ids for part in self.parts)

    @property
    def held(self) -> int:
        """The number of ids that pods hold."""
        return sum(part.held for part in self.parts)

    @property
    def worst(self) -> CardPart:
        """The first part in the worst state."""
        return min(self.parts, key=lambda part: _WORST_FIRST.index(part.state))

    @property
    def pods(self) -> list[str]:
        """The pods that hold a part of it."""
        return list(dict.fromkeys(pod for part in self.parts for pod in part.pods))

    def cells(self) -> list[tuple[str, bool]]:
        """State and whether a pod holds it, for each id; empty if there are more than MOST_CELLS."""
        if self.size > MOST_CELLS:
            return []
        return [(part.state, number < part.held) for part in self.parts for number in range(part.ids)]

    def health(self) -> str:
        """Its health in words: `Healthy`, `Unhealthy: xid`, `7 Healthy, 1 lost`."""
        found: dict[str, list[CardPart]] = {}
        for part in self.parts:
            found.setdefault(part.state, []).append(part)
        size = self.size
        return ", ".join(_health(state, found[state], size) for state in _WORST_FIRST if state in found)

    def holders(self, most: int = 3) -> str:
        """The pods in words, of which `most` are named: `research/train-0`, `3 of 7 held by a/b, c/d and 2 more`.

        FREE if none holds it and one could get it; empty if none could; UNKNOWN if the kubelet could not be asked.
        """
        if not self.knows_holders:
            return UNKNOWN
        pods = self.pods
        if not self.held:
            return FREE if self.state in {GOOD, WARN} else ""
        more = f" and {len(pods) - most} more" if len(pods) > most else ""
        named = f"{', '.join(pods[:most])}{more}"
        return named if self.size == 1 else f"{self.held:,} of {self.size:,} held by {named}"


def _health(state: str, parts: Sequence[CardPart], size: int) -> str:
    words = {GOOD: "Healthy", OFF: "cordoned", WARN: "warning", LOST: "lost", BAD: "Unhealthy"}[state]
    number = sum(part.ids for part in parts)
    counted = words if number == size else f"{number:,} {words}"
    why = ", ".join(sorted({part.why for part in parts} - {""}))
    return f"{counted}: {why}" if why and state in {BAD, WARN} else counted


@dataclass(slots=True)
class Branch:
    """What is below a NUMA node, a root or a switch: branches and cards."""

    kind: str
    name: str
    inside: "list[Branch | Card]" = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Fabric:
    """Cards with links between them; `links`: their number for each pair of positions in `cards`."""

    kind: str
    """NVLink, NVLink by NVSwitch, XGMI."""
    cards: Sequence[Card]
    links: Mapping[tuple[int, int], int]

    @property
    def each_to_each(self) -> int:
        """The number of links between any two cards, if it is the same for all; else 0."""
        size, counts = len(self.cards), set(self.links.values())
        return counts.pop() if len(self.links) == size * (size - 1) // 2 and len(counts) == 1 else 0

    def text(self) -> str:
        """The links in words."""
        names = [card.name for card in self.cards]
        if number := self.each_to_each:
            counted = f", {number} links each" if self.kind != "XGMI" and number > 1 else ""
            return f"{self.kind}, each to each{counted}: {', '.join(names)}"
        pairs = (f"{names[one]}-{names[other]}{f' x {n}' if n > 1 else ''}" for (one, other), n in self.links.items())
        return f"{self.kind}: {', '.join(pairs)}"


@dataclass(frozen=True, slots=True)
class NodeMap:
    """A whole map."""

    groups: Sequence[Branch]
    fabrics: Sequence[Fabric]

    def cards(self) -> Iterator[Card]:
        """All cards, in the order of the map."""
        for group in self.groups:
            yield from _cards_in(group)


def _cards_in(group: Branch) -> Iterator[Card]:
    for one in group.inside:
        if isinstance(one, Card):
            yield one
        else:
            yield from _cards_in(one)


def read_paths(settings: Settings) -> Paths:
    """Where PCI functions are, from the inventory. Raises OSError if no descriptor is left to read it."""
    return paths_of(spool.read_or_empty(settings.devices_file, devices_pb2.Inventory))


def paths_of(inventory: devices_pb2.Inventory) -> Paths:
    """Where the PCI functions of the inventory's devices are."""
    found = (function.path for known in inventory.devices for function in known.device.functions)
    return {path.rpartition("/")[2]: path for path in found}


@dataclass(slots=True)
class _Seat:
    """Where a card is: its host bridge and the bridges above it, its NUMA nodes, the addresses of its functions."""

    root: str
    bridges: Sequence[str]
    card: Card = field(default_factory=Card)
    numa_nodes: Sequence[int] = ()
    functions: set[str] = field(default_factory=set)
    facts: Mapping[str, str] = field(default_factory=dict)
    """Facts of its first device."""


def node_map(herd: InstanceState, allocations: Allocations | None, paths: Paths) -> NodeMap:
    """Lay out the devices that are offered, and those that are lost."""
    lost = {(one.vendor, one.card, one.device): one for one in herd.lost}
    paths = {one.pci_address: one.pci_path for one in herd.lost if one.pci_path} | dict(paths)
    seats: dict[tuple[str, str], _Seat] = {}
    others: dict[str, Card] = {}
    for offer in herd.resources:
        for device in offer.devices:
            part = _part(offer.name, device, allocations, is_lost=bool(lost) and key_of(device) in lost)
            vendor, facts = device.vendor or offer.vendor, device.attributes
            address = facts.get("pci_address", "")
            if address:
                for one in address.split(","):
                    seat = _seat(seats, one, facts, paths)
                    seat.numa_nodes = seat.numa_nodes or list(device.numa_nodes)
                    _sit_down(seat, part, vendor, one, facts)
            else:
                _beside(others, offer.name, part, vendor, facts)
    for gone in herd.lost:
        if not gone.is_listed:
            _miss(seats, others, gone, paths)
    in_order = sorted(seats.values(), key=lambda seat: (seat.root, *seat.bridges, min(seat.functions)))
    groups = _numa_nodes(in_order)
    if others:
        groups.append(Branch(OTHERS, "other devices", list(others.values())))
    node = NodeMap(groups, list(_fabrics(in_order)))
    if allocations is None:
        for card in node.cards():
            card.knows_holders = False
    return node


def _part(name: str, device: spool_pb2.Device, allocations: Allocations | None, *, is_lost: bool) -> CardPart:
    ids = ids_of(device.id, device.replicas, device.shares)
    holders = [found for each in ids if (found := allocations.get((name, each)))] if allocations else []
    pods = dict.fromkeys(f"{one['namespace']}/{one['pod']}" for found in holders for one in found)
    state, why = _state(device, is_lost=is_lost)
    return CardPart(name, device.id, state, why, len(ids), len(holders), list(pods))


def _state(device: spool_pb2.Device, *, is_lost: bool) -> tuple[str, str]:
    """The state, and its reasons or warnings."""
    if reasons := list(device.reasons):
        state = LOST if is_lost or GONE in reasons else BAD if is_ill(device) else OFF
        return state, ", ".join(reasons)
    if warnings := list(device.warnings):
        return WARN, ", ".join(warnings)
    return GOOD, ""


def _seat(seats: dict[tuple[str, str], _Seat], address: str, facts: Mapping[str, str], paths: Paths) -> _Seat:
    """The seat of a function. All functions below a port are one card; without a port its device number counts."""
    names = paths.get(address, "").split("/")
    roots = [number for number, name in enumerate(names) if name.startswith("pci") and ":" in name]
    root = names[roots[-1]] if roots else ""
    bridges = names[roots[-1] + 1 : -1] if roots else []
    whole = facts.get("physfn") or facts.get("physical_function") or address
    key = root, bridges[-1] if bridges else whole.rpartition(".")[0]
    if key not in seats:
        seats[key] = _Seat(root, bridges)
    return seats[key]


def _sit_down(seat: _Seat, part: CardPart, vendor: str, address: str, facts: Mapping[str, str]) -> None:
    card = seat.card
    card.parts.append(part)
    seat.functions.add(address)
    if not seat.facts:
        seat.facts = facts
    _describe(card, vendor, facts)


def _describe(card: Card, vendor: str, facts: Mapping[str, str]) -> None:
    if not card.title:
        card.model, card.title = model_of(vendor, facts), _TITLES.get(vendor, vendor)


def _beside(others: dict[str, Card], name: str, part: CardPart, vendor: str, facts: Mapping[str, str]) -> None:
    card = others.setdefault(name, Card(name.rpartition("/")[2]))
    card.parts.append(part)
    _describe(card, vendor, facts)


def _miss(
    seats: dict[tuple[str, str], _Seat], others: dict[str, Card], gone: health_pb2.LostDevice, paths: Paths
) -> None:
    """Put a device that is in no list any more into its place."""
    part = CardPart(gone.resource_name, gone.device, LOST, "", 1, 0, ())
    facts: dict[str, str] = {"physfn": gone.part_of} if gone.part_of else {}
    if gone.pci_address and "," not in gone.pci_address:
        seat = _seat(seats, gone.pci_address, facts, paths)
        seat.numa_nodes = seat.numa_nodes or list(gone.numa_nodes)
        _sit_down(seat, part, gone.vendor, gone.pci_address, facts)
        seat.card.model = seat.card.model or gone.model
    else:
        _beside(others, gone.resource_name, part, gone.vendor, {})


def _numa_nodes(seats: Sequence[_Seat]) -> list[Branch]:
    """The tree above the cards, which are in the order of their paths."""
    of_roots = {seat.root: seat.numa_nodes for seat in seats if seat.root and seat.numa_nodes}
    nodes: dict[tuple[int, ...], dict[str, Branch]] = {}
    _name(seats)
    for seat in seats:
        numa = tuple(seat.numa_nodes or of_roots.get(seat.root, ()))
        roots = nodes.setdefault(numa, {})
        root = roots.setdefault(seat.root, Branch(ROOT, seat.root))
        _below(root, seat.bridges[1::2]).inside.append(seat.card)
    return [
        Branch(NUMA, _numa_name(numa, nodes), [_without_passages(root) for root in roots.values()])
        for numa, roots in sorted(nodes.items(), key=lambda node: node[0] or (_NOWHERE,))
    ]


def _numa_name(numa: tuple[int, ...], nodes: Mapping[tuple[int, ...], object]) -> str:
    if numa:
        return f"NUMA {', '.join(map(str, numa))}"
    return "NUMA node unknown" if len(nodes) > 1 else "no NUMA nodes known"


def _below(group: Branch, switches: Sequence[str]) -> Branch:
    for name in switches:
        inner = group.inside[-1] if group.inside else None
        if not isinstance(inner, Branch) or inner.name != name:
            inner = Branch(SWITCH, name)
            group.inside.append(inner)
        group = inner
    return group


def _without_passages(group: Branch) -> Branch:
    """Without the switches that lead to a single card: a board's own."""
    inside: list[Branch | Card] = []
    for one in group.inside:
        inner = one if isinstance(one, Card) else _without_passages(one)
        is_passage = isinstance(inner, Branch) and inner.kind == SWITCH and len(inner.inside) == 1
        inside.append(inner.inside[0] if isinstance(inner, Branch) and is_passage else inner)
    return Branch(group.kind, group.name, inside)


def _name(seats: Sequence[_Seat]) -> None:
    """What people call a card: by NVML's index, by its device's id if that is short, or by its address.

    An index that several cards have names none: NVML numbers the rest anew when a GPU is lost.
    """
    indices = Counter(_index(seat) for seat in seats)
    for seat in seats:
        _name_one(seat, _index(seat) if indices[_index(seat)] == 1 else "")


def _index(seat: _Seat) -> str:
    return seat.facts.get("index", "").partition(":")[0]


def _name_one(seat: _Seat, index: str) -> None:
    first, *more = seat.card.parts
    address = min(seat.functions)
    seat.card.address = address if len(seat.functions) == 1 else address.rpartition(".")[0]
    if index:
        seat.card.name = f"GPU {index}"
    elif not more and len(first.device_id) < min(len(address), _LONGEST_NAME):
        seat.card.name = first.device_id
    else:
        seat.card.name = seat.card.address.removeprefix("0000:")


def _fabrics(seats: Sequence[_Seat]) -> Iterator[Fabric]:
    """The groups of cards with links between them, by kind."""
    by_address = {address: seat for seat in seats for address in seat.functions}
    ports = [(seat, len(seat.facts["nvswitch_ports"].split(","))) for seat in seats if "nvswitch_ports" in seat.facts]
    if len(ports) > 1:
        number = min(count for _, count in ports)
        cards = [seat.card for seat, _ in ports]
        pairs = {(one, other): number for other in range(len(cards)) for one in range(other)}
        yield Fabric("NVLink by NVSwitch", cards, pairs)
    for kind, fact in (("NVLink", "nvlink_gpus"), ("XGMI", "xgmi_gpus")):
        linked: dict[int, Counter[int]] = {}
        numbers = {id(seat): number for number, seat in enumerate(seats)}
        for number, seat in enumerate(seats):
            peers = (by_address.get(address) for address in seat.facts.get(fact, "").split(","))
            found = Counter(numbers[id(peer)] for peer in peers if peer is not None and peer is not seat)
            for other, count in found.items():
                linked.setdefault(number, Counter())[other] = count
                linked.setdefault(other, Counter())[number] = count
        for members in _components(linked):
            pairs = {
                (here, there): linked[one][other]
                for here, one in enumerate(members)
                for there, other in enumerate(members)
                if here < there and linked[one][other]
            }
            yield Fabric(kind, [seats[one].card for one in members], pairs)


def _components(linked: Mapping[int, Iterable[int]]) -> Iterator[list[int]]:
    """The sets of numbers that are connected."""
    left = set(linked)
    while left:
        found, border = set[int](), {min(left)}
        while border:
            found |= border
            border = {other for one in border for other in linked[one]} - found
        left -= found
        yield sorted(found)


def counts(cards: Iterable[Card]) -> str:
    """How many cards of each vendor there are: `NVIDIA GPUs: 8, RDMA devices: 2`."""
    return ", ".join(
        f"{title}: {number:,}" for title, number in Counter(card.title for card in cards if card.address).items()
    )
