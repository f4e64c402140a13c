"""Notices that a label of the node chooses another configuration, or that the chosen one has another content."""

from pathlib import Path

from devherd.configurations import Configurations, told_in
from devherd.errors import UsageError
from devherd.settings import Settings
from devherd.spool.identity import identity_of


class ConfigurationsWatch:
    """Compares with what was loaded, without reading a file that stands. `has_changed` answers each change once."""

    def __init__(self, configurations: Configurations, settings: Settings) -> None:
        """`settings` are those of the configuration in force."""
        self._configurations = configurations
        self._file = settings.config_label_file
        self._value = settings.config_label_value
        self._told = told_in(self._file)
        self._state: object = None
        self._content: object = self._chosen()
        if settings.config_path is None or self._identity(settings.config_path) != settings.config_seen:
            self._state = self._content = None  # it has changed since it was read

    def has_changed(self) -> bool:
        """Whether there is something to be loaded."""
        before = self._content
        self._content = self._chosen()
        return self._content != before

    def _chosen(self) -> object:
        told = told_in(self._file)
        if told is not None and told != self._told and told.label == self._configurations.label:
            self._value = told.value
        try:
            path = self._configurations.file_of(self._value)
        except UsageError as error:
            self._state = None
            return str(error)
        state = path, self._identity(path)
        if state == self._state:
            return self._content
        self._state = state
        return path, _content(path)

    @staticmethod
    def _identity(path: Path) -> object:
        return identity_of(path, follow_symlinks=True)


def _content(path: Path) -> int | None:
    try:
        return hash(path.read_bytes())
    except OSError:
        return None
