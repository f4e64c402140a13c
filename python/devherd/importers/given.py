"""Settings as somebody made them, and which of them no importer has taken: nothing is dropped without a line."""

from collections.abc import Iterator, Mapping
from typing import Any

from devherd.errors import UsageError


class Given:
    """A mapping of settings, and its sections; a setting is called by its whole name, `flags.gfd.oneshot`."""

    def __init__(self, content: Mapping[str, Any], prefix: str = "") -> None:
        self._content = content
        self._prefix = prefix
        self._taken: set[str] = set()
        self._sections: dict[str, Given] = {}

    def take(self, key: str, default: Any = None) -> Any:
        """The value, which is dealt with thereby; null is as good as absent."""
        self._taken.add(key)
        value = self._content.get(key)
        return default if value is None else value

    def section(self, key: str) -> "Given":
        """A mapping inside of it, empty where there is none. Raises UsageError for another kind of value."""
        if key not in self._sections:
            content = self.take(key, {})
            if not isinstance(content, Mapping):
                raise UsageError(
                    f"`{self._prefix}{key}` is not a section", "it must be a mapping of keys", "correct the file"
                )
            self._sections[key] = Given(content, f"{self._prefix}{key}.")
        return self._sections[key]

    def left(self) -> Iterator[str]:
        """The names of all settings that have a value and that nobody took."""
        for key, value in self._content.items():
            if key in self._sections:
                yield from self._sections[key].left()
            elif key not in self._taken and value is not None:
                yield f"{self._prefix}{key}"
