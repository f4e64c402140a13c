"""A directory of configurations, one for each kind of node; a node label selects one.

The supervisor uses it once a second; it imports nothing that the supervisor does not need.
"""

from dataclasses import dataclass
from pathlib import Path

from devherd.errors import UsageError

DEFAULT_LABEL = "nvidia.com/device-plugin.config"
"""The label key of NVIDIA's device plugin, which many nodes already have."""
FALLBACK = "default"
"""The file used if neither a label nor the options name one."""
_SUFFIXES = ("", ".yaml", ".yml")
_LISTED = 10


@dataclass(frozen=True, slots=True)
class Configurations:
    """The directory, the label's key, and the name used if the node has no such label."""

    directory: Path
    label: str = DEFAULT_LABEL
    default: str = ""
    """Empty: the only file, or `default` if there are several."""

    def file_of(self, value: str) -> Path:
        """The file for a value of the label, empty for no label. Raises UsageError if there is no such file."""
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
        """The names of the files, without Kubernetes' own, which begin with a dot. Raises UsageError if unreadable."""
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
        there = f"name an existing one: {', '.join(names[:_LISTED])}" if names else "put a file there"
        raise UsageError(f"{what} in {self.directory}", why, there)
