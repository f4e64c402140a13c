"""`devherd run`: starts the supervisor.

The process forks during its whole life, so it has one thread. Order of the start: fork the first scan; import what the
children share; take the configuration; lock, perhaps after the end of another instance; let the first scan write; run.
"""

import contextlib
import gc
import sys

from devherd import _native
from devherd.lean_imports import lean_imports
from devherd.process import SILENCE_LIMIT_SECONDS
from devherd.supervisor import signals
from devherd.supervisor.first_scan import FirstScan
from devherd.supervisor.loader import Load
from devherd.supervisor.programs import DEVHERD, Programs

FIRST_SCAN_SECONDS = 5.0


def run(
    load: Load,
    programs: Programs = DEVHERD,
    silence_limit_seconds: float = SILENCE_LIMIT_SECONDS,
    *,
    takes_over: bool = False,
    restarts_for_driver: bool = False,
) -> int:
    """Run the supervisor until SIGTERM or SIGINT; returns the exit code.

    `load` returns the configuration. It is called in other processes, at the start and for each reload; they log its
    errors. If another instance holds the run directory or the kubelet directory, `takes_over` makes this one stand by
    until the other has ended; otherwise it raises AlreadyRunningError. Raises other DevherdErrors.
    `restarts_for_driver`: it ends, too, when NVIDIA's driver has become newer than this container's library.
    """
    signals.remember()
    sys.stdout.flush()  # a forked process would write the buffer once more
    gc.disable()
    _share()
    with contextlib.closing(FirstScan(load, programs)) as first_scan:
        with lean_imports():  # slow, in parallel to the first scan
            from devherd.supervisor.startup import prepare, remove_files_of_gone_resources  # noqa: PLC0415 - as above

            programs.preload()
        config = first_scan.config()
        if config is None:
            return first_scan.exit_code()
        herd = prepare(
            load,
            config,
            programs,
            first_scan,
            silence_limit_seconds,
            takes_over=takes_over,
            restarts_for_driver=restarts_for_driver,
        )
        _share()
        gc.enable()
        first_scan.wait(FIRST_SCAN_SECONDS)
        remove_files_of_gone_resources(config.settings())
    signals.end_if_asked()
    herd.live()
    return 0


def _share() -> None:
    """Have the processes that are forked from now on, and this one, share the pages of all objects made so far.

    Reference counts would make each of them copy the pages of code that it runs, and a collection those of everything.
    None runs before: each process would fill the holes that it leaves, in pages that are shared until then.
    """
    _native.make_immortal(gc.get_objects())
    gc.freeze()
