"""Runs a program that sees any kubelet directory at /var/lib/kubelet: most plugins know only that path.

The program gets its own mount namespace. For an ordinary user it also gets a user namespace, in which the user appears
as root.
"""

import ctypes
import os
import signal
import socket
import time
from pathlib import Path
from typing import NoReturn

from devherd.errors import DevherdError, UnreachableError, UsageError

KUBELET_DIR = Path("/var/lib/kubelet")

# <sched.h>, <sys/mount.h>, <sys/prctl.h>
_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_PR_SET_PDEATHSIG = 1

LOOK_AGAIN_SECONDS = 0.05


def wait_for_kubelet(kubelet_socket: Path, seconds: float) -> None:
    """Wait until a kubelet takes registrations. Raises UnreachableError if none does in time."""
    deadline = time.monotonic() + seconds
    while True:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(kubelet_socket))
            except OSError as error:
                why = f"{kubelet_socket}: {error.strerror or error}"
            else:
                return
        if time.monotonic() >= deadline:
            raise UnreachableError(
                f"no kubelet takes registrations after {seconds:g} s",
                why,
                "start one with `devherd sim kubelet`, or give `--timeout 0` to start without one",
            )
        time.sleep(LOOK_AGAIN_SECONDS)


def execute(kubelet_dir: Path, command: list[str], *, end_with_parent: bool = False) -> NoReturn:
    """Replace this process with a program that sees `kubelet_dir` at /var/lib/kubelet.

    `end_with_parent`: the program is killed when its parent ends. Raises DevherdError when the namespace cannot be
    created, UsageError when the program cannot be run.
    """
    parent = os.getppid()
    try:
        _unshare()
        _bind(kubelet_dir)
        os.chdir(Path.cwd())  # the same directory, should it be covered now
    except OSError as error:
        raise DevherdError(
            f"cannot give a program {kubelet_dir} as {KUBELET_DIR}",
            f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror),
            "run it as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1,"
            " kernel.apparmor_restrict_unprivileged_userns=0, user.max_user_namespaces), or in a container with"
            f" `-v {kubelet_dir}:{KUBELET_DIR}`",
        ) from error
    if end_with_parent:
        _libc(_LIBC.prctl, _PR_SET_PDEATHSIG, signal.SIGKILL, what="prctl")
        if os.getppid() != parent:
            raise SystemExit(0)  # the parent has ended meanwhile
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and the program would inherit that
    try:
        os.execvp(command[0], command)  # noqa: S606 - the user's own program, without a shell
    except OSError as error:
        raise UsageError(
            f"cannot run {command[0]}", str(error.strerror), "give the path of a program, or a name in PATH"
        ) from error


def _unshare() -> None:
    """Enter a new mount namespace; for an ordinary user, also a new user namespace. Raises OSError."""
    uid, gid = os.geteuid(), os.getegid()
    try:
        _libc(_LIBC.unshare, _CLONE_NEWNS, what="unshare")
    except PermissionError:
        _libc(_LIBC.unshare, _CLONE_NEWUSER | _CLONE_NEWNS, what="unshare")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    _mount(None, Path("/"), None, _MS_REC | _MS_PRIVATE)


def _bind(kubelet_dir: Path) -> None:
    """Mount the directory at /var/lib/kubelet, which may not exist yet. Raises OSError."""
    source = os.open(kubelet_dir, os.O_PATH | os.O_DIRECTORY)
    if not KUBELET_DIR.is_dir():
        _make_room(KUBELET_DIR)
    _mount(f"/proc/self/fd/{source}", KUBELET_DIR, None, _MS_BIND | _MS_REC)
    os.close(source)


def _make_room(wanted: Path) -> None:
    """Make a directory that the user may not create: cover its parent with a copy that also contains it."""
    covered = os.open(wanted.parent, os.O_PATH | os.O_DIRECTORY)
    _mount("tmpfs", wanted.parent, "tmpfs", 0, b"mode=755")
    with os.scandir(f"/proc/self/fd/{covered}") as entries:
        for entry in entries:
            copy = wanted.parent / entry.name
            if entry.is_symlink():
                copy.symlink_to(Path(entry.path).readlink())
                continue
            copy.mkdir() if entry.is_dir() else copy.touch()
            _mount(entry.path, copy, None, _MS_BIND | _MS_REC)
    wanted.mkdir()
    os.close(covered)


def _mount(source: str | None, target: Path, kind: str | None, flags: int, data: bytes | None = None) -> None:
    words = [word.encode() if word is not None else None for word in (source, str(target), kind)]
    _libc(_LIBC.mount, *words, ctypes.c_ulong(flags), data, what=f"mount {target}")


_LIBC = ctypes.CDLL(None, use_errno=True)


def _libc(function: "ctypes._FuncPointer", *arguments: object, what: str) -> None:
    if function(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
