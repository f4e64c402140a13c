"""kubelet, kube-apiserver, kube-scheduler, etcd and the fake runtime, as one program: built when its sources change."""

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

SOURCES = Path(__file__).with_name("programs")
BUILT = Path(__file__).parents[2] / ".tools" / "cluster"


def program(go: str, say: Callable[[str], None]) -> Path:
    """The program of these sources and this Go. Builds it once, whoever else wants it at the same time.

    From nothing that takes minutes, mostly for downloads and Kubernetes' packages, which Go keeps in its own caches.
    Raises RuntimeError with the compiler's words.
    """
    path = BUILT / f"programs-{_fingerprint(go)}"
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            say("building kubelet, kube-apiserver, kube-scheduler and etcd, some minutes the first time")
            _build(go, path)
    return path


def found() -> str | None:
    """The Go toolchain on PATH."""
    return shutil.which("go")


def _fingerprint(go: str) -> str:
    version = subprocess.run([go, "env", "GOVERSION"], check=True, capture_output=True, cwd=SOURCES).stdout
    sources = sorted(each for each in SOURCES.rglob("*") if each.suffix in {".go", ".mod", ".sum"})
    content = b"".join(str(each.relative_to(SOURCES)).encode() + each.read_bytes() for each in sources)
    return hashlib.sha256(version + content).hexdigest()[:12]


def _build(go: str, path: Path) -> None:
    for earlier in BUILT.glob("programs-*"):
        earlier.unlink()
    unfinished = path.with_name("unfinished")
    command = [go, "build", "-mod=readonly", "-buildvcs=false", "-ldflags=-s -w", "-o", unfinished, "."]
    done = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the programs of the cluster do not build:\n{done.stderr[-4000:]}")
    unfinished.rename(path)
