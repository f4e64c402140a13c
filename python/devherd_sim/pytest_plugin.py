"""The pytest fixture `devherd_kubelet`, for the tests of any device plugin: docs/test-your-plugin.md.

pytest loads it automatically when devherd is installed. It imports nothing of devherd before a test uses it.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

START_SECONDS = 30.0
OPTIONS = ("kubernetes", "topology_policy", "numa_nodes", "grace_period")
"""The options of the marker; `devherd sim kubelet` has the same ones."""
REFUSAL = "refused by devherd_kubelet.refuse"

_SIM_KUBELET = (sys.executable, "-m", "devherd", "sim", "kubelet")


class Kubelet:
    """An embedded kubelet with its own process and directory.

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

        self.programs: list[subprocess.Popen[Any]] = []
        """What `run` has started."""

    def run(self, command: Sequence[str | Path], **words: Any) -> "subprocess.Popen[Any]":
        """Start a plugin that sees this kubelet at /var/lib/kubelet; it ends with the test.

        `words` are passed to `subprocess.Popen`. The plugin's child processes (as with `go run`) end with it.
        """
        inside = ["exec", "--timeout", "0", "--end-with-parent", "--kubelet-dir", str(self.directory), "--"]
        words = {"start_new_session": True, **words}
        process: subprocess.Popen[Any] = subprocess.Popen([*_SIM_KUBELET, *inside, *map(str, command)], **words)
        self.programs.append(process)
        return process

    def wait(
        self,
        resource: str,
        *,
        allocatable: int | None = None,
        capacity: int | None = None,
        registrations: int | None = None,
        gone: bool = False,
        timeout: float = 10.0,
    ) -> dict[str, Any]:
        """Wait for numbers of devices, at least `registrations` calls of Register, or the end of the plugin (`gone`).

        Without any of them: wait until the resource's plugin has sent a list.
        """
        numbers = {"allocatable": allocatable, "capacity": capacity, "registrations": registrations}
        answer: dict[str, Any] = self._ask("wait", resource=resource, gone=gone, seconds=timeout, **numbers)
        return answer

    def check(
        self,
        *resources: str,
        restart: bool = True,
        down: float = 10.0,
        timeout: float = 30.0,
        ignore: Iterable[str] = (),
    ) -> list[dict[str, str]]:
        """Check plugins and return their problems, except those of `ignore`.

        `down`: seconds that the kubelet is away in its restart; `timeout`: seconds to register again after it.
        """
        words = {"restart": restart, "seconds": timeout, "down": down, "ignored": list(ignore)}
        answer: list[dict[str, str]] = self._ask("check", resources=list(resources), **words)
        return answer

    def status(self) -> dict[str, Any]:
        """The resources, with plugin and last error, and the allocations."""
        answer: dict[str, Any] = self._ask("status")
        return answer

    def devices(self, resource: str | None = None) -> list[dict[str, Any]]:
        """The devices of a resource, or of all: `id`, `health`, `numa_nodes` and `pod`."""
        answer: list[dict[str, Any]] = self._ask("devices", resource=resource)
        return answer

    def health(self, resource: str) -> dict[str, str]:
        """The health of each device, by id."""
        return {device["id"]: device["health"] for device in self.devices(resource)}

    def allocate(
        self, resource: str, count: int = 1, *, pod: str = "pod", container: str = "main"
    ) -> dict[str, Any] | None:
        """Allocate devices and return the container's edits; None if no plugin has registered the resource."""
        answer: dict[str, Any] | None = self._ask(
            "allocate", resource=resource, count=count, pod=pod, container=container
        )
        return answer

    def admit(self, pod: Mapping[str, Any] | str | Path) -> list[dict[str, Any]]:
        """Admit a pod (a manifest or the path of a YAML file) and return each container's edits."""
        from devherd_sim.kubelet.pod import load  # noqa: PLC0415 - every run of pytest imports this module

        manifest = load(Path(pod)) if isinstance(pod, str | Path) else pod
        answer: list[dict[str, Any]] = self._ask("admit", manifest=manifest)
        return answer

    def free(self, pod: str = "pod") -> list[dict[str, Any]]:
        """End a pod; returns the devices that it held."""
        answer: list[dict[str, Any]] = self._ask("free", pod=pod)
        return answer

    def stop(self) -> None:
        """Stop the kubelet: its sockets stay and refuse connections."""
        self._ask("stop")

    def start(self) -> None:
        """Start the kubelet after `stop`: it removes all sockets, and every plugin must register again."""
        self._ask("start")

    def restart(self, *, down: float = 0.0) -> None:
        """Stop the kubelet, and start it `down` seconds later."""
        self._ask("restart", down=down)

    def refuse(self, resource: str, *, times: int = 1, error: str = REFUSAL, delay: float = 0.0) -> None:
        """Refuse the next calls of Register for a resource, after `delay` seconds."""
        self._ask("refuse", resource=resource, times=times, error=error, delay=delay)

    def delay(self, resource: str, seconds: float, *, times: int = 1) -> None:
        """Delay the answers to the next calls of Register for a resource by `seconds`."""
        self._ask("delay", resource=resource, times=times, delay=seconds)

    def events(self) -> list[dict[str, Any]]:
        """The events since the start."""
        answer: list[dict[str, Any]] = self._ask("events", since=0)["events"]
        return answer

    def _ask(self, command: str, **words: Any) -> Any:
        from devherd_sim.kubelet.control import ask  # noqa: PLC0415 - every run of pytest imports this module

        return ask(self.directory, command, **words)


