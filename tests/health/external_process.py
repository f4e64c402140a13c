"""Runs process `source:external-check` by itself: the run directory is argv[1]."""

import sys
from pathlib import Path

from devherd import log
from devherd.child import Child
from devherd.health.sources.external.main import main
from devherd.heartbeat import Heartbeats
from devherd.settings import Settings

if __name__ == "__main__":
    log.configure("source:external-check", "info", "text")
    heartbeats = Heartbeats(1)
    settings = Settings(run_dir=Path(sys.argv[1]))
    sys.exit(main(Child("source:external-check", settings, heartbeats, heartbeats.claim())))
