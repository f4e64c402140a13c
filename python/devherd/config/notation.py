"""Values as the configuration file has them: `5s`, `true`, `/run/devherd`."""

from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import yaml
from pydantic.fields import FieldInfo

from devherd.config.form import Form
from devherd.config.problem import duration


def plain(value: Any, field: FieldInfo | None = None) -> Any:
    """A value of a field as YAML and JSON can have it; durations as text, paths as well."""
    if isinstance(value, float) and field is not None and _is_duration(field):
        return duration(value)
    if isinstance(value, list):
        return [plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value


def as_written(value: Any, field: FieldInfo | None = None) -> str:
    """A value on one line of YAML."""
    return in_yaml(plain(value, field))


def in_yaml(value: Any) -> str:
    """Plain data on one line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")


def _is_duration(field: FieldInfo) -> bool:
    """Also where it may be left out."""
    metadata = list(field.metadata)
    for kind in get_args(field.annotation):
        if get_origin(kind) is Annotated:
            metadata += get_args(kind)[1:]
    return any(isinstance(each, Form) and each.name == "duration" for each in metadata)
