"""NVML's counters of each GPU: numbers for metrics, rises, lost NVLinks, and counters that started again."""

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any, TypedDict

from devherd.proto import health_pb2

Reading = dict[str, Any]

WINDOW_SECONDS = 60.0
"""Time over which corrected memory errors are summed."""
_CORRECTED = ("corrected_errors", "lifetime_corrected_errors")
_SINCE_ITS_START = ("energy", "pcie_replays", "corrected_errors", "uncorrected_errors")
"""Counters that start again when the driver starts the GPU again, for example after a reset."""
_LINKS = "nvlinks"
_MODE = "mig-mode"
_AT_LAST = "counters"
_CLOCK_REASONS = (
    ("power-cap", 0x4),
    ("hardware", 0x8),
    ("sync-boost", 0x10),
    ("heat", 0x20),
    ("hardware-heat", 0x40),
    ("power-brake", 0x80),
)
"""`nvmlClocksEventReason…`: reasons of lowered clocks, without idleness and settings of users."""

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
"""Name, kind, and key in a reading."""


class _AtLast(TypedDict):
    """A GPU's `_SINCE_ITS_START` counters at the last look."""

    monotonic: float
    is_persistent: bool
    numbers: dict[str, int]


class GpuCounters:
    """The counters of each GPU, by PCI address."""

    def __init__(self, memories: Iterable[health_pb2.Memory] = ()) -> None:
        """`memories`: from the last process of this boot."""
        self._corrected: dict[str, dict[str, list[tuple[float, int]]]] = {}
        self._failed: dict[str, int] = {}
        self._counts: dict[str, list[health_pb2.Count]] = {}
        known = {(one.variant, one.card): one.text for one in memories}
        self._were_up = {gpu: set(map(int, text.split())) for (kind, gpu), text in known.items() if kind == _LINKS}
        self._modes = {gpu: text for (kind, gpu), text in known.items() if kind == _MODE}
        self._at_last: dict[str, _AtLast] = {
            gpu: json.loads(text) for (kind, gpu), text in known.items() if kind == _AT_LAST
        }

    def links_lost(self, reading: Reading) -> list[int]:
        """The numbers of the NVLinks that were up in this boot and are down, sorted.

        A card without a bridge has links that were never up: that is no fault. In MIG mode the driver shuts links down:
        a change of the mode begins anew.
        """
        mode = reading["mig_mode"]
        if mode is not None and self._modes.get(reading["pci_address"], str(mode)) != str(mode):
            self._were_up.pop(reading["pci_address"], None)
        if mode is not None:
            self._modes[reading["pci_address"]] = str(mode)
        links = {int(number): is_up for number, is_up in reading["links"].items()}
        were_up = self._were_up.setdefault(reading["pci_address"], set())
        were_up.update(number for number, is_up in links.items() if is_up)
        return sorted(number for number, is_up in links.items() if not is_up and number in were_up)

    def began_again(self, reading: Reading, monotonic: float) -> float | None:
        """The CLOCK_MONOTONIC second of a look after which the driver has started the GPU again; None without proof.

        The proof: a counter has fallen since that look, at which the driver kept the GPU initialised. Counters of other
        GPUs fall whenever nobody has the GPU open.
        """
        gpu = reading["pci_address"]
        before = self._at_last.get(gpu)
        numbers = {name: reading[name] for name in _SINCE_ITS_START if reading[name] is not None}
        known = before["numbers"] if before else {}
        self._at_last[gpu] = {
            "monotonic": monotonic,
            "is_persistent": reading["is_persistent"] is True,
            "numbers": known | numbers,
        }
        has_fallen = any(number < known.get(name, 0) for name, number in numbers.items())
        return before["monotonic"] if before and before["is_persistent"] and has_fallen else None

    def rises(self, reading: Reading, monotonic: float) -> tuple[int, int]:
        """The rise of corrected memory errors in a minute, and of failed NVLink recoveries since the last look.

        A counter that has fallen, as after a reset, starts again.
        """
        gpu = reading["pci_address"]
        self._counts[gpu] = list(_counts_of(reading))
        failed = reading["link_errors"].get("recovery-failed")
        before = self._failed.get(gpu, failed)
        if failed is None or before is None:
            return self._corrected_lately(reading, monotonic), 0
        self._failed[gpu] = failed
        return self._corrected_lately(reading, monotonic), max(0, failed - before)

    def _corrected_lately(self, reading: Reading, monotonic: float) -> int:
        """The larger rise of the driver's and the board's counter: some GPUs have only one, and the driver's resets."""
        gpu = reading["pci_address"]
        return max(self._rise(gpu, counter, reading[counter], monotonic) for counter in _CORRECTED)

    def _rise(self, gpu: str, counter: str, number: int | None, monotonic: float) -> int:
        """The rise since the first successful read within the last minute."""
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
        """Drop the counters of GPUs that the driver no longer has; their links are remembered until the next boot."""
        for gpu in self._counts.keys() - gpus:
            for known in (self._corrected, self._failed, self._counts):
                known.pop(gpu, None)

    def counts(self) -> list[health_pb2.Count]:
        """The counts of the last look at each GPU."""
        return [count for gpu in sorted(self._counts) for count in self._counts[gpu]]

    def memories(self) -> list[health_pb2.Memory]:
        """For the next process: the NVLinks that were up, the MIG mode, and the counters at the last look."""
        links = {gpu: " ".join(map(str, sorted(links))) for gpu, links in self._were_up.items() if links}
        at_last = {gpu: json.dumps(one) for gpu, one in self._at_last.items()}
        return [
            health_pb2.Memory(card=gpu, variant=variant, text=text)
            for variant, texts in ((_LINKS, links), (_MODE, self._modes), (_AT_LAST, at_last))
            for gpu, text in sorted(texts.items())
        ]


def _counts_of(reading: Reading) -> Iterator[health_pb2.Count]:
    gpu = reading["pci_address"]
    for name, kind, part in _COUNTS:
        if reading[part] is not None:
            yield health_pb2.Count(pci_address=gpu, name=name, kind=kind, number=reading[part])
    reasons = reading["clock_reasons"]
    for kind, bit in _CLOCK_REASONS if reasons is not None else ():
        yield health_pb2.Count(pci_address=gpu, name="clocks-lowered", kind=kind, number=int(reasons & bit > 0))
    up = sum(reading["links"].values())
    for kind, number in (("up", up), ("down", len(reading["links"]) - up)):
        if reading["links"]:
            yield health_pb2.Count(pci_address=gpu, name="nvlinks", kind=kind, number=number)
    for kind, number in sorted(reading["link_errors"].items()):
        yield health_pb2.Count(pci_address=gpu, name="nvlink-errors", kind=kind, number=number)
