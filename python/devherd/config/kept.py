"""The configuration in force, kept for the next start, which then takes it without a wait for its validation.

It is taken only for the same files, options, environment, working directory, version and interpreter. The instance
that has taken it validates the configuration soon after its start, as a reload does (supervisor/loader.py): what else a
configuration depends on, such as files that it names, may have changed.
"""

import contextlib
import json
import os
import stat
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from devherd import spool
from devherd.config.chosen_file import configurations_of, file_of, kept_config_file
from devherd.config.resolved import Config, as_json, from_json
from devherd.text import revision, version

_LARGEST = 1 << 20
"""Size in bytes of a configuration file above which nothing is kept."""


class KeptConfig:
    """Takes, keeps and forgets the configuration of one command line and environment. No method raises OSError."""

    def __init__(self, options: Mapping[str, str | None], environ: Mapping[str, str]) -> None:
        """`options` by name, None for one that is not given.

        Only options and environment name the state directory: what is kept is found before a file is read. Nothing is
        kept where a label of the node chooses the file, or there is no state directory.
        """
        self._options, self._environ = options, environ
        by_label = not options.get("config") and configurations_of(options, environ)
        self._file = None if by_label else kept_config_file(options, environ)

    def take(self) -> Config | None:
        """The kept configuration; None if there is none, or anything has changed that is known to matter."""
        if self._file is None:
            return None
        try:
            content = json.loads(self._file.read_bytes())
            chosen = file_of(self._options, self._environ)
            seen = spool.identity_of(chosen, follow_symlinks=True) if chosen else None
            if content["given"] != self._given(chosen) or content["files"] != _contents(content["files"]):
                return None
            config = from_json(content["config"])
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return replace(config, common=replace(config.common, config_seen=seen))

    def keep(self, config: Config) -> None:
        """Keep a validated configuration for the next start."""
        if self._file is None:
            return
        try:
            files = _contents(str(path) for path in (config.source, config.web.file) if path)
            if config.source and spool.identity_of(config.source, follow_symlinks=True) != config.common.config_seen:
                self.forget()  # it has changed since it was read
                return
            content = {"given": self._given(config.source), "files": files, "config": as_json(config).decode()}
            self._file.parent.mkdir(parents=True, exist_ok=True)
            spool.replace(self._file, json.dumps(content).encode(), mode=0o600)
        except OSError:
            self.forget()

    def forget(self) -> None:
        """Have the next start validate its configuration before it serves."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.unlink(missing_ok=True)

    def _given(self, chosen: Path | None) -> dict[str, Any]:
        return {
            "file": None if chosen is None else str(chosen),
            "options": {name: value for name, value in self._options.items() if value is not None},
            "environment": {name: value for name, value in self._environ.items() if name.startswith("DEVHERD_")},
            "directory": os.getcwd(),  # noqa: PTH109 - compared as text
            "version": [version(), revision(), sys.version],
        }


def _contents(paths: Iterable[str]) -> dict[str, str]:
    """The contents of these files, each byte as a character. Raises OSError, also for a pipe and for a large file."""
    contents = {}
    for path in paths:
        status = os.stat(path)  # noqa: PTH116 - on the way of each start
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            raise OSError(f"{path} is not kept")
        contents[path] = Path(path).read_bytes().decode("latin-1")
    return contents
