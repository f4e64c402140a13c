"""What the node's label said last, where it outlives a boot, which empties the run directory.

After a boot the API server may be out of reach for long, and pods must not be given the default's resources meanwhile.
"""

import logging
import os
from pathlib import Path

from devherd import spool
from devherd.config.sources import kept_label_file
from devherd.configurations import Told, content_of, told_in
from devherd.settings import Settings

log = logging.getLogger(__name__)


def place_of(settings: Settings) -> Path | None:
    """Its file, as the next start finds it; None where nothing outlives a boot."""
    return kept_label_file(dict(settings.given_options), os.environ)


def keep(place: Path | None, told: Told) -> None:
    """Write it down, if it is another answer than before."""
    before = told_in(place) if place else None
    if place is None or (before is not None and (before.label, before.value) == (told.label, told.value)):
        return
    try:
        spool.replace(place, content_of(told), mode=0o600, is_synced=True)
    except OSError as error:
        log.warning("cannot keep what the node's label says: %s; after a boot it is asked for anew", error)
