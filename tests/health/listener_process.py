"""Runs the process of a source that listens by itself: the run directory is argv[1], its name argv[2].

Further arguments are the form of its log, and other values of constants, `FLOOD_SECONDS=1.0`: no test waits a minute.
"""

import sys
from pathlib import Path

from devherd import log
from devherd.process import Child, Heartbeats
from devherd.settings import Settings
from devherd.sources import external
from devherd.sources.listener import main

if __name__ == "__main__":
    name = f"source:{sys.argv[2]}"
    log_format, *constants = sys.argv[3:] or ["text"]
    log.configure(name, "info", log_format)
    for constant in constants:
        key, _, value = constant.partition("=")
        assert hasattr(external, key)
        setattr(external, key, float(value))
    heartbeats = Heartbeats(1)
    settings = Settings(run_dir=Path(sys.argv[1]))
    sys.exit(main(Child(name, settings, heartbeats, heartbeats.claim())))
