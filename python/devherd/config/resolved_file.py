"""`<run-dir>/config.json`: the configuration in force, as one process leaves it for the others.

Written by the supervisor at its start and by the loader at each reload that succeeds; read by scanner and exporter.
The keys are the fields of `resolved.Config`. Not for users: each version reads only what it has written itself.
"""

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from devherd.config.resolved import Config
from devherd.spool.files import replace


class ResolvedFileError(Exception):
    """The file is missing or cannot be read: path and reason."""


def write(path: Path, config: Config) -> None:
    """Put the configuration in place, for this user alone. Raises OSError."""
    replace(path, json.dumps(dataclasses.asdict(config), default=str).encode(), mode=0o600)


def read(path: Path) -> Config:
    """The configuration in force. Raises ResolvedFileError."""
    try:
        config: Config = _built(Config, json.loads(path.read_bytes()))
    except OSError as error:
        raise ResolvedFileError(f"{path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ResolvedFileError(f"{path}: not a resolved configuration: {error}") from error
    return config


def _built(kind: Any, value: Any) -> Any:
    """The value that JSON holds, as the type that a field is declared with."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _instance(typing.cast("type[Any]", kind), value)
    if origin is types.UnionType:
        return None if value is None else _built(next(each for each in arguments if each is not type(None)), value)
    if origin is list:
        return [_built(arguments[0], each) for each in value]
    if origin is dict:
        return {key: _built(arguments[1], each) for key, each in value.items()}
    if origin is tuple:
        return tuple(_built(arguments[0], each) for each in value)
    return Path(value) if kind is Path else value


def _instance(kind: type[Any], values: Mapping[str, Any]) -> Any:
    hints = typing.get_type_hints(kind)
    return kind(**{name: _built(hints[name], value) for name, value in values.items()})
