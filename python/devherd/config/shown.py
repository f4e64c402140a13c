"""The configuration in force with the origin of each value: `devherd config show`."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from devherd.config.model import Config
from devherd.config.notation import in_yaml, plain
from devherd.config.problem import Location, key_path
from devherd.config.selectors import Selector
from devherd.config.xid_policy import XidPolicy

DEFAULT = "default"
_COMMENT_COLUMN = 48


@dataclass(frozen=True, slots=True)
class Shown:
    """A value, as the file would have it, and where it comes from."""

    location: Location
    value: Any
    origin: str
    """An option, a variable, `FILE:LINE`, or `default`."""


def shown(config: Config, given: Mapping[str, tuple[str, str]]) -> Iterator[Shown]:
    """Every value, in the order of the sections; `given` has those of options and environment, as the loader has."""
    origins = {name: origin for name, (_, origin) in given.items()}
    for location, value in _values(config, ()):
        yield Shown(location, value, origins.get(str(location[0])) or _origin(config, location))


def as_tree(values: Iterable[Shown]) -> dict[str, Any]:
    """The values as the file would have them."""
    tree: dict[str, Any] = {}
    for each in values:
        _put(tree, each.location, each.value)
    return tree


def origins(values: Iterable[Shown]) -> dict[str, str]:
    """By key path."""
    return {key_path(each.location): each.origin for each in values}


def as_yaml(values: Iterable[Shown]) -> str:
    """A file that makes the same configuration, each value with its origin behind it."""
    lines: list[str] = []
    above: Location = ()
    for each in values:
        depth = next((n for n, (a, b) in enumerate(zip(above, each.location, strict=False)) if a != b), len(above))
        lines += _lines(each, depth)
        above = each.location
    return "".join(f"{line}\n" for line in lines)


def _lines(each: Shown, depth: int) -> Iterator[str]:
    """The lines of a value, with those of the sections around it that it does not share with the one before."""
    *sections, name = each.location
    begin = indent = ""  # what a line begins with, that of a list's entry with a dash
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
