"""The programs in Go that tests run: built from their sources when these have changed, otherwise taken from .tools."""

import fcntl
import hashlib
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import pytest
from announcement import announce

_TOOLS = Path(__file__).parents[1] / ".tools"
_REPORT_SECONDS = 10.0
"""Between two lines about a build that goes on."""


@dataclass(frozen=True)
class GoProgram:
    """A Go module in a folder of tests, the fixture that gives its program to tests, and what it is for people."""

    sources: Path
    fixture: str
    title: str
    packages: tuple[str, ...] = (".",)
    """Its main packages: with several, what is built is a directory with a program of each."""
    tags: str = ""
    modfile: str = ""
    """Another go.mod than the module's own, as a path in the sources: the same program of other versions."""
    name: str = ""
    """The program's, where its package is not the module's own but of a module that it requires."""

    def built(self, go: str, say: Callable[[str], None]) -> Path:
        """The program of these sources and this Go. Builds it once, whoever else wants it at the same time.

        From nothing that takes minutes, mostly for downloads and Kubernetes' packages, which Go keeps in its own
        caches. Raises RuntimeError with the compiler's words.
        """
        directory = _TOOLS / self.sources.parent.name
        path = directory / f"{self._name}-{self._fingerprint(go)}"
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                self._build(go, path, say)
        return path

    def build_before(self, item: pytest.Item) -> None:
        """Build it when a test that needs it is about to run, and before its time counts: a test may take less.

        Tests that need it not go on meanwhile, on the other workers.
        """
        if self.fixture not in getattr(item, "fixturenames", ()) or (go := shutil.which("go")) is None:
            return
        with suppress(RuntimeError):  # the fixture meets it again, and fails the tests with it
            self.built(go, partial(announce, item.config))

    def _fingerprint(self, go: str) -> str:
        versions = self.sources / (self.modfile or "go.mod")
        files = [*sorted(self.sources.rglob("*.go")), versions, versions.with_suffix(".sum")]
        content = b"".join(str(each.relative_to(self.sources)).encode() + each.read_bytes() for each in files)
        return hashlib.sha256(_version(go, self.sources) + content).hexdigest()[:12]

    def _build(self, go: str, path: Path, say: Callable[[str], None]) -> None:
        for earlier in path.parent.glob(f"{self._name}-*"):
            shutil.rmtree(earlier) if earlier.is_dir() else earlier.unlink()
        say(f"{self.title}: fetching its Go modules, 0.6 GB the first time")
        listed = self._run([go, "list", "-mod=readonly", "-deps", *self._arguments])
        packages = listed.count("\n")
        say(f"{self.title}: compiling, minutes the first time")
        unfinished = path.with_name("unfinished")
        to = unfinished if len(self.packages) == 1 else f"{unfinished}/"
        since = reported = time.monotonic()
        command = [go, "build", "-v", "-mod=readonly", "-buildvcs=false", "-ldflags=-s -w", "-o", to, *self._arguments]
        with subprocess.Popen(command, cwd=self.sources, stderr=subprocess.PIPE, text=True) as building:
            output = []
            for line in building.stderr or ():  # a package that is compiled, or a compiler's error
                output.append(line)
                if time.monotonic() - reported >= _REPORT_SECONDS:
                    reported = time.monotonic()
                    say(f"{self.title}: {len(output)} of {packages} packages after {reported - since:.0f} s")
        if building.returncode:
            raise RuntimeError(f"{self.sources} does not build:\n{''.join(output)[-4000:]}")
        unfinished.rename(path)

    @property
    def _arguments(self) -> list[str]:
        options = {"-tags": self.tags, "-modfile": self.modfile}
        return [*(f"{name}={value}" for name, value in options.items() if value), *self.packages]

    @property
    def _name(self) -> str:
        if self.name:
            return self.name
        return f"{self.sources.name}_{Path(self.modfile).stem}" if self.modfile else self.sources.name

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(command, cwd=self.sources, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{self.sources}: {' '.join(command)} failed:\n{done.stderr[-4000:]}")
        return done.stdout


@cache
def _version(go: str, module: Path) -> bytes:
    return subprocess.run([go, "env", "GOVERSION"], check=True, capture_output=True, cwd=module).stdout


SAMPLE_PLUGIN = GoProgram(
    Path(__file__).with_name("kubelet") / "harness",
    "sample_plugin",
    "Kubernetes' sample device plugin",
    packages=("k8s.io/kubernetes/test/images/sample-device-plugin",),
    name="sample-device-plugin",
)
"""Of the Kubernetes release whose kubelet the tests run beside; its fixture is `sample_plugin`."""
