"""The pytest fixture `devherd_kubelet`, for the tests of any device plugin: docs/test-your-plugin.md.

pytest finds it by itself where devherd is installed. It needs nothing of devherd before a test asks for it.
"""

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

START_SECONDS = 30.0


class Kubelet:
    """An embedded kubelet as a process of its own, on a directory of its own.

    Answers are those of `devherd sim kubelet ACTION --output json`. A request that is refused raises
    `devherd.errors.DevherdError`: what, why and what to do about it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        """What `--kubelet-dir` names."""
        self.plugin_directory = directory / "device-plugins"
        """Where a plugin puts its socket, as in /var/lib/kubelet."""
        self.socket = self.plugin_directory / "kubelet.sock"
        """Where a plugin calls Register."""
        self.log = directory / "log"
        """What has happened, a line each."""

    def wait(self, resource: str, *, allocatable: int | None = None, timeout: float = 10.0) -> dict[str, Any]:
        """Until a plugin has registered the resource and listed its devices, so many of them Healthy."""
        answer: dict[str, Any] = self._ask("wait", resource=resource, allocatable=allocatable, seconds=timeout)
        return answer

    def check(self, *resources: str, restart: bool = True, timeout: float = 10.0) -> list[dict[str, str]]:
        """What is amiss with plugins; `timeout` is for their return after a restart of the kubelet."""
        answer: list[dict[str, str]] = self._ask("check", resources=list(resources), restart=restart, seconds=timeout)
        return answer

    def status(self) -> dict[str, Any]:
        """Each resource, its plugin and its last error; who holds what."""
        answer: dict[str, Any] = self._ask("status")
        return answer

    def devices(self, resource: str) -> dict[str, str]:
        """The health of each device, by id."""
        return {device["id"]: device["health"] for device in self._ask("devices", resource=resource)}

    def allocate(
        self, resource: str, count: int = 1, *, pod: str = "pod", container: str = "main"
    ) -> dict[str, Any] | None:
        """What a container gets; None when no plugin has registered the resource."""
        answer: dict[str, Any] | None = self._ask(
            "allocate", resource=resource, count=count, pod=pod, container=container
        )
        return answer

    def free(self, pod: str = "pod") -> list[dict[str, Any]]:
        """A pod is over: what it held."""
        answer: list[dict[str, Any]] = self._ask("free", pod=pod)
        return answer

    def restart(self) -> None:
        """Stop and start: it removes all sockets, and every plugin must register again."""
        self._ask("restart")

    def events(self) -> list[dict[str, Any]]:
        """What has happened since the start."""
        answer: list[dict[str, Any]] = self._ask("events", since=0)["events"]
        return answer

    def _ask(self, command: str, **words: Any) -> Any:
        from devherd_sim.kubelet.control_client import ask  # noqa: PLC0415 - every run of pytest imports this module

        return ask(self.directory, command, **words)


@pytest.fixture
def devherd_kubelet() -> Iterator[Kubelet]:
    """A kubelet's device manager that a device plugin may register with; it ends with the test."""
    directory = Path(tempfile.mkdtemp(prefix="kubelet-"))  # a socket's path is short; tmp_path may not be
    try:
        with _running(directory) as kubelet:
            yield kubelet
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _running(directory: Path) -> Iterator[Kubelet]:
    kubelet = Kubelet(directory)
    command = [sys.executable, "-m", "devherd", "sim", "kubelet", "--kubelet-dir", str(directory)]
    with kubelet.log.open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _await(kubelet, process)
            yield kubelet
        finally:
            process.terminate()


def _await(kubelet: Kubelet, process: "subprocess.Popen[bytes]") -> None:
    from devherd.errors import UnreachableError  # noqa: PLC0415 - as above

    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            kubelet.status()
        except UnreachableError:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the embedded kubelet did not start: {kubelet.log.read_text()}", pytrace=False)
            time.sleep(0.05)
        else:
            return
