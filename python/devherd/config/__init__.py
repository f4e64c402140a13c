"""The configuration: option, environment, file, default; every error is found at once, each with its key path.

`load` reads and validates (`model`, `strict_yaml`, `conflicts`), `resolve` makes plain values of it (`resolved`), and
`resolved_file` hands those on to the processes that run. What is listed here brings pydantic and YAML, so it is
imported when it is first used: by commands and the loader. `resolved` and `resolved_file` bring neither.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from devherd.config.errors import ConfigError
    from devherd.config.loader import COMMON_OPTIONS, judge, load, reload, without_a_file
    from devherd.config.model import Config, ResourceRule, Sharing
    from devherd.config.resolution import resolve
    from devherd.config.sources import DEFAULT_PATH, file_of
    from devherd.config.values import parse_duration
    from devherd.config.vendors import Vendors

__all__ = [
    "COMMON_OPTIONS",
    "DEFAULT_PATH",
    "Config",
    "ConfigError",
    "ResourceRule",
    "Sharing",
    "Vendors",
    "file_of",
    "judge",
    "load",
    "parse_duration",
    "reload",
    "resolve",
    "without_a_file",
]

_NAMES = {
    "errors": ("ConfigError",),
    "loader": ("COMMON_OPTIONS", "judge", "load", "reload", "without_a_file"),
    "model": ("Config", "ResourceRule", "Sharing"),
    "resolution": ("resolve",),
    "sources": ("DEFAULT_PATH", "file_of"),
    "values": ("parse_duration",),
    "vendors": ("Vendors",),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
