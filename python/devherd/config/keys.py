"""The keys of the configuration file as data: what the schema, the sample and docs/configuration.md are made of."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from devherd.config.form import Form
from devherd.config.notation import as_written

REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a section: how its value is written, its default as the file would have it, what users read of it."""

    name: str
    field: str
    """Its name in the program."""
    form: str
    default: str
    """In YAML, or `required`; empty for a section that may be left out."""
    description: str
    section: type[BaseModel] | None
    """Of its value, or of the items of its list."""
    is_list: bool


def keys_of(section: type[BaseModel]) -> Iterator[Key]:
    """The keys of a section, in their order."""
    for name, field in section.model_fields.items():
        inner = section_of(field)
        is_list = _is_list(field.annotation)
        yield Key(
            name=field.alias or name,
            field=name,
            form=_form(field.annotation, field.metadata),
            default="" if inner and not is_list and not field.is_required() else _default(field),
            description=" ".join((field.description or _described(inner)).split()),
            section=inner,
            is_list=is_list,
        )


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The section behind a key, be it the key's own value or an item of its list."""
    candidates = [field.annotation, *get_args(field.annotation)]
    return next((kind for kind in candidates if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _described(section: type[BaseModel] | None) -> str:
    """A key whose value is a section has the section's description, unless it has its own."""
    return (section.__doc__ or "") if section else ""


def _default(field: FieldInfo) -> str:
    return REQUIRED if field.is_required() else as_written(field.default, field)


def _form(annotation: Any, metadata: list[Any]) -> str:
    """How a value is written."""
    given = [each for each in metadata if isinstance(each, Form)]
    if given:
        return given[-1].name
    arguments = get_args(annotation)
    if arguments:
        return _compound(get_origin(annotation), arguments, metadata)
    if _is_section(annotation):
        return "section"
    return {bool: "`true`, `false`", int: _number(metadata)}.get(annotation, "text")


def _compound(origin: Any, arguments: tuple[Any, ...], metadata: list[Any]) -> str:
    if origin is Annotated:
        return _form(arguments[0], [*arguments[1:], *metadata])
    if origin is Literal:
        return ", ".join(f"`{as_written(choice)}`" for choice in arguments)
    if origin is list:
        return "list" if _is_section(arguments[0]) else f"list: {_form(arguments[0], [])}"
    return " or ".join(_form(each, metadata) for each in arguments if each is not type(None))


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _number(metadata: list[Any]) -> str:
    """`0 to 64`."""
    metadata = [each for one in metadata for each in getattr(one, "metadata", [one])]
    least = next((each.ge for each in metadata if isinstance(each, Ge)), None)
    most = next((each.le for each in metadata if isinstance(each, Le)), None)
    bounds = "" if least is None else f", {least} to {most}" if most is not None else f", at least {least}"
    return f"whole number{bounds}"


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is list
