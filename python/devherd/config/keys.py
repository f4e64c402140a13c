"""The keys of the configuration file as data: what the schema, the sample and docs/configuration.md are made of."""

from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The section behind a key, be it the key's own value or an item of its list."""
    candidates = [field.annotation, *get_args(field.annotation)]
    return next((kind for kind in candidates if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
