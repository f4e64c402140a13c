"""Errors of a configuration: problem, place in the file, cure."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from devherd.errors import UsageError

Location = tuple[int | str, ...]
"""Keys and list indices from the root of the file: `("resources", 0, "match")`."""

_LONGEST_ECHO = 60
_UNITS = ((3600.0, "h"), (60.0, "m"), (1.0, "s"), (0.001, "ms"))


@dataclass(frozen=True, slots=True)
class Problem:
    """One error or warning. `at_key` is true if it is about the key itself, not about its value."""

    location: Location
    what: str
    cure: str
    at_key: bool = False

    def __str__(self) -> str:
        path = key_path(self.location)
        return f"{path}: {self.what} — {self.cure}" if path else f"{self.what} — {self.cure}"


class WrongValueError(ValueError):
    """A validator refuses a value: reason and cure; `at` is the location of the bad part within the value."""

    def __init__(self, what: str, cure: str, at: Location = ()) -> None:
        super().__init__(f"{what} — {cure}")
        self.what = what
        self.cure = cure
        self.at = at
        self.others: Sequence[WrongValueError] = ()
        """What else is wrong with the value."""


def refuse(errors: Iterable[WrongValueError]) -> None:
    """Raise the errors, if there are any, as one."""
    found = list(errors)
    if found:
        found[0].others = found[1:]
        raise found[0]


def key_path(location: Location) -> str:
    """A location as text: `resources[0].match`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")


def echo(value: Any) -> str:
    """A value as written in the file, shortened, for use in a sentence."""
    if value is None or isinstance(value, bool):
        return f"`{str(value).lower().replace('none', 'null')}`"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = str(getattr(value, "text", value))
    if not text:
        return "an empty text"
    return f"`{text}`" if len(text) <= _LONGEST_ECHO else f"`{text[: _LONGEST_ECHO - 1]}…`"


def duration(seconds: float) -> str:
    """Seconds as written in the file: `5s`, `1m30s`, `250ms`."""
    milliseconds = round(seconds * 1000)
    if not math.isclose(milliseconds, seconds * 1000, abs_tol=1e-6):
        return f"{seconds * 1000:g}ms"
    parts = []
    for size, unit in _UNITS:
        count, milliseconds = divmod(milliseconds, round(size * 1000))
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or "0s"


class Positions:
    """Lines and columns of the keys of a document; keys that `<<` merges into a mapping are among its keys."""

    def __init__(self, root: yaml.Node | None) -> None:
        self._root = root

    def of(self, location: Location, *, at_key: bool = False) -> str:
        """Line and column, `3:5`, of a value or with `at_key` of its key; of the nearest parent if it is absent."""
        node, mark = self._root, None
        for part in location:
            found = _child(node, part)
            if found is None:
                break
            key, node = found
            mark = (key if at_key else node).start_mark
        return f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"

    def scalars(self) -> Iterator[tuple[Location, yaml.ScalarNode, bool]]:
        """Each key and each value that is no list or mapping: its location, its node, and whether it is a key."""
        yield from _scalars((), self._root, {id(self._root)}) if self._root else ()

    def has(self, location: Location) -> bool:
        """Whether the file itself has this key."""
        node = self._root
        for part in location:
            found = _child(node, part)
            if found is None:
                return False
            node = found[1]
        return node is not None


def _child(node: yaml.Node | None, part: int | str) -> tuple[yaml.Node, yaml.Node] | None:
    """The key and the value below a node; an item of a list is its own key."""
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    if not isinstance(node, yaml.MappingNode):
        return None
    named = (
        (key, value)
        for key, value in reversed(node.value)
        if isinstance(key, yaml.ScalarNode) and key.value == str(part)
    )  # a merged key can occur twice: the last one counts
    return next(named, None)


def _scalars(location: Location, node: yaml.Node, seen: set[int]) -> Iterator[tuple[Location, yaml.ScalarNode, bool]]:
    if isinstance(node, yaml.ScalarNode):
        yield location, node, False
    parts: Iterable[tuple[int | str, yaml.Node]] = ()
    if isinstance(node, yaml.SequenceNode):
        parts = enumerate(node.value)
    elif isinstance(node, yaml.MappingNode):
        parts = [(str(key.value), value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
        yield from ((location, key, True) for key, _ in node.value if isinstance(key, yaml.ScalarNode))
    for part, value in parts:
        if id(value) not in seen:  # an alias may be used often, and within its own anchor
            seen.add(id(value))
            yield from _scalars((*location, part), value, seen)


class ConfigError(UsageError):
    """A file with invalid keys: the message has the first error and the number of others, `errors` has all of them."""

    def __init__(self, errors: Sequence[UsageError]) -> None:
        first, others = errors[0], len(errors) - 1
        more = f" ({others} more: see `devherd config check`)" if others else ""
        super().__init__(first.what, first.why, first.cure + more)
        self.errors = errors


def config_error(
    source: str,
    problems: Iterable[Problem],
    positions: Positions | None = None,
    origins: Mapping[str, str] | None = None,
    subject: str = "configuration",
) -> ConfigError:
    """The error for these problems, in their order; `subject` is the kind of the file.

    `origins` has, by key, the option or variable that gives a value which is not from the file.
    """
    return ConfigError([*_errors(source, problems, positions, origins or {}, subject)])


def place(source: str, positions: Positions | None, location: Location, *, at_key: bool = False) -> str:
    """A place in a file: `config.yaml:3:5`; only the file if `positions` is None."""
    return f"{source}:{positions.of(location, at_key=at_key)}" if positions else source


def _errors(
    source: str, problems: Iterable[Problem], positions: Positions | None, origins: Mapping[str, str], subject: str
) -> Iterator[UsageError]:
    for problem in problems:
        origin = origins.get(str(problem.location[0])) if problem.location else None
        if origin:
            yield UsageError(f"bad value of {origin}", problem.what, problem.cure)
            continue
        where = place(source, positions, problem.location, at_key=problem.at_key)
        path = key_path(problem.location)
        what = f"{path}: {problem.what}" if path else problem.what
        yield UsageError(f"bad {subject} in {where}", what, problem.cure)
