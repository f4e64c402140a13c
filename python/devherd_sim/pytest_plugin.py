"""The pytest fixture `devherd_kubelet`, for the tests of any device plugin: docs/test-your-plugin.md.

pytest loads it automatically when devherd is installed. It imports nothing of devherd before a test uses it.
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

    Methods return the JSON of `devherd sim kubelet ACTION --output json`. A refused request raises
    `devherd.errors.DevherdError` with its cause and remedy.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        """The directory for `--kubelet-dir`."""
        self.plugin_directory = directory / "device-plugins"
        """The directory for the plugin's socket, as in /var/lib/kubelet."""
        self.socket = self.plugin_directory / "kubelet.sock"
        """The socket on which a plugin calls Register."""
        self.log = directory / "log"
        """The kubelet's log, a line for each event."""

    def wait(self, resource: str, *, allocatable: int | None = None, timeout: float = 10.0) -> dict[str, Any]:
        """Wait until exactly `allocatable` devices are allocatable; None: until the plugin has sent a list."""
        answer: dict[str, Any] = self._ask("wait", resource=resource, allocatable=allocatable, seconds=timeout)
        return answer

    def check(self, *resources: str, restart: bool = True, timeout: float = 10.0) -> list[dict[str, str]]:
        """Check plugins and return their problems. `timeout`: seconds to register again after a kubelet restart."""
        answer: list[dict[str, str]] = self._ask("check", resources=list(resources), restart=restart, seconds=timeout)
        return answer

    def status(self) -> dict[str, Any]:
        """The resources, with plugin and last error, and the allocations."""
        answer: dict[str, Any] = self._ask("status")
        return answer

    def devices(self, resource: str) -> dict[str, str]:
        """The health of each device, by id."""
        return {device["id"]: device["health"] for device in self._ask("devices", resource=resource)}

    def allocate(
        self, resource: str, count: int = 1, *, pod: str = "pod", container: str = "main"
    ) -> dict[str, Any] | None:
        """Allocate devices and return the container's edits; None if no plugin has registered the resource."""
        answer: dict[str, Any] | None = self._ask(
            "allocate", resource=resource, count=count, pod=pod, container=container
        )
        return answer

    def free(self, pod: str = "pod") -> list[dict[str, Any]]:
        """End a pod; returns the devices that it held."""
        answer: list[dict[str, Any]] = self._ask("free", pod=pod)
        return answer

    def restart(self) -> None:
        """Stop and start the kubelet: it removes all sockets, and every plugin must register again."""
        self._ask("restart")

    def events(self) -> list[dict[str, Any]]:
        """The events since the start."""
        answer: list[dict[str, Any]] = self._ask("events", since=0)["events"]
        return answer

    def _ask(self, command: str, **words: Any) -> Any:
        from devherd_sim.kubelet.control import ask  # noqa: PLC0415 - every run of pytest imports this module

        return ask(self.directory, command, **words)


@pytest.fixture
def devherd_kubelet() -> Iterator[Kubelet]:
    """A kubelet's device manager that a device plugin may register with; it ends with the test."""
    directory = Path(tempfile.mkdtemp(prefix="kubelet-"))  # the path of a socket is limited; tmp_path may be too long
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
