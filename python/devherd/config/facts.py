"""What selectors may name: the facts of each vendor's devices, as the scan core lists them, and their values' form.

A vendor's names are those of its section in the file. Globs are Python's fnmatch, and letter case counts.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from devherd._native import vendors

OF_EVERY_DEVICE = ("vendor", "id", "resource_name")

OF_VENDOR: dict[str, tuple[str, ...]] = {row.section: tuple(row.facts) for row in vendors()}

EXAMPLES: dict[str, tuple[str, ...]] = {
    "pci_address": ("0000:81:00.0", "10000:81:00.0"),  # Intel's VMD has domains of five digits
    "pci_class": ("0x120000",),
    "vendor_id": ("0x8086",),
    "device_id": ("0x0b30",),
    "subsystem_vendor_id": ("0x8086",),
    "subsystem_device_id": ("0x0000",),
    "afu_id": ("d8424dc4a4a3c413f89e433683f9040b",),
    "interface_id": ("69528db6eb31577a8c3668f9faa081f6",),
}
"""Facts whose values all have the form of this one: the same length, hexadecimal digits in the same places."""

_DIGITS = "0123456789abcdef"
_PART = re.compile(r"\*|\[!?\]?[^\]]*\]|.", re.DOTALL)


def can_match(fact: str, glob: str) -> bool:
    """Whether some value of a fact fits a glob; True where the form of its values is not known."""
    parts = _PART.findall(glob)
    return fact not in EXAMPLES or any(_fits(parts, _places(example)) for example in EXAMPLES[fact])


def _places(example: str) -> list[str]:
    """The characters that may be in each place of a value of this form."""
    prefix = "0x" if example.startswith("0x") else ""
    return [*prefix, *(_DIGITS if each in _DIGITS else each for each in example.removeprefix(prefix))]


def _fits(parts: Sequence[str], places: Sequence[str]) -> bool:
    """Whether the parts of a glob can spell one of the characters of each place, all of them in order."""
    reached = {0}  # how many places the parts so far can have spelt
    for part in parts:
        if part == "*":
            reached = set(range(min(reached, default=len(places) + 1), len(places) + 1))
        else:
            reached = {
                place + 1
                for place in reached
                if place < len(places) and any(fnmatchcase(character, part) for character in places[place])
            }
    return len(places) in reached
