"""Runs process `kubernetes:config` by itself: run directory, service account's directory and port are its arguments."""

import sys
from pathlib import Path

from devherd import log
from devherd.child import Child
from devherd.heartbeat import Heartbeats
from devherd.kubernetes import chooser
from devherd.kubernetes.access import Access
from devherd.kubernetes.api import Api
from devherd.settings import Settings

if __name__ == "__main__":
    run_dir, service_account, port = sys.argv[1:]
    log.configure("kubernetes:config", "info", "text")
    chooser.PERIOD_SECONDS = 0.2
    heartbeats = Heartbeats(1)
    child = Child("kubernetes:config", Settings(run_dir=Path(run_dir)), heartbeats, heartbeats.claim())
    api = Api(Access("127.0.0.1", int(port), Path(service_account)), child.beat) if port != "0" else None
    sys.exit(chooser.Chooser(child, api).run())
