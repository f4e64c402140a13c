"""A herd of tiny children under the real supervisor.

Usage: `tiny_herd.py RUN_DIR KUBELET_DIR WAITS [take-over]`; WAITS is JSON: the waits that are not as usual.

Files in `<run-dir>/orders` tell a child, by name, how to misbehave: `fail.<name>`, `mute.<name>`, `deaf.<name>`,
`crash.<name>`, `threadless.<name>` (as gRPC without threads), `orphan.<name>`, `talk.<name>`, `asleep.<name>` (no
signal reaches it); as long as `keep.<name>` is there it hands over. `bad-config`, `killed-load`, `slow-load`,
`bad-rehearsal`, `slow-rehearsal` (until it is gone), `slow-scan`, `no-forks`, `subreaper`, `four-slots` (for
heartbeats), `sigterm-while-importing`, `sigint-while-importing` and `sources` (two more programs) are for the
supervisor itself.
"""

import contextlib
import ctypes
import errno
import functools
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from devherd import spool
from devherd.config.resolved import ResolvedConfig
from devherd.errors import DevherdError, UsageError
from devherd.process import YIELD, Child, Heartbeats, take_reloads
from devherd.proto import spool_pb2
from devherd.settings import Settings
from devherd.supervisor.programs import Program, Programs
from devherd.supervisor.run import run
from devherd.supervisor.sandbox import Access
from devherd.waits import Waits

RUN_DIR, KUBELET_DIR = Path(sys.argv[1]), Path(sys.argv[2])
ORDERS = RUN_DIR / "orders"
SETTINGS = Settings(run_dir=RUN_DIR, kubelet_dir=KUBELET_DIR, waits=Waits(**json.loads(sys.argv[3])))


def load(_running: Settings | None) -> ResolvedConfig:
    """What `devherd run` hands over."""
    if ORDERS.joinpath("bad-config").exists():
        raise UsageError(
            "bad configuration in tiny.yaml", "scan.peroid: unknown key", "run `devherd config check` on it"
        )
    if ORDERS.joinpath("slow-load").exists():
        print("the first scan loads", file=sys.stderr, flush=True)
        time.sleep(60)
    if ORDERS.joinpath("killed-load").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return ResolvedConfig(common=SETTINGS)


def first_scan(_config: ResolvedConfig) -> None:
    """Finds one resource."""
    if ORDERS.joinpath("slow-scan").exists():
        print("the first scan scans", file=sys.stderr, flush=True)
        time.sleep(60)
    spool.write(spool.path_of(RUN_DIR / "offers/device-plugin", "example.com_first"), spool_pb2.Resource(name="first"))


def rehearse(_config: ResolvedConfig) -> None:
    """What the first scan does before its turn."""
    print(f"rehearsed beside {sorted(path.name for path in RUN_DIR.glob('offers/device-plugin/*'))}", file=sys.stderr)
    while ORDERS.joinpath("slow-rehearsal").exists():
        time.sleep(0.01)
    if ORDERS.joinpath("bad-rehearsal").exists():
        raise RuntimeError("a rehearsal that goes wrong")


def stand_by(_config: ResolvedConfig, why: str, announce: Callable[[], bool], is_ready: bool) -> None:
    """Until it is killed."""
    announce()
    print(f"{'standby' if is_ready else 'rehearsing'} {os.getpid()}: {why}", file=sys.stderr, flush=True)
    while True:
        time.sleep(60)


def preload() -> None:
    """What the supervisor itself meets."""
    from supervisor import options

    os.fork = functools.partial(fork_if_possible, os.fork)
    options.ServerOptions.kill = signal_who_is_awake
    if ORDERS.joinpath("four-slots").exists():
        Heartbeats.__init__.__defaults__ = (4,)
    for number in (signal.SIGTERM, signal.SIGINT):
        if ORDERS.joinpath(f"{number.name.lower()}-while-importing").exists():
            with contextlib.suppress(BaseException):  # as others do where they import
                os.kill(os.getpid(), number)
                print("the import goes on", file=sys.stderr)
    if ORDERS.joinpath("subreaper").exists():
        ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans below come to us, as to process 1


