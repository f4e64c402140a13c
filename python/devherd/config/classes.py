"""`classes` of the configuration: which device classes are served. Those that devherd ships, and one's own.

The shipped ones are files in `python/devherd/classes`. Only the loader of the configuration, and commands, read them.
"""

import functools
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import InitErrorDetails

from devherd.config.class_texts import ClassName
from devherd.config.device_class import ClassDefinition
from devherd.config.errors import WrongValueError, echo, refuse
from devherd.config.types import Form, Section, meant

DIRECTORY = Path(__file__).parents[1] / "classes"
"""The shipped classes, a file each, named for the class."""
ALL = "all"
_CONFIRMED = "plugin"


def shipped_names() -> list[str]:
    """The names of the shipped classes, sorted."""
    return sorted(file.stem for file in DIRECTORY.glob("*.toml"))


def shipped_content(name: str) -> dict[str, Any]:
    """The content of a shipped file. Raises OSError if there is none."""
    return tomllib.loads((DIRECTORY / f"{name}.toml").read_text("utf-8"))


@functools.cache
def shipped(name: str) -> ClassDefinition:
    """The shipped class with this name. Raises OSError if there is none."""
    return ClassDefinition.model_validate(shipped_content(name))


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _unknown(names: Iterable[Any], own: Iterable[str]) -> Iterator[WrongValueError]:
    known = [ALL, *shipped_names(), *own]
    for number, name in enumerate(names):
        if isinstance(name, str) and name not in known:
            yield WrongValueError(f"there is no class {echo(name)}", meant(name, known), at=("enable", number))


class Classes(Section):
    """Device classes: further kinds of devices, each described by a file of a few lines. `devherd classes` lists those
    that devherd ships, [Serve a device that devherd does not know](classes.md) makes one.
    """  # noqa: D205 - what users read

    enable: Annotated[
        list[str],
        BeforeValidator(_as_list, json_schema_input_type=str | list[str]),
        Form("`all`, or list of names"),
    ] = []
    """The shipped classes to serve; `all`: each that was compared with the device plugin that it stands in for. Where
    two find the same entry, the first has it; `define` comes before.
    """
    define: dict[ClassName, ClassDefinition] = {}
    """Classes of your own, by name, which are served. One with the name of a shipped class takes its place. A template
    names facts in braces: those of the class, parts of names, `{class}`, `{name}` (of the entry), `{node}` (that the
    kernel names) and `{number}` (that node's `MAJOR:MINOR`); those of `nodes`, `health` and `plugin` also facts of the
    PCI function, as `{pci_address}`; that of `id` also `{share}`, counted from 0.
    """

    @model_validator(mode="wrap")
    @classmethod
    def _exist(cls, content: Any, handler: ModelWrapValidatorHandler["Classes"]) -> "Classes":
        """Refuse names that do not exist, beside whatever is wrong with classes."""
        try:
            made = handler(content)
        except ValidationError as error:
            written = content if isinstance(content, dict) else {}
            names, own = _as_list(written.get("enable")), written.get("define")
            unknown = list(_unknown(names if isinstance(names, list) else [], own if isinstance(own, dict) else {}))
            if not unknown:
                raise
            unknown[0].others = unknown[1:]
            told = [
                InitErrorDetails(type=one["type"], loc=one["loc"], input=one["input"], ctx=one.get("ctx", {}))
                for one in error.errors(include_url=False)
            ]
            more = InitErrorDetails(type="value_error", loc=(), input=content, ctx={"error": unknown[0]})
            raise ValidationError.from_exception_data(error.title, [*told, more]) from None
        refuse(_unknown(made.enable, made.define))
        return made

    def in_use(self) -> dict[str, ClassDefinition]:
        """The classes that are served, in their order."""
        chosen = dict(self.define)
        for name in self.enable:
            every = [one for one in shipped_names() if shipped(one).confirmed == _CONFIRMED] if name == ALL else [name]
            chosen |= {one: shipped(one) for one in every if one not in chosen}
        return chosen

    def native(self) -> list[dict[str, Any]]:
        """What the scan core needs of them."""
        return [one.native(name) for name, one in self.in_use().items()]
