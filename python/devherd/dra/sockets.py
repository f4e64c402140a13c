"""The sockets of the drivers: their paths, and a server at one of them.

Paths are fixed, for the kubelet's events and those who look after a node are by them: `<driver>-<a|b>-reg.sock` where
the kubelet finds plugins, and `<driver>/dra-<a|b>.sock` in its directory of plugins. Where a path would be too long for
a socket, `devherd-<8 hex of the driver's hash>` stands for the driver.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import grpc.aio

from devherd.errors import UsageError
from devherd.kubelet import deadline
from devherd.kubelet.endpoint import MAX_PATH_BYTES, SocketFile
from devherd.kubelet.registration import bind
from devherd.settings import Settings


def registration_socket(settings: Settings, driver: str, letter: str) -> Path:
    """Where the kubelet finds the driver of process `dra:<letter>`."""
    path = settings.plugins_registry / f"{driver}-{letter}-reg.sock"
    return path if fits(path) else path.with_name(f"{_short(driver)}-{letter}-reg.sock")


def service_socket(settings: Settings, driver: str, letter: str) -> Path:
    """Where process `dra:<letter>` serves the driver."""
    path = settings.plugins_directory / driver / f"dra-{letter}.sock"
    return path if fits(path) else settings.plugins_directory / _short(driver) / path.name


def fits(path: Path) -> bool:
    """Whether a socket can have this path; the kubelet refuses longer ones as the kernel does."""
    return len(os.fsencode(path)) <= MAX_PATH_BYTES


def _short(driver: str) -> str:
    import hashlib  # noqa: PLC0415 - hardly any path is so long

    return f"devherd-{hashlib.sha256(driver.encode()).hexdigest()[:8]}"


class SocketServer(SocketFile):
    """A gRPC server at a fixed path. It is bound beside the path and renamed, so another file there is replaced.

    gRPC removes the path to which a server was bound when that ends: by then, another process may have this one.
    """

    def __init__(self, path: Path, add_services: Callable[[grpc.aio.Server], None]) -> None:
        super().__init__(path)
        self._add_services = add_services
        self._server: grpc.aio.Server | None = None

    def check(self) -> None:
        """Raises UsageError for a path too long, OSError if something is in the way, or the directory is missing."""
        if not fits(self.path):
            raise UsageError(
                f"{self.path.parent}: cannot hold the driver's socket",
                f"its path would have {len(os.fsencode(self.path))} bytes and the kernel's limit is {MAX_PATH_BYTES}",
                "choose a shorter --kubelet-root-dir",
            )
        if self.path.is_dir():
            raise IsADirectoryError(f"{self.path} is a directory: remove it")
        directory = self.path.parent
        if not directory.is_dir():
            missing = directory if directory.parent.is_dir() else directory.parent
            raise FileNotFoundError(f"{missing} is no directory, or does not exist — in a pod, mount it as on the host")

    async def open(self) -> None:
        """Serve at the path, called once.

        Raises UsageError for a path too long, OSError if it cannot be bound, MuteError if gRPC does not start it.
        """
        self.check()
        beside = self.path.with_name(f".{os.urandom(3).hex()}")  # hidden from the kubelet by the dot
        server = grpc.aio.server()
        self._add_services(server)
        bind(server, beside)
        try:
            starting = asyncio.create_task(server.start())
            await deadline.over(starting)
            starting.result()
            self.bound(beside)
            beside.rename(self.path)
        except OSError as error:
            await deadline.stop(server, None)
            raise OSError(f"cannot serve at {self.path}: {error.strerror or error}") from error
        finally:
            beside.unlink(missing_ok=True)
        self._server = server

    async def close(self, grace: float) -> None:
        """End the server; its calls have `grace` seconds, and its connections end with the last. Raises MuteError."""
        server, self._server = self._server, None
        if server is not None:
            await deadline.stop(server, grace or None)
        self.remove()
