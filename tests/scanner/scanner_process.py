"""Runs the scanner's main function as its own process: the run directory is argv[1], the configuration file argv[2]."""

import sys
from pathlib import Path

from devherd import counters, log
from devherd.child import Child
from devherd.heartbeat import Heartbeats
from devherd.settings import Settings

if __name__ == "__main__":
    settings = Settings(
        run_dir=Path(sys.argv[1]), config_path=Path(sys.argv[2]), given_options=(("run_dir", sys.argv[1]),)
    )
    counters.keep_in(Path(sys.argv[1]) / "counters")
    counters.belong_to("scanner")
    log.configure("scanner", "info", "text")

    from devherd.scanner import main as scanner

    heartbeats = Heartbeats(1)
    sys.exit(scanner.main(Child("scanner", settings, heartbeats, heartbeats.claim())))
