"""Doubts a source that condemns most cards of a node at once: the source is more likely broken than the cards.

Its findings are only warnings until another source agrees about the device, or a minute has passed. Only hearsay is
doubted. Reports of the kernel, the bus or NVML about one address are not, because a failed switch takes all GPUs below
it down at once. Physical cards are counted, not devices: a failed card takes its functions (virtual ones too), ports
and partitions down with it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property

from devherd.health.held import Held, Place
from devherd.inventory import DeviceKey, Entry
from devherd.reasons.registry import is_hearsay

AT_ONCE_SECONDS = 10.0
DOUBTED_SECONDS = 60.0
FEWEST = 3
"""Minimum number of cards that a source must condemn to be doubted."""

Card = tuple[str, ...]
"""Vendor and name of a card."""


class Cards:
    """The physical cards of these devices: from the facts of inventory entries, or from bare keys.

    Computed on demand: few nodes ever have a doubted source.
    """

    def __init__(self, known: Collection[DeviceKey] = ()) -> None:
        self._known = known

    @cached_property
    def of(self) -> Mapping[DeviceKey, Card]:
        """The card of each device."""
        entries: Mapping[DeviceKey, Entry] = self._known if isinstance(self._known, Mapping) else {}
        return {key: _physical(entries[key]) if key in entries else _named(key) for key in self._known}

    @cached_property
    def count(self) -> int:
        """The number of cards."""
        return len(set(self.of.values()))


def _physical(entry: Entry) -> Card:
    """The PCI device of the function; for a virtual function, of its physical function. Ports of a card share one."""
    attribute = entry.device.attribute
    function = (
        attribute("physfn") or attribute("physical_function") or (attribute("pci_address") or "").partition(",")[0]
    )
    slot = function.rpartition(".")[0]
    return (entry.vendor, slot) if slot else _named(entry.key)


def _named(key: DeviceKey) -> Card:
    """The card in a device's key; a device without a card is its own."""
    vendor, card, _ = key
    return (vendor, card) if card else key


def judge(
    all_held: Mapping[DeviceKey, Mapping[Place, Held]],
    cards: Cards,
    monotonic: float,
    is_blind: Callable[[DeviceKey, str], bool],
) -> None:
    """Mark the findings that are doubted at this CLOCK_MONOTONIC second, on a node with these cards.

    `is_blind`: returns True while a source cannot check a device; a doubted finding then stays doubted.
    """
    everything = (one for held in all_held.values() for one in held.values())
    if not any(one.is_doubted or one.doubted_until > monotonic or _is_fresh(one, monotonic) for one in everything):
        return
    condemning = {key: [one for one in held.values() if one.counts and one.condemns] for key, held in all_held.items()}
    for source, doubted_until in _doubted(condemning, cards, monotonic).items():
        for held in condemning.values():
            for one in held:
                if one.finding.source == source and _is_fresh(one, monotonic):
                    one.doubted_until = max(one.doubted_until, doubted_until)
    for key, held in condemning.items():
        is_alone = len({one.finding.source for one in held}) == 1
        for one in held:
            goes_on = one.is_doubted and is_blind(key, one.finding.source)
            one.is_doubted = is_alone and (goes_on or monotonic < one.doubted_until)


def _doubted(condemning: Mapping[DeviceKey, Iterable[Held]], cards: Cards, monotonic: float) -> dict[str, float]:
    """The doubted sources, each with the CLOCK_MONOTONIC second until which it is doubted."""
    fresh: dict[str, set[Card]] = {}
    until: dict[str, float] = {}
    for key, held in condemning.items():
        for one in held:
            if _is_fresh(one, monotonic):
                fresh.setdefault(one.finding.source, set()).add(cards.of.get(key) or _named(key))
            until[one.finding.source] = max(one.doubted_until, until.get(one.finding.source, 0.0))
    doubted = {source: moment for source, moment in until.items() if monotonic < moment}
    news = {source for source, sick in fresh.items() if len(sick) >= FEWEST and 2 * len(sick) > cards.count}
    return dict.fromkeys(news, monotonic + DOUBTED_SECONDS) | doubted


def _is_fresh(held: Held, monotonic: float) -> bool:
    """True if it began to count in the last `AT_ONCE_SECONDS`."""
    is_new = monotonic - (held.since + held.meaning.after) < AT_ONCE_SECONDS
    return is_new and is_hearsay(held.finding.source)
