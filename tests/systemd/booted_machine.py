"""A machine that a real systemd boots: Debian's, in systemd-nspawn, with a network of its own and no devices.

Its root is a copy of one that debootstrap makes once, from the machine's own source of packages.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import wheel
from not_tested import not_tested

CHECKOUT = Path(__file__).parents[2]
ROOTS = CHECKOUT / ".tools" / "systemd"
RELEASE = "bookworm"
"""systemd 252, as in RHEL 9, with Python 3.11."""
PACKAGES = ("systemd", "systemd-sysv", "dbus", "python3", "python3-venv", "procps")
PATIENCE_SECONDS = 120.0


class BootedMachine:
    """`run` runs a command in it; files of its root are below `root`."""

    Failure = subprocess.CalledProcessError

    def __init__(self, nspawn: str, pristine: Path, wheels: Path) -> None:
        self._nspawn = nspawn
        self._wheels = wheels
        self.directory = Path(tempfile.mkdtemp(prefix="dhboot", dir="/tmp"))  # on disk, as a node's root
        self.root = self.directory / "root"
        subprocess.run(["cp", "-a", pristine, self.root], check=True)
        self._container: subprocess.Popen[bytes] | None = None
        self._init = 0

    def boot(self) -> None:
        """Start it, and wait until systemd has started everything that is enabled."""
        options = ["--boot", "--register=no", "--keep-unit", "--private-network", "--console=passive", "--quiet"]
        # Its own filter lacks Landlock, which a machine's kernel has.
        options += ["--system-call-filter=landlock_create_ruleset landlock_add_rule landlock_restrict_self"]
        options += [f"--machine=devherd-{os.getpid()}", f"--bind-ro={self._wheels}:/wheels"]
        with (self.directory / "console").open("ab") as console:
            self._container = subprocess.Popen(
                [self._nspawn, f"--directory={self.root}", *options],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
        self.until(self._find_init, "the machine has a first process")
        up = ("running", "degraded")
        self.until(
            lambda: self.run("systemctl", "is-system-running", check=False) in up, "systemd has started everything"
        )

    def power_off(self) -> None:
        """Shut it down as an operator does."""
        assert self._container
        with contextlib.suppress(subprocess.CalledProcessError):
            self.run("systemctl", "poweroff")
        self._container.wait(PATIENCE_SECONDS)
        self._container, self._init = None, 0

    def close(self) -> None:
        """End it, however it is, and remove its files."""
        if self._container and self._container.poll() is None:
            for _ in range(2):  # the first asks it to halt, the second ends it at once
                self._container.terminate()
                time.sleep(1)
            self._container.wait(PATIENCE_SECONDS)
        shutil.rmtree(self.directory)

    def run(self, *words: str, check: bool = True) -> str:
        """What a command prints on both streams, without the last line break. Raises Failure with `check`."""
        namespaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup")
        enter = ["nsenter", f"--target={self._init}", *namespaces, f"--wd={self._root_of_init}"]
        done = subprocess.run(
            [*enter, "env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/root", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if check and done.returncode:
            print(done.stdout)
            done.check_returncode()
        return done.stdout.rstrip("\n")

    def sh(self, script: str) -> str:
        """What a shell script prints; it ends at the first command that fails."""
        return self.run("sh", "-ec", script)

    def until(self, condition, what: str) -> None:
        """Wait for something that must come; the bound is for hanging only."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"never: {what}\n{self._last_words()}"
            time.sleep(0.1)

    @property
    def _root_of_init(self) -> str:
        return f"/proc/{self._init}/root"

    def _find_init(self) -> int:
        assert self._container
        children = Path(f"/proc/{self._container.pid}/task/{self._container.pid}/children").read_text().split()
        for child in map(int, children):
            with contextlib.suppress(OSError):
                if "nspawn" not in Path(f"/proc/{child}/cmdline").read_text():  # it has become the first process
                    self._init = child
        assert self._container.poll() is None, self._last_words()
        return self._init

    def _last_words(self) -> str:
        words = (self.directory / "console").read_text(errors="replace")[-2000:]
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            words += (
                self.run("journalctl", "-u", "devherd", "--no-pager", "-n", "60", check=False) if self._init else ""
            )
        return words


def pristine_root(debootstrap: str) -> Path:
    """A root of Debian, made at the first call: minutes."""
    root = ROOTS / RELEASE
    if (root / "made").exists():
        return root / "root"
    if os.geteuid():
        not_tested("a root of Debian is made by root")
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    print(f"\nmaking a root of Debian {RELEASE} in {root}: minutes the first time", file=sys.stderr)
    mirror = _mirror()
    # With mounts of its own: it leaves /proc mounted in the root, which nothing can be removed under or copied with.
    command = ["unshare", "--mount", debootstrap, "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    command += [RELEASE, root / "root", mirror]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        not_tested(f"debootstrap cannot make a root from {mirror}: {done.stdout[-300:]}{done.stderr[-300:]}")
    (root / "made").touch()
    return root / "root"


def _mirror() -> str:
    """Where apt has Debian's packages from."""
    asked = ["apt-get", "indextargets", "--format", "$(SITE)", "Origin: Debian", "Label: Debian"]
    try:
        sites = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError) as error:
        not_tested(f"apt names no source of Debian's packages: {error}")
    return sites[0] if sites else not_tested("apt has no source of Debian's packages")


def wheelhouse(directory: Path) -> Path:
    """A directory with devherd's wheel and all that it needs for Debian's Python."""
    target = f"{os.uname().machine}-unknown-linux-gnu"
    assert wheel.main(["--release", "--locked", "--quiet", "--target", target, "--out", str(directory)]) == 0
    [made] = directory.iterdir()
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", directory, "--only-binary=:all:"]
    of_debian = ["--python-version=3.11", "--implementation=cp", "--abi=cp311", "--abi=abi3", "--abi=none"]
    kinds = ("manylinux2014", "manylinux_2_17", "manylinux_2_28", "manylinux_2_34", "linux")
    platforms = [f"--platform={kind}_{os.uname().machine}" for kind in kinds]
    constraint = ["--constraint", CHECKOUT / "constraints.txt"]
    subprocess.run([*pip, *of_debian, *platforms, *constraint, made], check=True)
    return directory
