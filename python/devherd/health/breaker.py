"""A source that condemns most devices of a node at once is doubted: more likely it is broken than they are.

What it says is a warning until another source agrees about the device, or a minute has passed. What is there or not is
nothing to be doubted.
"""

from collections.abc import Iterable, Mapping

from devherd.health.held import Held, Place
from devherd.inventory import DeviceKey

AT_ONCE_SECONDS = 10.0
DOUBTED_SECONDS = 60.0
FEWEST = 3
"""Devices that a source has to condemn."""

PRESENCE = frozenset(
    {
        "cdi-unwritable",
        "cordoned",
        "driver-unbound",
        "gone",
        "node-missing",
        "off-bus",
        "probe-timeout",
        "unprogrammed",
    }
)
"""Reasons that say what is there, what answers, or what an operator wants."""


def judge(all_held: Mapping[DeviceKey, Mapping[Place, Held]], devices: int, monotonic: float) -> None:
    """Mark what is doubted at this CLOCK_MONOTONIC second, on a node with so many devices."""
    condemning = {key: [one for one in held.values() if one.counts and one.condemns] for key, held in all_held.items()}
    for source, doubted_until in _doubted(condemning, devices, monotonic).items():
        for held in condemning.values():
            for one in held:
                if one.finding.source == source and _is_fresh(one, monotonic):
                    one.doubted_until = max(one.doubted_until, doubted_until)
    for held in condemning.values():
        sources = {one.finding.source for one in held}
        for one in held:
            one.is_doubted = monotonic < one.doubted_until and len(sources) == 1


def _doubted(condemning: Mapping[DeviceKey, Iterable[Held]], devices: int, monotonic: float) -> dict[str, float]:
    """Sources that condemn too many devices at once or did so, and until when each is doubted."""
    fresh: dict[str, int] = {}
    until: dict[str, float] = {}
    for held in condemning.values():
        for source in {one.finding.source for one in held if _is_fresh(one, monotonic)}:
            fresh[source] = fresh.get(source, 0) + 1
        for one in held:
            until[one.finding.source] = max(one.doubted_until, until.get(one.finding.source, 0.0))
    doubted = {source: moment for source, moment in until.items() if monotonic < moment}
    news = {source for source, count in fresh.items() if count >= FEWEST and 2 * count > devices}
    return dict.fromkeys(news, monotonic + DOUBTED_SECONDS) | doubted


def _is_fresh(held: Held, monotonic: float) -> bool:
    """Whether it has begun to count a moment ago."""
    is_doubtful = held.finding.reason not in PRESENCE
    return is_doubtful and monotonic - (held.since + held.meaning.after) < AT_ONCE_SECONDS
