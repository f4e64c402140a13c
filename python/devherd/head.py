"""<run-dir>/instance.json: which devherd runs here, since when and with which options.

Written by the supervisor; the file outlives it, for whoever looks for what ran here.
"""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from devherd import spool
from devherd.config.resolved import Config
from devherd.settings import Settings
from devherd.version import revision, version


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What an instance says of itself."""

    version: str
    revision: str
    pid: int
    started: float
    """Unix seconds."""
    config: str
    """The configuration's file; empty: options and environment alone."""
    host_root: str
    kubelet_dir: str
    run_dir: str
    listen: str
    registration: str


def of(settings: Settings, config: Config, pid: int, started: float) -> Head:
    """The head of an instance that was started with these settings and has this configuration in force."""
    return Head(
        version=version(),
        revision=revision(),
        pid=pid,
        started=started,
        config=str(config.source or ""),
        host_root=str(settings.host_root),
        kubelet_dir=str(settings.kubelet_dir),
        run_dir=str(settings.run_dir),
        listen=config.settings().listen,  # the one option that a reload changes
        registration=settings.registration,
    )


def write(path: Path, head: Head) -> None:
    """Put it in place. Raises OSError."""
    spool.update(path, json.dumps(asdict(head)).encode())


def read(path: Path) -> Head | None:
    """None where no instance has run, or another version's has."""
    try:
        said = json.loads(path.read_bytes())
        return Head(**{field.name: said[field.name] for field in fields(Head)})
    except (OSError, ValueError, TypeError, KeyError):
        return None
