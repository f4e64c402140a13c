"""devherd with a simulated node and an embedded kubelet, below one directory: for demo, tests and benches.

async with Testbed(Path("/tmp/testbed"), preset("fpga-8")) as testbed:
    await testbed.kubelet.until_allocatable(name, 4)
    faults.inject(testbed.node, "fpga-errors", "dfl-port.0")
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from devherd import spool
from devherd.proto import spool_pb2
from devherd.settings import Settings
from devherd_sim.kubelet.manager import EmbeddedKubelet
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec

STOP_SECONDS = 20.0
PATIENCE_SECONDS = 60.0
"""Only prevents hanging; generous, because a busy machine is slow."""

Value = TypeVar("Value")


class Testbed:
    """Uses `node`, `kubelet`, `run`, `config.yaml`, `herd.log` in a directory. Its path must be short (sockets)."""

    __test__ = False  # pytest would collect it because of its name

    def __init__(self, directory: Path, spec: NodeSpec, config: dict[str, Any] | None = None) -> None:
        self.directory = directory
        self.settings = Settings(
            config_path=directory / "config.yaml",
            host_root=directory / "node",
            kubelet_dir=directory / "kubelet",
            run_dir=directory / "run",
            listen=f"127.0.0.1:{free_port()}",
        )
        self.command: tuple[str, ...] = (sys.executable, "-m", "devherd")
        self.configure(config or {})
        self.node = SimulatedNode.create(self.settings.host_root, spec)
        self.kubelet = EmbeddedKubelet(self.settings.kubelet_dir)
        self.herd: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self.kubelet.start()
        await self.start_herd()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop_herd()
        await self.kubelet.stop(clean=True)

    @property
    def log(self) -> str:
        """The herd's stderr so far."""
        path = self.directory / "herd.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def configure(self, config: dict[str, Any]) -> None:
        """Write the configuration file as JSON, which is YAML."""
        (self.directory / "config.yaml").write_text(json.dumps(config), encoding="utf-8")

    async def start_herd(self, *more: str, listens: bool = True) -> float:
        """Start `devherd run` with more options. Returns the monotonic time of the start in seconds.

        Without `listens`, the configuration sets the address to listen on.
        """
        settings = self.settings
        options = [
            f"--config={settings.config_path}",
            f"--host-root={settings.host_root}",
            f"--kubelet-dir={settings.kubelet_dir}",
            f"--run-dir={settings.run_dir}",
            *([f"--listen={settings.listen}"] if listens else []),
            *more,
        ]
        log = os.open(self.directory / "herd.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        started = time.monotonic()
        self.herd = await asyncio.create_subprocess_exec(*self.command, "run", *options, stderr=log)
        os.close(log)
        return started

    async def stop_herd(self, number: int = signal.SIGTERM) -> int | None:
        """Stop the herd and return its exit code; None if it was never started. Sends SIGKILL after STOP_SECONDS."""
        herd = self.herd
        if herd is None or herd.returncode is not None:
            return herd.returncode if herd else None
        herd.send_signal(number)
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(herd.wait(), STOP_SECONDS)
        herd.kill()
        return await herd.wait()

    def children(self) -> dict[str, spool_pb2.Child]:
        """The supervisor's children by name."""
        try:
            children = spool.read(self.settings.children_file, spool_pb2.Children).children
        except (FileNotFoundError, spool.SpoolError):
            return {}
        return {child.name: child for child in children}

    def runs(self, *names: str) -> bool:
        """True if these children, or all without names, are RUNNING in the supervisor's last report."""
        children = self.children()
        return bool(children) and all(
            name in children and children[name].state == "RUNNING" for name in names or children
        )

    async def child(self, name: str) -> spool_pb2.Child:
        """Wait until the supervisor reports a child as RUNNING and return it; the kubelet may see it earlier.

        Its process exists: old reports, which may name an ended process or none, are skipped.
        """
        await self.until(lambda: self.runs(name), f"{name} runs")

        def with_process() -> spool_pb2.Child | None:
            child = self.children().get(name)
            has_process = child is not None and child.pid and Path(f"/proc/{child.pid}").exists()
            return child if has_process and self.runs(name) else None

        return await self.until(with_process, f"{name} has a process")

    async def child_of(self, resource_name: str) -> spool_pb2.Child:
        """Wait until the supervisor reports the child of a resource as RUNNING and return it."""
        return await self.child(f"resource:{spool.key_of(resource_name)}")

    async def until(
        self,
        condition: Callable[[], Value | None],
        what: str,
        timeout: float = PATIENCE_SECONDS,  # noqa: ASYNC109
    ) -> Value:
        """Poll a condition every millisecond until it is true, and return its value. Raises TimeoutError."""
        deadline = time.monotonic() + timeout
        while not (value := condition()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {timeout} s; the herd's log ends in\n{self.log[-2000:]}")
            await asyncio.sleep(0.001)
        return value


_RESERVED: list[socket.socket] = []


def free_port() -> int:
    """A free TCP port of the loopback address, reserved as long as this process lives.

    A listener on it needs SO_REUSEADDR, which `asyncio` and `socket.create_server` set.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    _RESERVED.append(reserved)
    port: int = reserved.getsockname()[1]
    return port
