"""Devices that move from one resource to another: none is listed by the next while the one before may still show it.

Two resources that list one device would have it allocated twice.
"""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from devherd.inventory import DeviceKey

Acknowledged = Callable[[str, int | None], bool]
"""Of a resource's key and a version: whether the kubelet can be shown no older list. None stands for no list at all."""


@dataclass(frozen=True, slots=True)
class _Departure:
    """Devices that a resource no longer lists since a version of its file; None: since the file is gone."""

    key: str
    version: int | None
    devices: frozenset[DeviceKey] | None
    """None: not known, so perhaps any."""


class Moves:
    """The departures that are not acknowledged yet. No I/O of its own."""

    def __init__(self, acknowledged: Acknowledged) -> None:
        self._acknowledged = acknowledged
        self._departures: list[_Departure] = []

    def may_show_others(self, key: str, version: int | None) -> None:
        """An earlier scanner wrote this version, and what the one before it listed is unknown."""
        self._departures.append(_Departure(key, version, None))

    def left(self, key: str, version: int | None, devices: Iterable[DeviceKey]) -> None:
        """A resource lists these devices no longer, from this version of its file on; None: the file is gone."""
        self._departures.append(_Departure(key, version, frozenset(devices)))

    def stands_again(self, key: str, version: int) -> None:
        """A resource that was gone has a file again: whoever has sent this version shows nothing of before."""
        self._departures = [
            replace(one, version=version) if one.key == key and one.version is None else one for one in self._departures
        ]

    def held_back(self, key: str, arriving: AbstractSet[DeviceKey]) -> set[DeviceKey]:
        """Those of the devices arriving at a resource that another one may still show to the kubelet."""
        if not arriving or not self._departures:
            return set()
        self._departures = [one for one in self._departures if not self._acknowledged(one.key, one.version)]
        return {
            device
            for device in arriving
            for one in self._departures
            if one.key != key and (one.devices is None or device in one.devices)
        }
