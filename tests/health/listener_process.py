"""Runs the process of a source that listens by itself.

Its run directory is argv[1], its name argv[2]; further arguments are the form of its log, and as JSON the waits that
are not as usual.
"""

import json
import sys
from pathlib import Path

from devherd import log
from devherd.process import Child, Heartbeats
from devherd.settings import Settings
from devherd.sources.listener import main
from devherd.waits import Waits

if __name__ == "__main__":
    name = f"source:{sys.argv[2]}"
    log_format, waits = sys.argv[3:] or ["text", "{}"]
    log.configure(name, "info", log_format)
    heartbeats = Heartbeats(1)
    settings = Settings(run_dir=Path(sys.argv[1]), waits=Waits(**json.loads(waits)))
    sys.exit(main(Child(name, settings, heartbeats, heartbeats.claim())))
