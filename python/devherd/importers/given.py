"""Settings as somebody made them, and which of them no importer has taken: nothing is dropped without a line."""

from collections.abc import Iterator, Mapping
from typing import Any

from devherd.config.problem import echo
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
                raise not_keys(f"{self._prefix}{key}", content)
            self._sections[key] = Given(content, f"{self._prefix}{key}.")
        return self._sections[key]

    def items(self, key: str) -> list[Any]:
        """The items of a list inside of it, none where there is none. Raises UsageError for another kind of value."""
        return listed(f"{self._prefix}{key}", self.take(key))

    def left(self) -> Iterator[str]:
        """The names of all settings that have a value and that nobody took."""
        for key, value in self._content.items():
            if key in self._sections:
                yield from self._sections[key].left()
            elif key not in self._taken and value is not None:
                yield f"{self._prefix}{key}"


def not_keys(name: str, value: Any) -> UsageError:
    """The error for what has to be a mapping."""
    return UsageError(f"`{name}` is not a section", f"it is {echo(value)}", "give it keys, one a line and indented")


def listed(name: str, value: Any) -> list[Any]:
    """The items of a list, none for null. Raises UsageError for what is not a list."""
    if isinstance(value, list | None):
        return value or []
    cure = "begin each item with `- ` on a line of its own"
    raise UsageError(f"`{name}` is not a list", f"it is {echo(value)}", cure)
