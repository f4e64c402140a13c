"""<run-dir>/doubts.pb: what the configuration does here that nobody can have meant, for whoever shows warnings."""

import logging
from collections.abc import Sequence
from pathlib import Path

from devherd import spool
from devherd.proto import spool_pb2

log = logging.getLogger(__name__)


class Doubts:
    """The writer. A doubt is logged when a second scan leaves it standing: devices may be found one after another."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._written: Sequence[str] | None = None
        self._standing: Sequence[str] = ()
        self._logged: set[str] = set()

    def note_scan(self) -> None:
        """Another scan is made."""
        self._standing = self._written or ()

    def publish(self, doubts: Sequence[str]) -> None:
        """These are the doubts now. Raises OSError when they cannot be written."""
        if doubts != self._written:
            spool.write(self._file, spool_pb2.Configuration(warnings=doubts))
            self._written = doubts
        for doubt in doubts:
            if doubt in self._standing and doubt not in self._logged:
                log.warning("%s", doubt)
                self._logged.add(doubt)
        self._logged &= set(doubts)
