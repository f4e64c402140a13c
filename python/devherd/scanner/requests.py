"""Requests to sources and to the reporter: one file each. The supervisor runs those that have a file."""

import logging
from collections.abc import Mapping

from devherd import spool
from devherd.health.registry import OF_OPERATORS
from devherd.settings import Settings

log = logging.getLogger(__name__)

SUFFIX = ".json"
"""Of requests to sources."""


class Requests:
    """The writer of `<run-dir>/requests`. It makes the directories that others write: they can be watched."""

    def __init__(self, settings: Settings) -> None:
        self._directory = settings.requests_directory
        findings = settings.findings_directory
        self._operators = (findings, *(findings / source for source in OF_OPERATORS))
        self._answers = (self._directory, settings.facts_directory)
        self._failed = False

    def publish(self, to_sources: Mapping[str, str], others: Mapping[str, str]) -> None:
        """Write exactly these: to sources by their name, others by file. What cannot be written is tried again."""
        requests = {f"{source}{SUFFIX}": text for source, text in to_sources.items()} | dict(others)
        try:
            for directory in (*self._operators, *(self._answers if requests else ())):
                directory.mkdir(mode=0o700, exist_ok=True)
            for name, text in requests.items():
                spool.update(self._directory / name, text.encode())
            for file in self._directory.glob("[!.]*"):
                if file.name not in requests:
                    file.unlink(missing_ok=True)
        except OSError as error:
            if not self._failed:
                log.error("cannot write %s: %s; sources keep their last requests", self._directory, error)
            self._failed = True
        else:
            self._failed = False
