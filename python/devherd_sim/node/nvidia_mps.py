"""NVIDIA's MPS control daemon of one resource, as far as others see it: the sockets in its pipe directory.

The directories are those of the vendor's own DaemonSet, the sockets those of the daemon: both of kind SEQPACKET.
"""

import os
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

SOCKETS = ("control", "control_privileged")


class MpsDaemon:
    """Lives from `start` to `kill`, which leaves its sockets' files behind, as a death does."""

    def __init__(self, root: Path, mps_root: str, resource_name: str) -> None:
        self.directory = root / mps_root.lstrip("/") / resource_name
        self._sockets: list[socket.socket] = []

    def start(self) -> Self:
        """Make the directories, then listen."""
        pipe = self.directory / "pipe"
        for made in (pipe, self.directory / "log", self.directory.parents[1] / "shm"):
            made.mkdir(parents=True, exist_ok=True)
        opened = os.open(pipe, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in SOCKETS:
                (pipe / name).unlink(missing_ok=True)
                listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                self._sockets.append(listening)
                # A socket's address has 108 bytes at most.
                listening.bind(f"/proc/self/fd/{opened}/{name}")
                listening.listen()
        finally:
            os.close(opened)
        return self

    def kill(self) -> None:
        """Nobody listens any more."""
        while self._sockets:
            self._sockets.pop().close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
