"""devherd whose rehearsal takes as long as a file is there, and for which half a second of it is long.

Usage: slow_rehearsal.py FILE ARGS….
"""

import sys
import time
from pathlib import Path

from devherd.device_plugin import rehearsal

file = Path(sys.argv[1])
rehearse = rehearsal.rehearse


def rehearse_slowly(resources, settings):
    while file.exists():
        time.sleep(0.01)
    rehearse(resources, settings)


rehearsal.rehearse = rehearse_slowly

sys.path.insert(0, str(Path(__file__).parents[1]))
from hurried import main  # noqa: E402 - after the rehearsal is slow

sys.exit(main(sys.argv[2:], rehearsal=0.5))
