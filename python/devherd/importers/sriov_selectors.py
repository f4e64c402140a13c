"""Selectors of sriov-network-device-plugin as what a rule matches: facts of an RDMA device, and the values wanted.

All selectors of one entry have to fit. `pfNames` and `rootDevices` may say which functions of each they mean:
`ens1f0#0,2-5`; so an entry with several of them is several rules.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from devherd.errors import UsageError
from devherd.importers.given import Given

Match = dict[str, Any]

_FACTS = {
    "vendors": "vendor_id",
    "devices": "device_id",
    "drivers": "driver",
    "pciAddresses": "pci_address",
    "pKeys": "pkey",
}
_LINK_LAYERS = {"infiniband": "InfiniBand", "ether": "Ethernet"}
_LARGEST = 65_535
"""Virtual functions of a physical one, by PCI."""

WITHOUT_FACT = frozenset({"acpiIndexes", "ddpProfiles", "auxTypes", "vdpaType"})
"""Selectors that no fact says: without them a rule would take more devices."""


@dataclass(frozen=True, slots=True)
class _Functions:
    """Virtual functions of one physical one."""

    of: str
    numbers: frozenset[int] | None
    """None: all of them."""

    def among(self, other: "_Functions") -> frozenset[int] | None:
        """Those that both mean, where both mean the same physical function."""
        if self.numbers is None or other.numbers is None:
            return self.numbers if other.numbers is None else other.numbers
        return self.numbers & other.numbers


def matches(chosen: Given) -> Iterator[Match]:
    """What rules for one entry of `selectors` match; what is not taken of it stays in `chosen`.

    Raises UsageError.
    """
    chosen.take("isRdma")
    chosen.take("IsRdma")
    plain: Match = {"vendor": "rdma"}
    for theirs, fact in _FACTS.items():
        if values := [str(value).lower() for value in chosen.items(theirs)]:
            plain[fact] = [f"0x{value}" for value in values] if fact.endswith("_id") else values
    if kinds := chosen.items("linkTypes"):
        plain["link_layer"] = [_LINK_LAYERS.get(str(kind).lower(), str(kind)) for kind in kinds]
    by_name, by_address = (_first_of_each(chosen.items(theirs)) or [None] for theirs in ("pfNames", "rootDevices"))
    for one, other in itertools.product(by_name, by_address):
        numbers = one.among(other) if one and other else (one or other or _Functions("", None)).numbers
        if numbers is None or numbers:
            yield (
                plain
                | ({"pf_name": [one.of]} if one else {})
                | ({"physfn": [other.of.lower()]} if other else {})
                | ({"vf_index": [str(number) for number in sorted(numbers)]} if numbers else {})
            )


def _first_of_each(texts: Sequence[Any]) -> list[_Functions | None]:
    """Of two entries for one physical function the plugin heeds the first."""
    found: dict[str, _Functions] = {}
    for text in texts:
        functions = _functions(str(text))
        found.setdefault(functions.of.lower(), functions)
    return list(found.values())


def _functions(text: str) -> _Functions:
    """`ens1f0`, `ens1f0#3`, `ens1f0#0,2-5`."""
    of, separator, numbers = text.partition("#")
    return _Functions(of, frozenset(_numbers(text, numbers)) if separator else None)


def _numbers(text: str, numbers: str) -> Iterator[int]:
    for part in numbers.split(","):
        first, separator, last = part.partition("-")
        if not first.isdecimal() or (separator and not last.isdecimal()) or int(last or first) > _LARGEST:
            raise UsageError(
                f"`{text}` names no virtual functions",
                f"`{part}` is neither a number nor a range",
                "write `ens1f0#0,2-5`",
            )
        yield from range(int(first), int(last or first) + 1)
