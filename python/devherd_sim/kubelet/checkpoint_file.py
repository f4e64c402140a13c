"""The checkpoint on disk."""

import tempfile
from pathlib import Path

NAME = "kubelet_internal_checkpoint"


def read(directory: Path) -> bytes | None:
    """The content of a directory's checkpoint; None when absent. Raises OSError."""
    try:
        return (directory / NAME).read_bytes()
    except FileNotFoundError:
        return None


def write(directory: Path, content: bytes) -> None:
    """Replace a directory's checkpoint; makes the directory if need be. Raises OSError.

    The kubelet also waits for the disk; a simulated node does not lose power, and waiting would distort measurements.
    """
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(prefix=".", dir=directory, delete=False) as file:
        beside = Path(file.name)
        try:
            file.write(content)
            file.flush()
            beside.replace(directory / NAME)
        except OSError:
            beside.unlink()
            raise