def fork_if_possible(really: Callable[[], int]) -> int:
    """A fork that may fail, as with too many processes."""
    if ORDERS.joinpath("no-forks").exists():
        raise OSError(errno.EAGAIN, "no more processes")
    return really()


def signal_who_is_awake(options: Any, pid: int, number: int) -> None:
    """As the kernel does: SIGKILL has no effect on a process in uninterruptible sleep before that ends."""
    process = options.pidhistory.get(abs(pid))
    if process is None or not ORDERS.joinpath(f"asleep.{process.config.child_name}").exists():
        os.kill(pid, number)


def leave_an_orphan() -> None:
    """A grandchild that ends after its parent has."""
    if os.fork() == 0:
        if os.fork() == 0:
            sys.stderr.write(f"orphan {os.getpid()}\n")  # in one piece, also where stderr is not buffered
            time.sleep(0.1)
        os._exit(0)
    os.wait()


def hand_over(child: Child) -> None:
    """From now on, the next instance's child is the one that counts."""
    print(f"{child.name} hands over", file=sys.stderr, flush=True)
    child.yields()


def crash_without_threads() -> None:
    """What becomes of gRPC if it can start no thread."""
    print("E1 thd.cc:157] pthread_create failed: Resource temporarily unavailable", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def main(child: Child) -> int:  # noqa: C901 - a line for each order
    """Beats and does as it is told."""
    ended = False

    def end(*_: object) -> None:
        nonlocal ended
        ended = not ordered("deaf")

    def ordered(what: str) -> bool:
        return ORDERS.joinpath(f"{what}.{child.name}").exists()

    signal.signal(signal.SIGTERM, end)
    signal.signal(YIELD, lambda *_: hand_over(child) if ordered("keep") else None)
    signal.signal(signal.SIGHUP, lambda *_: print("reloaded", file=sys.stderr, flush=True))
    take_reloads()
    if ordered("orphan"):
        leave_an_orphan()
    if ordered("talk"):
        for _ in range(20_000):
            print(f"{'bla bla':>60}", file=sys.stderr)
            child.beat()
        print(f"{child.name} has talked", file=sys.stderr, flush=True)
    print(f"{child.name} says hello from {os.getpid()}", file=sys.stderr, flush=True)
    while not ended and (ordered("keep") or not child.is_yielding):
        if not ordered("mute"):
            child.beat()
        if ordered("fail"):
            return 1
        if ordered("crash"):
            raise RuntimeError("crashed as ordered")
        if ordered("threadless"):
            crash_without_threads()
        time.sleep(0.02)
    print(f"{child.name} says goodbye", file=sys.stderr, flush=True)
    return 0


def children() -> tuple[Program, ...]:
    """What an instance runs: two programs by themselves, and one for each spool file; more when ordered."""

    def may(_settings: Settings, _name: str) -> Access:
        return Access(read=(Path("/"),), write=(RUN_DIR,), sockets=(RUN_DIR,))

    def program(group: str, **fields: Any) -> Program:
        return Program(group=group, module=__name__, may=may, **fields)

    return (
        program("scanner", reloads=True),
        program("exporter", reloads=True),
        *(program("source", name=name) for name in ("nvml", "kernel-log") if ORDERS.joinpath("sources").exists()),
        program(
            "resource",
            per_file=lambda settings: settings.resources_directory,
            serves=True,
            hands_over=lambda _settings: True,
        ),
    )


if __name__ == "__main__":
    programs = Programs(children(), first_scan, preload, rehearse=rehearse, stand_by=stand_by)
    try:
        sys.exit(run(load, programs, takes_over="take-over" in sys.argv[4:]))
    except DevherdError as error:
        print(f"devherd: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
