"""Reads a file of one device class, or of several by name, in TOML or YAML: `devherd classes check`."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from pydantic import ValidationError

from devherd.config import toml_file, yaml_file
from devherd.config.checks import problems_of
from devherd.config.classes import Classes
from devherd.config.device_class import ClassDefinition
from devherd.config.errors import Location, Positions, Problem, config_error

SUBJECT = "class"
_EXAMPLE = "find: {class: accel}"


def classes_in(source: str, text: str) -> dict[str, ClassDefinition]:
    """The classes in a text, by name; `source` is its path, by which a single class is named.

    A single class has the keys of one; a mapping has classes by name; of a configuration it is `classes.define`. Raises
    ConfigError with every error found.
    """
    content, positions = _content(source, text)
    above: Location = ()
    if isinstance(content.get("classes"), Mapping):
        above, content = ("classes",), content["classes"]
    elif not any(_has_classes(one) for one in content.values()):
        if "find" in content or not all(isinstance(one, Mapping) for one in content.values()):
            return {_named(source): _one(source, content, positions)}
        above, content = _BY_NAME, {"define": content}
    try:
        defined = Classes.model_validate(content).define
    except ValidationError as error:
        problems = [
            Problem(_in_file(above, one.location), one.what, one.cure, at_key=one.at_key)
            for one in problems_of(error, Classes)
        ]
        raise config_error(source, problems, positions, subject=SUBJECT) from None
    if not defined:
        problem = Problem(_in_file(above, ("define",)), "there is no class", f"write it like `{_EXAMPLE}`")
        raise config_error(source, [problem], positions, subject=SUBJECT)
    return defined


_BY_NAME: Location = ("define",)
"""What a file with classes by name leaves out."""


def _in_file(above: Location, location: Location) -> Location:
    """Where a key of `classes` is in the file."""
    return location[1:] if above == _BY_NAME else (*above, *location)


def _has_classes(content: Any) -> bool:
    """Whether this is what `define` has: classes by name."""
    if not isinstance(content, Mapping) or "find" in content or not content:
        return False
    return all(isinstance(one, Mapping) and "find" in one for one in content.values())


def _named(source: str) -> str:
    """The name of the class in a file: the file's, as far as a class may have it."""
    name = re.sub("[^a-z0-9]+", "-", PurePath(source).stem.lower())[:40].strip("-")
    return name or "unnamed"


def _one(source: str, content: dict[str, Any], positions: Positions) -> ClassDefinition:
    try:
        return ClassDefinition.model_validate(content)
    except ValidationError as error:
        raise config_error(source, problems_of(error, ClassDefinition), positions, subject=SUBJECT) from None


def _content(source: str, text: str) -> tuple[dict[str, Any], Positions]:
    if source.endswith(".toml") or _is_toml(text):
        return toml_file.parsed(source, text, subject=SUBJECT)
    return yaml_file.parsed(source, text, subject=SUBJECT, example=_EXAMPLE)


def _is_toml(text: str) -> bool:
    """Whether a text that may be YAML is TOML: an empty one is both."""
    try:
        return bool(tomllib.loads(text))
    except tomllib.TOMLDecodeError:
        return False
