"""The common options of all commands, and loading of the configuration with them."""

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, get_args

from devherd import settings
from devherd.settings import CommonOption

if TYPE_CHECKING:
    import argparse

    from devherd.config.model import Config

OPTIONS = {
    "config": CommonOption("FILE", "configuration (default: {} if there is one)"),
    **settings.COMMON_OPTIONS,
}


def word_of(name: str) -> str:
    """The word of an option on the command line."""
    return f"--{name.replace('_', '-')}"


COMMON_OPTIONS = tuple(map(word_of, OPTIONS))
COMMON_VALUES = {
    "--registration": get_args(settings.RegistrationWay),
    "--log-level": get_args(settings.LogLevel),
    "--log-format": get_args(settings.LogFormat),
}
"""The possible values of options that have only a few, for completion; the configuration checks all values."""


def load_config(arguments: "argparse.Namespace") -> "Config":
    """The configuration for a command. Raises ConfigError or UsageError."""
    from devherd.config.loader import load

    return load(given_options(vars(arguments), OPTIONS), os.environ, plugin_of=plugin_of)


def plugin_of(text: str) -> str:
    """The name of the plugin that a text configures, for an error message; empty if there is none."""
    from devherd.importers import source

    return source.plugin_of(text)


def given_options(given: Mapping[str, Any], names: Iterable[str]) -> dict[str, str | None]:
    """The values of these options; None for an option that is not given."""
    return {name: given.get(name) for name in names}
