"""The sections of NVIDIA's file that name and share devices. Unknown keys are ignored, as the plugin does."""

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from devherd.errors import UsageError


class Named(BaseModel):
    """A pattern of products or MIG profiles, and the name that they get."""

    pattern: str
    name: str


class Resources(BaseModel):
    """The section `resources`."""

    gpus: list[Named] = []
    mig: list[Named] = []


class Shared(BaseModel):
    """One shared resource. `devices`: all, the first N, or a list of indices (`0`, `0:1` for MIG) and UUIDs."""

    name: str
    rename: str | None = None
    devices: Literal["all"] | int | list[int | str] = "all"
    replicas: int


class Strategy(BaseModel):
    """What is shared in one way."""

    rename_by_default: bool = Field(False, alias="renameByDefault")
    fail_requests_greater_than_one: bool | None = Field(None, alias="failRequestsGreaterThanOne")
    resources: list[Shared] = []


class Sharing(BaseModel):
    """The section `sharing`."""

    time_slicing: Strategy | None = Field(None, alias="timeSlicing")
    mps: Strategy | None = None


Section = TypeVar("Section", bound=BaseModel)


def read(kind: type[Section], name: str, content: Mapping[str, Any]) -> Section:
    """The section of this kind; an absent one has its defaults. Raises UsageError with the key that is wrong."""
    try:
        return kind.model_validate(dict(content))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in (name, *first["loc"]))
        raise UsageError(f"bad value of {place}", str(first["msg"]), "correct the file") from error
