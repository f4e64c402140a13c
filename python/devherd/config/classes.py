"""`classes` of the configuration: which device classes are served. Those that devherd ships, and one's own.

The shipped ones are files in `python/devherd/classes`. Only the loader of the configuration, and commands, read them.
"""

import functools
import tomllib
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, model_validator

from devherd.config.device_class import ClassDefinition, ClassName
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

    @model_validator(mode="after")
    def _exist(self) -> "Classes":
        known = [ALL, *shipped_names(), *self.define]
        refuse(
            WrongValueError(f"there is no class {echo(name)}", meant(name, known), at=("enable", number))
            for number, name in enumerate(self.enable)
            if name not in known
        )
        return self

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
