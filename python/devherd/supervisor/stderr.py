"""The supervisor's stderr, where its own log and that of every child goes: who reads it must not stall the herd.

What a full pipe does not take after a short wait is lost; how much was lost is said once the reader goes on. The log
files of the children still have it.
"""

import os
import select

PATIENCE_SECONDS = 0.2
_SURE_TO_FIT = select.PIPE_BUF  # a pipe that polls as writable takes this many bytes without blocking


class Stderr:
    """Writes to a descriptor that may be a pipe, a terminal or a file. Serves `logging` as a stream, too."""

    def __init__(self, descriptor: int = 2) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._lost = 0

    def write(self, text: str) -> None:
        """Write text, or lose it."""
        self.send(text.encode(errors="replace"))

    def flush(self) -> None:
        """Nothing is held back."""

    def send(self, data: bytes) -> None:
        """Write bytes, or lose them."""
        if self._lost and self._takes_more(0):
            lost, self._lost = self._lost, 0
            self._send(f"devherd: {lost} bytes of log lost: stderr was not read in time\n".encode())
        self._send(data)

    def _send(self, data: bytes) -> None:
        while data:
            if not self._takes_more(0 if self._lost else PATIENCE_SECONDS):
                self._lost += len(data)
                return
            try:
                written = os.write(self._descriptor, data[:_SURE_TO_FIT])
            except OSError:  # closed, or a disk that is full: there is no other place to say so
                self._lost += len(data)
                return
            data = data[written:]

    def _takes_more(self, seconds: float) -> bool:
        return any(event & select.POLLOUT for _, event in self._poll.poll(seconds * 1000))
