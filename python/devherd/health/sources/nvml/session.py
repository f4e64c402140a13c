"""NVML kept open for the health of GPUs. Every method may hang or crash; one is called at a time, in any thread."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from devherd._native import NvmlWatch
from devherd.health.sources.nvml.answer import Request
from devherd.health.sources.nvml.findings import Event, Reading, is_suspect

_AWAKE = frozenset({"active", "unsupported"})
"""What `power/runtime_status` is of a GPU that does not sleep (docs.kernel.org/power/runtime_pm.html)."""


class Session:
    """The GPUs of one request.

    A GPU that sleeps is not opened, for that would wake it. One that is lost or has to be reset is opened for a look
    only: nothing can reset it, or take its driver away, while it is open, and only a new handle says that it is well.
    Where the configuration says so, that is the way of all of them.
    """

    def __init__(self, request: Request, host_root: Path) -> None:
        self._driver_root: str | None = request.get("driver_root")
        self._library: str | None = request.get("library")
        self._gpus = frozenset(request.get("gpus", ()))
        self._functions = host_root / "sys/bus/pci/devices"
        self.keeps_open: bool = request.get("keep_open", True)
        """Whether GPUs stay open between two looks, so that events are heard."""
        self._watch: NvmlWatch | None = None
        self._open: frozenset[str] = frozenset()
        self._bad: frozenset[str] = frozenset()

    def open(self) -> None:
        """Open the GPUs by new handles. Raises FileNotFoundError and OSError as `nvml_facts` does."""
        self._reopen(self._awake())

    def wait(self, milliseconds: int) -> tuple[list[Event], str]:
        """What happens within so many milliseconds, and why it could not be waited for, if it could not."""
        if self._watch is None:
            return [], "NVML is not open"
        waited: dict[str, Any] = json.loads(self._watch.wait(milliseconds))
        failure = waited["failure"]
        return waited["events"], f"{failure['function']}: {failure['meaning']}" if failure else ""

    def look(self, suspects: Collection[str], *, anew: bool = False) -> list[Reading]:
        """Look at the GPUs that are awake, by new handles where one is suspect or `anew`. Raises as `open` does."""
        awake = self._awake()
        if anew or suspects or self._watch is None or not awake <= self._open:
            self._reopen(awake)
        assert self._watch is not None
        readings: list[Reading] = json.loads(self._watch.look(sorted(awake)))
        self._bad = frozenset(reading["pci_address"] for reading in readings if is_suspect(reading))
        if not self.keeps_open:
            self.close()
        return readings

    @property
    def holds_bad_ones(self) -> bool:
        """Whether GPUs are open that the last look has found lost or in need of a reset."""
        return bool(self._bad & self._open)

    def let_go_of_bad_ones(self) -> None:
        """Open the others alone: NVML lets go of single GPUs in no other way. Raises as `open` does."""
        self._reopen(self._open - self._bad)

    def close(self) -> None:
        """Let go of all GPUs and of the library."""
        watch, self._watch = self._watch, None
        self._open = frozenset()
        if watch is not None:
            watch.close()

    def _reopen(self, gpus: frozenset[str]) -> None:
        self.close()
        self._watch = NvmlWatch(self._driver_root, self._library, sorted(gpus))
        self._open = gpus

    def _awake(self) -> frozenset[str]:
        return frozenset(gpu for gpu in self._gpus if _is_awake(self._functions / gpu))


def _is_awake(function: Path) -> bool:
    """Also of one that says nothing about it."""
    try:
        status = (function / "power/runtime_status").read_text()
    except OSError:
        return True
    return status.strip() in _AWAKE
