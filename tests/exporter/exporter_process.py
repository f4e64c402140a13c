"""A real exporter process under a stand-in for the supervisor, for the tests beside it.

Usage: exporter_process.py RUN-DIR READY-FILE. The stand-in gives the scanner heartbeat slot 0 and beats it every
50 ms unless <run-dir>/scanner-hangs exists, which says for how many seconds it does; likewise the supervisor's own slot
and <run-dir>/supervisor-hangs. The exporter has slot 1 and is started again when a signal ends it. <run-dir>/clock
holds seconds by which the wall clock is off.
"""

import os
import sys
import time
from pathlib import Path
from unittest import mock

from devherd import log
from devherd.config.resolved import read_resolved
from devherd.exporter.main import main
from devherd.process import Child, Heartbeats

settings = read_resolved(Path(sys.argv[1]) / "config.json").settings()
right_time = time.time
hangs, supervisor_hangs = settings.run_dir / "scanner-hangs", settings.run_dir / "supervisor-hangs"
clock = settings.run_dir / "clock"
time.time = lambda: right_time() + (float(clock.read_text()) if clock.exists() else 0.0)
heartbeats = Heartbeats()
for file, start_slot in (
    (hangs, heartbeats.claim),
    (supervisor_hangs, lambda: heartbeats.clear(heartbeats.supervisor)),
):
    hung_since = time.monotonic() - float(file.read_text() if file.exists() else 0)
    with mock.patch("time.monotonic", return_value=hung_since):
        start_slot()
for _ in range(7):
    heartbeats.claim()


def start():
    """Fork the exporter; say which process it is."""
    pid = os.fork()
    if pid == 0:
        log.configure("exporter", "debug", "text")
        os._exit(main(Child("exporter", settings, heartbeats, 1)))
    new = ready.with_suffix(".new")
    new.write_text(f"{pid} {os.getpid()}")
    new.rename(ready)
    return pid


ready = Path(sys.argv[2])
exporter = start()
while os.getppid() != 1:
    ended, status = os.waitpid(exporter, os.WNOHANG)
    if ended and os.WIFEXITED(status):
        sys.exit(os.WEXITSTATUS(status))
    if ended:
        exporter = start()
    if not hangs.exists():
        heartbeats.beat(0)
    if not supervisor_hangs.exists():
        heartbeats.beat(heartbeats.supervisor)
    if (settings.run_dir / "how-long-silent").exists():
        (settings.run_dir / "silence").write_text(str(time.monotonic() - heartbeats.last_beat(1)))
    time.sleep(0.05)
