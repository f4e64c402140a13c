"""Runs the process of a source that listens by itself: the run directory is argv[1], its name argv[2]."""

import sys
from pathlib import Path

from devherd import log
from devherd.process import Child, Heartbeats
from devherd.settings import Settings
from devherd.sources.listener import main

if __name__ == "__main__":
    name = f"source:{sys.argv[2]}"
    log.configure(name, "info", "text")
    heartbeats = Heartbeats(1)
    settings = Settings(run_dir=Path(sys.argv[1]))
    sys.exit(main(Child(name, settings, heartbeats, heartbeats.claim())))
