"""The floor of a herd's memory: as many processes with the same modules, which only sleep.

    python floor.py PROCESSES

One imports what the supervisor imports before it forks, in the same way; the others are its forks, one of them with the
scanner's modules as well. It prints `ready` when all sleep.
"""

import gc
import importlib
import os
import signal
import sys

from devherd.lean_imports import lean_imports

BEFORE = ("devherd.cli.commands", "devherd.cli.run", "devherd.supervisor.run")
SHARED = ("devherd.supervisor.startup", "devherd.device_plugin.child", "devherd.exporter.main")
SCANNER = "devherd.scanner.loop"


def main(processes: int) -> None:
    """Import, fork, sleep."""
    for name in BEFORE:
        importlib.import_module(name)
    gc.disable()
    with lean_imports():
        for name in SHARED:
            importlib.import_module(name)
    gc.freeze()
    gc.enable()
    for number in range(processes - 1):
        asleep, sleeps = os.pipe()
        if os.fork() == 0:
            if number == 0:
                importlib.import_module(SCANNER)
            os.close(sleeps)
            signal.pause()
        os.close(sleeps)
        os.read(asleep, 1)
        os.close(asleep)
    print("ready", flush=True)
    signal.pause()


if __name__ == "__main__":
    main(int(sys.argv[1]))