@pytest.fixture
def devherd_kubelet(request: pytest.FixtureRequest) -> Iterator[Kubelet]:
    """A kubelet's device manager that a device plugin may register with; it ends with the test.

    The marker `devherd_kubelet` has its options: `kubernetes`, `topology_policy`, `numa_nodes` and `grace_period`. The
    ini option `devherd_kubernetes` lists releases: each test is then run with each, unless the marker names one.
    """
    releases = {"kubernetes": request.param} if hasattr(request, "param") else {}
    directory = Path(tempfile.mkdtemp(prefix="kubelet-"))  # the path of a socket is limited; tmp_path may be too long
    try:
        with _running(directory, releases | _options(request.node)) as kubelet:
            yield kubelet
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the ini option."""
    parser.addini("devherd_kubernetes", "releases that the fixture devherd_kubelet is tested with", "args")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test of the fixture with every release of the ini option, unless a marker chooses one."""
    releases = metafunc.config.getini("devherd_kubernetes")
    chosen = any("kubernetes" in marker.kwargs for marker in metafunc.definition.iter_markers("devherd_kubelet"))
    if releases and not chosen and "devherd_kubelet" in metafunc.fixturenames:
        metafunc.parametrize("devherd_kubelet", releases, indirect=True)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    names = ", ".join(f"{name}=…" for name in OPTIONS)
    config.addinivalue_line("markers", f"devherd_kubelet({names}): what the fixture devherd_kubelet is like")


def _options(node: pytest.Item) -> dict[str, Any]:
    """The markers' options: a test's own marker overrides the markers of its class and module."""
    options: dict[str, Any] = {}
    for marker in reversed(list(node.iter_markers("devherd_kubelet"))):
        if marker.args or (unknown := marker.kwargs.keys() - set(OPTIONS)):
            wrong = f"`{min(unknown)}`" if not marker.args else "values without a name"
            pytest.fail(f"marker devherd_kubelet: {wrong}; its options are {', '.join(OPTIONS)}", pytrace=False)
        options |= marker.kwargs
    return options


@contextlib.contextmanager
def _running(directory: Path, options: Mapping[str, Any]) -> Iterator[Kubelet]:
    kubelet = Kubelet(directory)
    given = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    command = [*_SIM_KUBELET, "--end-with-parent", "--kubelet-dir", str(directory), *given]
    with kubelet.log.open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _await(kubelet, process)
            yield kubelet
        finally:
            for program in kubelet.programs:
                _end(program)
            process.terminate()


def _end(program: "subprocess.Popen[Any]") -> None:
    if program.poll() is None:
        group = os.getpgid(program.pid)
        os.killpg(group, signal.SIGKILL) if group == program.pid else program.kill()
        program.wait()


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
