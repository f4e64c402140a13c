"""A configuration file with every key in it, as a comment with its default: `devherd config sample`.

A line that begins with `#` and a space is for people; without the space it is a setting, and without the `#` in force.
Sections are no comments, so that a setting is taken in by removing one character.
"""

import textwrap
from collections.abc import Iterator

from pydantic import BaseModel

from devherd.config.examples import EXAMPLES
from devherd.config.keys import REQUIRED, Key, keys_of
from devherd.config.model import Config

WIDTH = 110
_HEAD = """\
# The configuration of devherd: every key with its default.
#
# To change one, remove the `#` before it. Durations are written like `5s`, `250ms` or `1m30s`.
# `devherd check-config FILE` says what is wrong with a file, and what comes of it on this host.
"""


def sample() -> str:
    """The whole file; as it is, and without any `#` before a setting, it is the default configuration."""
    return "\n".join([_HEAD.rstrip(), *_section(Config, (), "")]) + "\n"


def _section(section: type[BaseModel], above: tuple[str, ...], indent: str) -> Iterator[str]:
    for key in keys_of(section):
        path = (*above, key.name)
        if not above:
            yield ""
        yield from _wrapped(f"{key.description} {_form(key)}".rstrip(), f"{indent}# ")
        if key.section and not key.is_list:
            yield f"{indent}{key.name}:"
            yield from _section(key.section, path, f"{indent}  ")
            continue
        yield f"{indent}#{key.name}: {key.default}"
        if key.section:
            yield from _entries(key.section, ".".join(path), indent)


def _entries(section: type[BaseModel], path: str, indent: str) -> Iterator[str]:
    """The keys of an entry of a list, and an example."""
    yield f"{indent}# Keys of an entry:"
    for name, key in _keys_within(section):
        text = f"{name}: {key.description} {_form(key, with_default=True)}".rstrip()
        yield from _wrapped(text, f"{indent}#   ", f"{indent}#     ")
    if path in EXAMPLES:
        yield f"{indent}# Example:"
        yield from (f"{indent}#   {line}" for line in EXAMPLES[path].splitlines())


def _keys_within(section: type[BaseModel], above: str = "") -> Iterator[tuple[str, Key]]:
    for key in keys_of(section):
        name = f"{above}{key.name}"
        yield name, key
        if key.section:
            yield from _keys_within(key.section, f"{name}[]." if key.is_list else f"{name}.")


def _form(key: Key, *, with_default: bool = False) -> str:
    """How it is written, and whether it has to be."""
    parts = [] if key.section else [key.form]
    if key.default == REQUIRED:
        parts.append(REQUIRED)
    elif with_default and key.default not in {"", "null", "[]"}:
        parts.append(f"default {key.default}")
    return f"({'; '.join(parts)})" if parts else ""


def _wrapped(text: str, first: str, later: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=later or first,
        break_on_hyphens=False,
        break_long_words=False,
    )
