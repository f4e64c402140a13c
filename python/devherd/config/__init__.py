"""The configuration: option, environment, file, default; every error is found at once, each with its key path.

`load` is the only way in. What a scan needs goes to Rust as JSON (`Config.native_json`), what every process needs
is `Config.settings`, and the rules that name resources are read by `scanner/resources.py`.
"""

from devherd.config.explain import ConfigError
from devherd.config.load import COMMON_OPTIONS, DEFAULT_PATH, changed_fixed_options, load, reload
from devherd.config.model import Config, ResourceRule, Selector, Sharing
from devherd.config.values import parse_duration
from devherd.config.vendors import Vendors

__all__ = [
    "COMMON_OPTIONS",
    "DEFAULT_PATH",
    "Config",
    "ConfigError",
    "ResourceRule",
    "Selector",
    "Sharing",
    "Vendors",
    "changed_fixed_options",
    "load",
    "parse_duration",
    "reload",
]
