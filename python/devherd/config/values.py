"""Parses durations and checks paths without pydantic: for files, options and arguments."""

import re
from math import inf
from pathlib import Path
from typing import Any

from devherd.config.errors import WrongValueError, echo

LONGEST_SECONDS = 31 * 86_400.0
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def parse_duration(value: Any) -> Any:
    """Seconds from `5s`, `250ms`, `1m30s` or a plain number of seconds. Raises WrongValueError."""
    if isinstance(value, str) and _DURATION.fullmatch(value):
        return sum(float(number) * _UNITS[unit] for number, unit in _DURATION_PART.findall(value))
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < inf:
        return float(max(-1, min(value, 2 * LONGEST_SECONDS)))  # whole numbers may be too large for a float
    raise WrongValueError(f"{echo(value)} is not a duration", "write it like `5s`, `250ms` or `1m30s`")


def usable_path(path: Any) -> Any:
    """The path. Raises WrongValueError if it is empty or contains NUL."""
    if isinstance(path, str) and (not path or "\0" in path):
        raise WrongValueError(
            "a path cannot be empty" if not path else "a path cannot contain a NUL character",
            "start it with `/`, or leave the key out",
        )
    return path


_OF_THE_KUBELET = ("device-plugins", "pod-resources", "plugins_registry")


def kubelet_path(path: Any) -> Any:
    """The path, if it is absolute and not one of the kubelet's own directories within it. Raises WrongValueError."""
    checked = Path(absolute_path(path))
    if checked.name in _OF_THE_KUBELET:
        what = f"{echo(path)} is a directory within the one that is meant"
        raise WrongValueError(what, f"give `{checked.parent}`: devherd adds `{checked.name}` itself")
    return path


def absolute_path(path: Any) -> Any:
    """The path, if it is absolute: `run`, `~/run` and `${HOME}/run` would depend on the current directory.

    Raises WrongValueError.
    """
    usable_path(path)
    if not isinstance(path, str | Path) or not Path(path).is_absolute():
        raise WrongValueError(f"{echo(path)} is not an absolute path", "start it with `/`")
    return path
