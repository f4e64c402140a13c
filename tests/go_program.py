"""The programs in Go that tests run: built from their sources when these have changed, otherwise taken from .tools."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

_TOOLS = Path(__file__).parents[1] / ".tools"


@dataclass(frozen=True)
class GoProgram:
    """A Go module in a folder of tests, and what a developer reads while it is built."""

    sources: Path
    announcement: str

    def built(self, go: str, say: Callable[[str], None]) -> Path:
        """The program of these sources and this Go. Builds it once, whoever else wants it at the same time.

        From nothing that takes minutes, mostly for downloads and Kubernetes' packages, which Go keeps in its own
        caches. Raises RuntimeError with the compiler's words.
        """
        directory = _TOOLS / self.sources.parent.name
        path = directory / f"{self.sources.name}-{self._fingerprint(go)}"
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                say(self.announcement)
                self._build(go, path)
        return path

    def build_before(self, session: pytest.Session) -> None:
        """Build it when tests beside its sources are about to run: the first build takes longer than a test may."""
        wanted = any(self.sources.parent in item.path.parents for item in session.items)
        go = shutil.which("go")
        if not wanted or go is None or session.config.option.collectonly:
            return
        capture = session.config.pluginmanager.getplugin("capturemanager")

        def say(text: str) -> None:
            with capture.global_and_fixture_disabled():
                print(f"\n{text}", file=sys.stderr, flush=True)

        with suppress(RuntimeError):  # the fixture meets it again, and fails the tests with it
            self.built(go, say)

    def _fingerprint(self, go: str) -> str:
        version = subprocess.run([go, "env", "GOVERSION"], check=True, capture_output=True, cwd=self.sources).stdout
        files = sorted(each for each in self.sources.rglob("*") if each.suffix in {".go", ".mod", ".sum"})
        content = b"".join(str(each.relative_to(self.sources)).encode() + each.read_bytes() for each in files)
        return hashlib.sha256(version + content).hexdigest()[:12]

    def _build(self, go: str, path: Path) -> None:
        for earlier in path.parent.glob(f"{self.sources.name}-*"):
            earlier.unlink()
        unfinished = path.with_name("unfinished")
        command = [go, "build", "-mod=readonly", "-buildvcs=false", "-ldflags=-s -w", "-o", unfinished, "."]
        done = subprocess.run(command, cwd=self.sources, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{self.sources} does not build:\n{done.stderr[-4000:]}")
        unfinished.rename(path)
