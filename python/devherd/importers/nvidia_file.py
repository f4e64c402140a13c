"""The sections of NVIDIA's file that name and share devices, and what of them the plugin reads and then ignores."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from devherd.config.problem import key_path
from devherd.config.words import problems_of
from devherd.errors import UsageError
from devherd.importers.given import not_keys
from devherd.importers.imported import Imported

_IGNORED = "the plugin ignores it; --with-ignored gives it its effect"


class Part(BaseModel):
    """Any of them. Unknown keys are kept, to be named: the plugin ignores them."""

    model_config = ConfigDict(extra="allow")


class Named(Part):
    """A pattern of products or MIG profiles, and the name that they get."""

    pattern: str
    name: str


class Resources(Part):
    """The section `resources`."""

    gpus: list[Named] = []
    mig: list[Named] = []


class Shared(Part):
    """One shared resource. `devices`: all, the first N, or a list of indices (`0`, `0:1` for MIG) and UUIDs."""

    name: str
    rename: str | None = None
    devices: Literal["all"] | int | list[int | str] = "all"
    replicas: int = Field(ge=2)


class Strategy(Part):
    """What is shared in one way."""

    rename_by_default: bool = Field(False, alias="renameByDefault")
    fail_requests_greater_than_one: bool | None = Field(None, alias="failRequestsGreaterThanOne")
    resources: list[Shared] = []


class Sharing(Part):
    """The section `sharing`."""

    time_slicing: Strategy | None = Field(None, alias="timeSlicing")
    mps: Strategy | None = None


Section = TypeVar("Section", bound=Part)


def read(kind: type[Section], name: str, content: Any) -> Section:
    """The section of this kind; an absent one has its defaults. Raises UsageError with the key that is wrong."""
    if not isinstance(content, Mapping):
        raise not_keys(name, content)
    try:
        return kind.model_validate(dict(content))
    except ValidationError as error:
        first = next(problems_of(error, kind))
        raise UsageError(f"bad value of {key_path((name, *first.location))}", first.what, first.cure) from error


def unknown(part: Part, name: str) -> Iterator[str]:
    """The names of the keys in it that the plugin does not know."""
    for key in part.model_extra or {}:
        yield f"{name}.{key}"
    for key, field in type(part).model_fields.items():
        value = getattr(part, key)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Part):
                yield from unknown(each, f"{name}.{field.alias or key}")


def without_ignored(resources: Resources, sharing: Sharing, imported: Imported) -> tuple[Resources, Sharing]:
    """What the plugin makes of both sections (`DisableResourceNamingInConfig`); each loss is noted."""
    for key in ("gpus", "mig"):
        if getattr(resources, key):
            imported.note(f"resources.{key} is left out: {_IGNORED}")
    strategies = {
        "time_slicing": _without_names(sharing.time_slicing, "timeSlicing", imported),
        "mps": _without_names(sharing.mps, "mps", imported),
    }
    return Resources(), sharing.model_copy(update=strategies)


def _without_names(strategy: Strategy | None, name: str, imported: Imported) -> Strategy | None:
    if strategy is None:
        return None
    for key, is_set in (
        ("rename", any(each.rename for each in strategy.resources)),
        ("devices", any(each.devices != "all" for each in strategy.resources)),
    ):
        if is_set:
            imported.note(f"sharing.{name}.resources.{key} is left out: {_IGNORED}")
    plain = [each.model_copy(update={"rename": None, "devices": "all"}) for each in strategy.resources]
    return strategy.model_copy(update={"resources": plain})
