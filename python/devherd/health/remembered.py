"""What was seen in a boot that is held against no device, and that a scanner which is started again has to know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from devherd._native import KernelLogEvent

Memory = tuple[tuple[str, str, str, str], str]
"""Of the scan core: card, source, file and variant, and what it is."""


class KernelLogPosition(NamedTuple):
    """Where a reader of the kernel log is: the next record, and by how many seconds the log's clock lags behind."""

    next_record: int
    lag_seconds: float


@dataclass(frozen=True, slots=True)
class Remembered:
    """All of it."""

    kernel_log: KernelLogPosition | None = None
    """What of the kernel log is taken in."""
    waiting: Sequence["KernelLogEvent"] = ()
    """What of that is about a device that no scan has found yet."""
    uuids: Mapping[str, str] = field(default_factory=dict)
    """By PCI address: what the NVIDIA driver calls the GPU there."""
    memories: Sequence[Memory] = ()
    """What the scan core knows."""


NOTHING = Remembered()
