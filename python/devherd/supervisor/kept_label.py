"""What the node's label said last, where it outlives a boot, which empties the run directory.

After a boot the API server may be out of reach for long, and pods must not be given the default's resources meanwhile.
"""

import logging
import time

from devherd import spool
from devherd.configurations import Told, content_of, told_in
from devherd.settings import Settings

log = logging.getLogger(__name__)


def keep(settings: Settings) -> None:
    """Write down by which answer the configuration of these settings was chosen, if a label has chosen it."""
    chosen_from, kept = settings.configurations, settings.kept_label_file
    if chosen_from is None or kept is None:
        return
    before = told_in(kept)
    if before is not None and (before.label, before.value) == (chosen_from.label, settings.config_label_value):
        return
    try:
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        told = Told(chosen_from.label, settings.config_label_value, time.time())
        spool.replace(kept, content_of(told), mode=0o600, is_synced=True)
    except OSError as error:
        log.warning("cannot keep the choice of the configuration: %s; after a boot it is asked for anew", error)
