"""Writes what follows from the models of the configuration: `make models`.

`devherd/config/sections.py` has a dataclass for each section of the configuration in force, with the keys and
defaults of the model, and without pydantic. The settings of `rust/tests/settings` are the defaults as the scan core
gets them.
"""

import inspect
import json
import subprocess
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel

from devherd.config import model, vendors
from devherd.config.types import Section

SECTIONS = "python/devherd/config/sections.py"
SETTINGS = "rust/tests/settings/defaults.json"
HEAD = '''\
"""The sections of the configuration in force, as plain values; times in seconds. The models say what each key is.

Generated from them by `make models`: python/generate.py.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
'''
ALIASES = {
    value: name
    for module in (vendors, model)
    for name, value in vars(module).items()
    if typing.get_origin(value) is Literal and not name.startswith("_")
}
"""Names that the models have for choices."""


def sections() -> str:
    """The module."""
    classes: dict[type[BaseModel], str] = {}
    _add(model.Config, classes)
    _add(vendors.VendorOptions, classes)
    text = "\n".join(classes.values())
    aliases = [f"{name} = {_literal(choice)}" for choice, name in ALIASES.items() if f" {name} " in text]
    return "\n".join([HEAD, *aliases, text])


def _add(section: type[BaseModel], classes: dict[type[BaseModel], str]) -> None:
    """A section behind those that it needs."""
    if section in classes:
        return
    above = section.__mro__[1]
    base = above if above not in (BaseModel, Section, model.Placed) else None
    if base:
        _add(base, classes)
    inherited = {name for name, *_ in _keys(base)} if base else set()
    keys = [key for key in _keys(section) if key[0] not in inherited]
    for _, kind, _ in keys:
        for inner in _sections_in(kind):
            _add(inner, classes)
    lines = [
        "@dataclass(frozen=True, slots=True, kw_only=True)",
        f"class {section.__name__}{f'({base.__name__})' if base else ''}:",
        f'    """`{section.__name__}` of {section.__module__.rpartition(".")[2]}.py."""',
        *(f"    {name}: {_shown(kind)}{default}" for name, kind, default in keys),
    ]
    classes[section] = "\n".join(lines) + "\n"


def _keys(section: type[BaseModel]) -> Iterator[tuple[str, Any, str]]:
    """Name, type, and default as it is written behind them."""
    hints = typing.get_type_hints(section, include_extras=True)
    for name, field in section.model_fields.items():
        if name not in section.file_only:
            default = "" if field.is_required() else f" = {_default(field.default)}"
            yield name, hints[name], default
    example = section.model_construct()
    for name in section.derived:
        kind = typing.get_type_hints(inspect.getattr_static(section, name).fget)["return"]
        yield name, kind, f" = {_default(getattr(example, name))}"


def _sections_in(kind: Any) -> Iterator[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for argument in typing.get_args(kind):
        yield from _sections_in(argument)


def _shown(kind: Any) -> str:
    """A type without what pydantic checks."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in ALIASES:
        return ALIASES[kind]
    if origin is Annotated:
        return _shown(arguments[0])
    if origin is Literal:
        return _literal(kind)
    if origin in (types.UnionType, typing.Union):
        return " | ".join(map(_shown, arguments))
    if arguments:
        return f"{origin.__name__}[{', '.join(map(_shown, arguments))}]"
    return "None" if kind is type(None) else kind.__name__


def _literal(kind: Any) -> str:
    choices = (json.dumps(each) if isinstance(each, str) else str(each) for each in typing.get_args(kind))
    return f"Literal[{', '.join(choices)}]"


def _default(value: Any) -> str:
    if isinstance(value, BaseModel):
        return f"field(default_factory={type(value).__name__})"
    if isinstance(value, list | dict):
        return f"field(default_factory={type(value).__name__ if not value else f'lambda: {value!r}'})"
    return f'Path("{value}")' if isinstance(value, Path) else repr(value)


def settings() -> str:
    """What the scan core gets by default."""
    return json.dumps(json.loads(model.Config().native_json()), indent=2) + "\n"


def main() -> None:
    """Write both, below the directory that is named."""
    formatter = [str(Path(sys.executable).with_name("ruff")), "format", "-"]
    formatted = subprocess.run(formatter, input=sections(), stdout=subprocess.PIPE, text=True, check=True).stdout
    for name, text in ((SECTIONS, formatted), (SETTINGS, settings())):
        file = Path(sys.argv[1]) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
