"""Runs the scanner's main function as its own process: the run directory is argv[1]."""

import sys
from pathlib import Path

from devherd import log
from devherd.process import Child, Heartbeats
from devherd.settings import Settings

if __name__ == "__main__":
    settings = Settings(run_dir=Path(sys.argv[1]))
    log.configure("scanner", "info", "text")

    from devherd.scanner import loop as scanner

    heartbeats = Heartbeats(1)
    sys.exit(scanner.main(Child("scanner", settings, heartbeats, heartbeats.claim())))
