"""`devherd run`: starts the supervisor.

The process forks during its whole life, so it has one thread. Order of the start: fork the first scan; import what the
children share; take the configuration; lock, perhaps after the end of another instance; let the first scan write; run.
"""

import contextlib
import gc
import sys

from devherd import signals
from devherd.lean_imports import lean_imports
from devherd.supervisor.first_scan import FirstScan
from devherd.supervisor.loader import Load
from devherd.supervisor.programs import DEVHERD, Programs


def run(
    load: Load,
    programs: Programs = DEVHERD,
    *,
    takes_over: bool = False,
    restarts_for_driver: bool = False,
) -> int:
    """Run the supervisor until SIGTERM or SIGINT; returns the exit code.

    `load` returns the configuration. It is called in other processes, at the start and for each reload; they log its
    errors. If another instance holds the run directory or the kubelet directory, `takes_over` makes this one stand by
    until the other has ended; otherwise it raises AlreadyRunningError. Raises other DevherdErrors.
    With `restarts_for_driver`, it also ends when NVIDIA's driver is newer than this container's library.
    """
    signals.remember()
    sys.stdout.flush()  # a forked process would write the buffer once more
    gc.disable()
    gc.freeze()  # a collection would write to the pages that forked processes share
    with contextlib.closing(FirstScan(load, programs)) as first_scan:
        with lean_imports():  # slow, in parallel to the first scan
            from devherd.supervisor.startup import prepare, remove_files_of_gone_resources  # noqa: PLC0415 - as above

            programs.preload()
        config = first_scan.config()
        if config is None:
            return first_scan.exit_code()
        programs.preload_wanted(config)
        herd = prepare(
            load,
            config,
            programs,
            first_scan,
            takes_over=takes_over,
            restarts_for_driver=restarts_for_driver,
        )
        gc.freeze()
        gc.enable()
        settings = config.settings()
        first_scan.wait(settings.waits.first_scan)
        programs.admit(config)
        remove_files_of_gone_resources(config)
    signals.end_if_asked()
    herd.live()
    return 0
