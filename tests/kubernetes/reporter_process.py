"""Runs process `kubernetes:events` by itself: run directory, service account's directory and port are its arguments."""

import sys
from pathlib import Path

from devherd import log
from devherd.kubernetes.access import Access
from devherd.kubernetes.api import Api
from devherd.kubernetes.reporter import Reporter
from devherd.process import Child, Heartbeats
from devherd.settings import Settings

if __name__ == "__main__":
    run_dir, service_account, port = sys.argv[1:]
    log.configure("kubernetes:events", "info", "text")
    heartbeats = Heartbeats(1)
    settings = Settings(run_dir=Path(run_dir), kubelet_dir=Path(run_dir) / "kubelet")
    child = Child("kubernetes:events", settings, heartbeats, heartbeats.claim())
    access = Access("127.0.0.1", int(port), Path(service_account))
    sys.exit(Reporter(child, Api(access, child.beat)).run())
