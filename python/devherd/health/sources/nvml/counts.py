"""What GPUs count, and what a look tells only beside those before it: what rises, which NVLinks were lost. Pure."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from devherd.proto import health_pb2

Reading = dict[str, Any]

WINDOW_SECONDS = 60.0
"""Corrected memory errors are reckoned up over so long."""
_CORRECTED = ("corrected_errors", "lifetime_corrected_errors")
_LINKS = "nvlinks"
_CLOCKS = (
    ("power-cap", 0x4),
    ("hardware", 0x8),
    ("sync-boost", 0x10),
    ("heat", 0x20),
    ("hardware-heat", 0x40),
    ("power-brake", 0x80),
)
"""`nvmlClocksEventReason…`: what lowers clocks but idleness, and those that somebody has set."""

_COUNTS = (
    ("ecc-errors", "corrected", "lifetime_corrected_errors"),
    ("ecc-errors", "uncorrected", "lifetime_uncorrected_errors"),
    ("remapped-rows", "corrected", "remapped_corrected"),
    ("remapped-rows", "uncorrected", "remapped_uncorrected"),
    ("inactive-remapped-rows", "corrected", "inactive_remapped_corrected"),
    ("inactive-remapped-rows", "uncorrected", "inactive_remapped_uncorrected"),
    ("retired-pages", "", "retired_pages"),
    ("pcie-replays", "", "pcie_replays"),
)
"""Name, kind and the part of a reading."""


class Counters:
    """What was counted of each GPU, by PCI address."""

    def __init__(self, memories: Iterable[health_pb2.Memory] = ()) -> None:
        """`memories`: what the process before this one knew, in this boot."""
        self._corrected: dict[str, dict[str, list[tuple[float, int]]]] = {}
        self._failed: dict[str, int] = {}
        self._told: dict[str, list[health_pb2.Count]] = {}
        self._were_up = {one.card: set(map(int, one.text.split())) for one in memories if one.variant == _LINKS}

    def links_lost(self, reading: Reading) -> list[int]:
        """The numbers of the NVLinks that were up in this boot and are down, in order.

        A card without a bridge has links that were never up: nothing is the matter with them.
        """
        links = {int(number): is_up for number, is_up in reading["links"].items()}
        were_up = self._were_up.setdefault(reading["pci_address"], set())
        were_up.update(number for number, is_up in links.items() if is_up)
        return sorted(number for number, is_up in links.items() if not is_up and number in were_up)

    def rises(self, reading: Reading, monotonic: float) -> tuple[int, int]:
        """How much corrected memory errors rose in a minute, and failed recoveries of NVLinks since the last look.

        A counter that has fallen, as after a reset, begins anew.
        """
        gpu = reading["pci_address"]
        self._told[gpu] = list(_counts_of(reading))
        failed = reading["link_errors"].get("recovery-failed")
        before = self._failed.get(gpu, failed)
        if failed is None or before is None:
            return self._corrected_lately(reading, monotonic), 0
        self._failed[gpu] = failed
        return self._corrected_lately(reading, monotonic), max(0, failed - before)

    def _corrected_lately(self, reading: Reading, monotonic: float) -> int:
        """By the counter of the driver or that of the board: some GPUs have one, and the driver's may be set back."""
        gpu = reading["pci_address"]
        return max(self._rise(gpu, counter, reading[counter], monotonic) for counter in _CORRECTED)

    def _rise(self, gpu: str, counter: str, number: int | None, monotonic: float) -> int:
        """Since the first of the looks of the last minute that could read it."""
        if number is None:
            return 0
        known = self._corrected.setdefault(gpu, {}).setdefault(counter, [])
        if known and number < known[-1][1]:
            known.clear()
        known.append((monotonic, number))
        while monotonic - known[0][0] > WINDOW_SECONDS:
            known.pop(0)
        return number - known[0][1]

    def forget_all_but(self, gpus: Collection[str]) -> None:
        """Drop what was counted of GPUs that the driver has no more; which links they had stays until the boot ends."""
        for gpu in self._told.keys() - gpus:
            for known in (self._corrected, self._failed, self._told):
                known.pop(gpu, None)

    def told(self) -> list[health_pb2.Count]:
        """The numbers of the last look at each GPU."""
        return [count for gpu in sorted(self._told) for count in self._told[gpu]]

    def memories(self) -> list[health_pb2.Memory]:
        """What the next process has to know: which NVLinks were up."""
        return [
            health_pb2.Memory(card=gpu, variant=_LINKS, text=" ".join(map(str, sorted(links))))
            for gpu, links in sorted(self._were_up.items())
            if links
        ]


def _counts_of(reading: Reading) -> Iterator[health_pb2.Count]:
    gpu = reading["pci_address"]
    for name, kind, part in _COUNTS:
        if reading[part] is not None:
            yield health_pb2.Count(pci_address=gpu, name=name, kind=kind, number=reading[part])
    reasons = reading["clock_reasons"]
    for kind, bit in _CLOCKS if reasons is not None else ():
        yield health_pb2.Count(pci_address=gpu, name="clocks-lowered", kind=kind, number=int(reasons & bit > 0))
    up = sum(reading["links"].values())
    for kind, number in (("up", up), ("down", len(reading["links"]) - up)):
        if reading["links"]:
            yield health_pb2.Count(pci_address=gpu, name="nvlinks", kind=kind, number=number)
    for kind, number in sorted(reading["link_errors"].items()):
        yield health_pb2.Count(pci_address=gpu, name="nvlink-errors", kind=kind, number=number)
