"""Runs process `kubernetes:labels` by itself: run directory, service account's directory and port are its arguments."""

import sys
from pathlib import Path

from devherd import log
from devherd.kubernetes.access import Access
from devherd.kubernetes.labeller import Labeller
from devherd.process import Child, Heartbeats
from devherd.settings import Settings

if __name__ == "__main__":
    run_dir, service_account, port = sys.argv[1:]
    log.configure("kubernetes:labels", "info", "text")
    heartbeats = Heartbeats(1)
    child = Child("kubernetes:labels", Settings(run_dir=Path(run_dir)), heartbeats, heartbeats.claim())
    access = Access("127.0.0.1", int(port), Path(service_account)) if port != "0" else None
    sys.exit(Labeller(child, access).run())
