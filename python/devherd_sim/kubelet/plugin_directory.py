"""The directory of the plugins' sockets, cleaned as a starting kubelet cleans it (1.33 and later)."""

import stat
from pathlib import Path


def clean(directory: Path) -> list[str]:
    """Make the directory if need be and remove every socket in it, also behind a link; returns their names.

    Files, directories and what is in them stay. Raises OSError when something cannot be removed: a kubelet exits then.
    """
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    sockets = [path for path in directory.iterdir() if _is_socket(path)]
    for path in sockets:
        path.unlink(missing_ok=True)
    return sorted(path.name for path in sockets)


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False  # a dangling link; the kubelet logs it and goes on
