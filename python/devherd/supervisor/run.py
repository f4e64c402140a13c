"""`devherd run`: from nothing to a herd, in the order that is safe and fast.

The process forks for as long as it lives, so it has one thread. Order of the start: fork the first scan; import what
the children share; learn the settings; lock; let the first scan write; run.
"""

import contextlib
import gc
import signal
import sys
from types import FrameType

from devherd.supervisor.first_scan import FirstScan, Loader
from devherd.supervisor.programs import DEVHERD, Programs

FIRST_SCAN_SECONDS = 5.0
SILENCE_LIMIT_SECONDS = 10.0
"""A child without a heartbeat for so long is replaced."""


def run(load: Loader, programs: Programs = DEVHERD, silence_limit_seconds: float = SILENCE_LIMIT_SECONDS) -> int:
    """Run the supervisor until SIGTERM or SIGINT; the exit code.

    `load` gives the configuration and is called in another process, which says what is wrong with it. Raises
    AlreadyRunningError when another instance has the run directory or the kubelet directory, and other DevherdErrors.
    """
    _end_quietly_while_starting()
    sys.stdout.flush()  # a forked process would write what is buffered once more
    gc.disable()
    with contextlib.closing(FirstScan(load, programs.first_scan)) as first_scan:
        from devherd.supervisor.preparation import forget_gone_resources, prepare  # noqa: PLC0415 - takes its time, in parallel

        settings = first_scan.settings()
        if settings is None:
            return first_scan.exit_code()
        herd = prepare(settings, programs, first_scan, silence_limit_seconds)
        gc.collect()
        gc.freeze()  # no collection in a child may touch, and so copy, what it shares with the others
        gc.enable()
        first_scan.wait(FIRST_SCAN_SECONDS)
        forget_gone_resources(settings)
    herd.live()
    return 0


def _end_quietly_while_starting() -> None:
    """Until the herd has its handlers: SIGTERM and SIGINT end the start, SIGHUP waits for its end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit)


def _exit(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)
