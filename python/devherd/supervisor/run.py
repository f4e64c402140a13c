"""`devherd run`: from nothing to a herd, in the order that is safe and fast.

The process forks for as long as it lives, so it has one thread. Order of the start: fork the first scan; import what
the children share; take the configuration; lock, perhaps after the end of another instance; let the first scan write;
run.
"""

import contextlib
import gc
import signal
import sys

from devherd import _native
from devherd.child import SILENCE_LIMIT_SECONDS
from devherd.supervisor import ending
from devherd.supervisor.first_scan import FirstScan
from devherd.supervisor.lean_imports import lean_imports
from devherd.supervisor.loader import Load
from devherd.supervisor.programs import DEVHERD, Programs

FIRST_SCAN_SECONDS = 5.0


def run(
    load: Load,
    programs: Programs = DEVHERD,
    silence_limit_seconds: float = SILENCE_LIMIT_SECONDS,
    *,
    takes_over: bool = False,
) -> int:
    """Run the supervisor until SIGTERM or SIGINT; the exit code.

    `load` gives the configuration. It is called in other processes, at the start and for each reload, which say what is
    wrong with it. Where another instance has the run directory or the kubelet directory, one that `takes_over` stands
    by until that one has ended; otherwise it raises AlreadyRunningError. Raises other DevherdErrors.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # waits for the end of the start
    ending.heed()
    sys.stdout.flush()  # a forked process would write what is buffered once more
    gc.disable()
    with contextlib.closing(FirstScan(lambda: load(None), programs.first_scan, programs.rehearse)) as first_scan:
        with lean_imports():  # takes its time, in parallel
            from devherd.supervisor.startup import forget_gone_resources, prepare  # noqa: PLC0415

        config = first_scan.config()
        if config is None:
            return first_scan.exit_code()
        herd = prepare(load, config, programs, first_scan, silence_limit_seconds, takes_over=takes_over)
        _native.make_immortal(gc.get_objects())  # reference counts would have each child copy what it only runs
        gc.freeze()  # no collection in a child may touch, and so copy, what it shares with the others; none before it:
        # the holes that it leaves would be filled by each child anew, in pages that are shared until then
        gc.enable()
        first_scan.wait(FIRST_SCAN_SECONDS)
        forget_gone_resources(config.settings())
    ending.go_on()
    herd.live()
    return 0
