"""Runs process `kubernetes:config` by itself: run directory, service account's directory and port are its arguments."""

import sys
from pathlib import Path

from devherd import log
from devherd.config.resolved import read_resolved
from devherd.kubernetes import config_label
from devherd.kubernetes.access import Access
from devherd.kubernetes.api import Api
from devherd.process import Child, Heartbeats

if __name__ == "__main__":
    run_dir, service_account, port = sys.argv[1:]
    log.configure("kubernetes:config", "info", "text")
    config_label.PERIOD_SECONDS = 0.2
    heartbeats = Heartbeats(1)
    settings = read_resolved(Path(run_dir) / "config.json").settings()
    child = Child("kubernetes:config", settings, heartbeats, heartbeats.claim())
    api = Api(Access("127.0.0.1", int(port), Path(service_account)), child.beat) if port != "0" else None
    sys.exit(config_label.ConfigLabel(child, api).run())
