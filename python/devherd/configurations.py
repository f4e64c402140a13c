"""A directory of configurations, from which a label of the node chooses: a ConfigMap with a file for each kind of node.

The supervisor looks here once a second, so nothing is imported that it does not need.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from devherd.errors import UsageError

DEFAULT_LABEL = "nvidia.com/device-plugin.config"
"""That of NVIDIA's plugin, whose nodes have it already."""
FALLBACK = "default"
"""The name that is looked for where nobody names a default."""
_SUFFIXES = ("", ".yaml", ".yml")
_LISTED = 10


@dataclass(frozen=True, slots=True)
class Configurations:
    """The directory, the label's key, and the name that counts where the node has no such label."""

    directory: Path
    label: str = DEFAULT_LABEL
    default: str = ""
    """Empty: `default` if there is such a file, else the only file."""

    def file_of(self, value: str) -> Path:
        """The file that the label's value names, empty being no label. Raises UsageError when there is none."""
        names = self.names()
        if value:
            return self._named(value, names, f"no configuration `{value}`", f"the node's label {self.label} names it")
        if self.default:
            return self._named(self.default, names, f"no configuration `{self.default}`", "it is the default")
        if len(names) == 1:
            return self.directory / names[0]
        why = f"the node has no label {self.label}, and no default is named"
        return self._named(FALLBACK, names, f"no configuration `{FALLBACK}`", why)

    def names(self) -> list[str]:
        """Of the files; those that Kubernetes keeps for itself begin with dots. Raises UsageError."""
        try:
            return sorted(
                path.name for path in self.directory.iterdir() if not path.name.startswith(".") and path.is_file()
            )
        except OSError as error:
            raise UsageError(
                f"cannot read {self.directory}",
                error.strerror or str(error),
                "give --configs a directory of configurations",
            ) from error

    def _named(self, name: str, names: list[str], what: str, why: str) -> Path:
        for suffix in _SUFFIXES:
            if f"{name}{suffix}" in names:
                return self.directory / f"{name}{suffix}"
        there = f"name one of those that are there: {', '.join(names[:_LISTED])}" if names else "put a file there"
        raise UsageError(f"{what} in {self.directory}", why, there)


@dataclass(frozen=True, slots=True)
class Told:
    """What the API server has said of the label."""

    label: str
    value: str
    """Empty: the node has no such label."""
    asked_timestamp_seconds: float
    """Wall clock: it distinguishes the answer of this process from that of an earlier one."""


def content_of(told: Told) -> bytes:
    """Of the file that `told_in` reads."""
    return json.dumps(asdict(told)).encode()


def told_in(file: Path) -> Told | None:
    """The last answer; None where there is none."""
    try:
        return Told(**json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
