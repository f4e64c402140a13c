"""The configuration in force with the origin of each value: `devherd config show`."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from devherd.config.errors import Location, key_path
from devherd.config.model import Config, Selector, XidPolicy
from devherd.config.types import in_yaml, plain

DEFAULT = "default"
_COMMENT_COLUMN = 48


@dataclass(frozen=True, slots=True)
class ShownValue:
    """A value as it is written in a file, and its origin."""

    location: Location
    value: Any
    origin: str
    """An option, a variable, `FILE:LINE`, or `default`."""


def shown(config: Config, given: Mapping[str, tuple[str, str]]) -> Iterator[ShownValue]:
    """Every value, in the order of the sections; `given` has the values from options and environment."""
    origins = {name: origin for name, (_, origin) in given.items()}
    for location, value in _values(config, ()):
        yield ShownValue(location, value, origins.get(str(location[0])) or _origin(config, location))


def as_tree(values: Iterable[ShownValue]) -> dict[str, Any]:
    """The values as the mappings and lists of a configuration file."""
    tree: dict[str, Any] = {}
    for each in values:
        _put(tree, each.location, each.value)
    return tree


def origins(values: Iterable[ShownValue]) -> dict[str, str]:
    """The origins by key path."""
    return {key_path(each.location): each.origin for each in values}


def as_yaml(values: Iterable[ShownValue]) -> str:
    """The text of an equivalent configuration file, each value with its origin as a comment."""
    lines: list[str] = []
    above: Location = ()
    for each in values:
        depth = next((n for n, (a, b) in enumerate(zip(above, each.location, strict=False)) if a != b), len(above))
        lines += _lines(each, depth)
        above = each.location
    return "".join(f"{line}\n" for line in lines)


def _lines(each: ShownValue, depth: int) -> Iterator[str]:
    """The lines of a value, after those of its sections that the previous value does not share."""
    *sections, name = each.location
    begin = indent = ""  # the beginning of a line, with a dash for the first line of a list's entry
    for level, part in enumerate(sections):
        if isinstance(part, int):
            begin = f"{indent}- " if level >= depth else f"{indent}  "
        elif level >= depth:
            yield f"{begin}{part}:"
            begin = f"{indent}  "
        else:
            begin = f"{indent}  "
        indent += "  "
    yield f"{f'{begin}{name}: {in_yaml(each.value)}':<{_COMMENT_COLUMN}}  # {each.origin}"


def _values(section: BaseModel, location: Location) -> Iterator[tuple[Location, Any]]:
    for name, field in type(section).model_fields.items():
        key, value = field.alias or name, getattr(section, name)
        if isinstance(value, Selector):
            yield (*location, key), _selector(value)
        elif isinstance(value, BaseModel):
            yield from _values(value, (*location, key))
        elif isinstance(value, list) and value and isinstance(value[0], BaseModel):
            for number, entry in enumerate(value):
                yield from _values(entry, (*location, key, number))
        else:
            yield (*location, key), plain(value, field)
    if isinstance(section, XidPolicy):
        for code, action in (section.__pydantic_extra__ or {}).items():
            yield (*location, code), action


def _selector(selector: Selector) -> dict[str, Any]:
    facts: dict[str, Any] = {
        fact: globs[0] if len(globs) == 1 else globs for fact, globs in (selector.__pydantic_extra__ or {}).items()
    }
    exceptions = getattr(selector, "exclude", [])
    return facts | ({"exclude": [_selector(exception) for exception in exceptions]} if exceptions else {})


def _origin(config: Config, location: Location) -> str:
    if config.positions is None or not config.positions.has(location):
        return DEFAULT
    return f"{config.source}:{config.positions.of(location, at_key=True).partition(':')[0]}"


def _put(tree: Any, location: Location, value: Any) -> None:
    for part, following in itertools.pairwise(location):
        empty: Any = [] if isinstance(following, int) else {}
        if isinstance(part, int) and part == len(tree):
            tree.append(empty)
        elif not isinstance(part, int):
            tree.setdefault(part, empty)
        tree = tree[part]
    tree[location[-1]] = value
