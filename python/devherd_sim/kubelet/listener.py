"""A gRPC server on a Unix socket whose file stays behind when the server is gone, as a killed kubelet's does.

gRPC unlinks the path it has bound. So it binds a private one, and the public path is a hard link to it: connecting
works through either, and the link survives.
"""

import contextlib
import itertools
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc

from devherd.errors import AlreadyRunningError, UsageError

_numbers = itertools.count()
_PRIVATE = ".sim-kubelet-"
_LONGEST_PATH = 107  # bytes: sun_path of unix(7), less the zero at its end


class Listener:
    """One server. `add_services` adds what it serves; it listens when `open` returns."""

    def __init__(
        self,
        public: Path,
        private_directory: Path,
        add_services: Callable[[grpc.aio.Server], None],
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    ) -> None:
        self._public = public
        self._private = private_directory / f"{_PRIVATE}{os.getpid()}-{next(_numbers)}.sock"
        self._add_services = add_services
        self._interceptors = interceptors
        self._server: grpc.aio.Server | None = None

    async def open(self) -> None:
        """Serve. Raises UsageError when the path is too long for a socket, OSError when it cannot be made."""
        if len(os.fsencode(self._private)) > _LONGEST_PATH or len(os.fsencode(self._public)) > _LONGEST_PATH:
            raise UsageError(
                f"{self._public} is too long for a socket",
                f"{_LONGEST_PATH} bytes is the limit",
                "use a shorter directory",
            )
        self._server = grpc.aio.server(interceptors=self._interceptors)
        self._add_services(self._server)
        self._private.unlink(missing_ok=True)
        try:
            self._server.add_insecure_port(f"unix:{self._private}")
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self._private}: {error}") from error
        await self._server.start()
        self._public.unlink(missing_ok=True)
        os.link(self._private, self._public)

    async def close(self, *, leave_file: bool) -> None:
        """End every call and the server. Closing again is fine."""
        if self._server is None:
            return
        await self._server.stop(grace=None)
        self._server = None
        self._private.unlink(missing_ok=True)
        if not leave_file:
            self._public.unlink(missing_ok=True)


def refuse_second(public: Path) -> None:
    """Raise AlreadyRunningError when somebody listens on a socket: a real kubelet, or another simulated one."""
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        probe.connect(str(public))
        raise AlreadyRunningError(
            f"{public} is taken", "a kubelet listens there", "give another directory with --kubelet-dir"
        )


def remove_leftovers(private_directory: Path) -> None:
    """Remove private sockets of simulated kubelets that were killed here."""
    for path in private_directory.glob(f"{_PRIVATE}*.sock"):
        path.unlink(missing_ok=True)
