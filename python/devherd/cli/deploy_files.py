"""Write the files that install devherd: Kubernetes manifests, Helm chart, systemd unit, supervisord include, alerts.

Existing files that are equal stay as they are. If an existing file differs, because it was edited or belongs to another
version, the command fails and writes nothing; --replace overwrites it.
"""

import argparse
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from devherd.errors import ExitCode, UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument(
        "directory", metavar="DIR", type=Path, help="directory to write to; created if it does not exist"
    )
    parser.add_argument("--replace", action="store_true", help="replace existing files that differ")


def run(arguments: argparse.Namespace) -> int:
    """Write the files. Raises UsageError if an existing file differs, without --replace, or cannot be written."""
    directory: Path = arguments.directory
    shipped = _below(files("devherd") / "deploy")
    try:
        new = {name: content for name, content in shipped.items() if _present(directory / name) != content}
        edited = [name for name in new if _present(directory / name) is not None]
        if edited and not arguments.replace:
            raise UsageError(
                f"did not write to {directory}",
                f"different files are there: {', '.join(edited)}",
                "give another directory, or --replace",
            )
        for name, content in new.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(content)
            print(directory / name)
    except OSError as error:
        why = f"{error.filename}: {error.strerror}"
        raise UsageError(f"cannot write to {directory}", why, "give a directory that can be written") from error
    return ExitCode.DONE


def _below(directory: Traversable, prefix: str = "") -> dict[str, bytes]:
    """The content of each file below a directory, by its relative path."""
    found: dict[str, bytes] = {}
    for entry in sorted(directory.iterdir(), key=lambda entry: entry.name):
        name = f"{prefix}{entry.name}"
        found |= _below(entry, f"{name}/") if entry.is_dir() else {name: entry.read_bytes()}
    return found


def _present(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
