"""prometheus-client's mapped file of counters, on a disk that may be full.

A process that writes to a hole of a mapped file ends with SIGBUS when there is no block left for it. So blocks are
asked for before they are mapped; where there are none, counting goes on in memory, which nobody else sees.
"""

import contextlib
import logging
import mmap
import os
from pathlib import Path

from prometheus_client.mmap_dict import MmapedDict

log = logging.getLogger(__name__)

_FIRST_BYTES = 1 << 16
_MOST_BESIDE_A_KEY = 32  # bytes: its length, up to 8 of padding, value and time


class CounterFile(MmapedDict):
    """One file. Never raises for want of room."""

    def __init__(self, filename: str, read_mode: bool = False) -> None:
        try:
            _fill_holes(filename)
        except OSError as error:
            log.warning("%s: %s; what it would count is not seen by others", filename, error.strerror)
            self._stay_in_memory()
        else:
            super().__init__(filename, read_mode)  # type: ignore[no-untyped-call]

    def _stay_in_memory(self) -> None:
        self._f = Path(os.devnull).open("a+b")  # noqa: SIM115 - as the library's, for as long as the process lives
        self._capacity = _FIRST_BYTES
        self._m = mmap.mmap(-1, self._capacity)
        self._positions: dict[str, int] = {}
        self._used = 8  # the header, which only readers of a file need

    def _init_value(self, key: str) -> None:
        while self._used + len(key.encode()) + _MOST_BESIDE_A_KEY > self._capacity:
            self._grow()
        super()._init_value(key)  # type: ignore[no-untyped-call]

    def _grow(self) -> None:
        capacity = 2 * self._capacity
        try:
            os.posix_fallocate(self._f.fileno(), 0, capacity)
            grown = mmap.mmap(self._f.fileno(), capacity)
        except OSError as error:
            log.warning("a file of counters cannot grow: %s; new ones are not seen by others", error.strerror)
            grown = mmap.mmap(-1, capacity)
        grown[: self._capacity] = self._m[:]
        self._m, self._capacity = grown, capacity

    def close(self) -> None:
        """Let go of it; a forked process may have closed its descriptor already."""
        with contextlib.suppress(OSError):
            super().close()  # type: ignore[no-untyped-call]


def _fill_holes(filename: str) -> None:
    """Give every byte of a file, which is made if need be, its block. Raises OSError."""
    with Path(filename).open("ab") as file:
        os.posix_fallocate(file.fileno(), 0, max(_FIRST_BYTES, os.fstat(file.fileno()).st_size))
