"""A real resource child, forked from a process that has imported everything and has no thread, as the supervisor does.

Usage: resource_process.py KUBELET-DIR RUN-DIR KEY COUNT. Forks COUNT children (of KEY, or of KEY0, KEY1, … when COUNT
is above 1), prints their pids on one line, and waits for them. Signals go to the
children by their pids, not to this. The monotonic time of the first one's last beat stands in RUN-DIR/last-beat.
With DEVHERD_TEST_KUBELET_CHECK=SECONDS in the environment there is an exporter too, which asks the kubelet that often.
"""

import ctypes
import errno
import gc
import os
import signal
import sys
import time
from pathlib import Path

from devherd import log, watch
from devherd.device_plugin.child import main as resource
from devherd.exporter.main import main as exporter
from devherd.process import Child, ChildMain, Heartbeats
from devherd.settings import Settings

_PR_SET_PDEATHSIG = 1

settings = Settings(
    kubelet_dir=Path(sys.argv[1]),
    run_dir=Path(sys.argv[2]),
    registration=os.environ.get("DEVHERD_REGISTRATION", "kubelet_socket"),
    kubelet_check=float(os.environ.get("DEVHERD_TEST_KUBELET_CHECK", "0")),
    listen="",
)

if os.environ.get("DEVHERD_TEST_NO_INOTIFY"):

    def refuse() -> None:
        """What the kernel does when the user's inotify instances are used up."""
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    watch.DirectoryWatch = refuse


def fork(name: str, heartbeats: Heartbeats, main: ChildMain) -> int:
    """The pid of a new child."""
    slot = heartbeats.claim()
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        log.configure(name, "debug", "text")
        os._exit(main(Child(name, settings, heartbeats, slot)))
    return pid


count = int(sys.argv[4])
keys = [sys.argv[3]] if count == 1 else [f"{sys.argv[3]}{number}" for number in range(count)]
heartbeats = Heartbeats()
gc.freeze()
pids = [fork(f"resource:{key}", heartbeats, resource) for key in keys]
if settings.kubelet_check:
    fork("exporter", heartbeats, exporter)
print(*pids, flush=True)
last_beat = settings.run_dir / "last-beat"
codes = []
while len(codes) < len(pids):
    pid, status = os.waitpid(-1, os.WNOHANG)
    if pid:
        codes.append(os.waitstatus_to_exitcode(status))
    else:
        temporary = last_beat.with_suffix(f".{os.getpid()}")  # another such process may run beside this one
        temporary.write_text(str(heartbeats.last_beat(0)))
        temporary.rename(last_beat)
        time.sleep(0.02)
sys.exit(max(codes, key=abs))
