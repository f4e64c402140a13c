"""The common options of all commands, and the words of a command line that need no argparse."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from devherd import settings
from devherd.settings import Option

if TYPE_CHECKING:
    import argparse

    from devherd.config.model import Config

OPTIONS = {
    "config": Option("FILE", "configuration (default: {} if there is one)"),
    **settings.COMMON_OPTIONS,
}
COMMON_OPTIONS = tuple(f"--{name.replace('_', '-')}" for name in OPTIONS)
COMMON_VALUES = {
    "--registration": get_args(settings.RegistrationWay),
    "--log-level": get_args(settings.LogLevel),
    "--log-format": get_args(settings.LogFormat),
}
"""The values of the options that have few, for completion; the configuration checks all values."""


def plain_options(words: Sequence[str], valued: Collection[str], flags: Collection[str]) -> dict[str, Any] | None:
    """The options that the words give, by name, as argparse has them; None for words that are for argparse to judge.

    `valued`: the names of the options that have a value; `flags`: of those that have none. Plain are `--name VALUE`,
    `--name=VALUE` and `--flag`. Import of argparse and of all commands takes a start longer than all else before it
    forks, and most starts have plain words.
    """
    given: dict[str, Any] = dict.fromkeys(valued) | dict.fromkeys(flags, False)
    rest = iter(words)
    for word in rest:
        option, has_value, value = word.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if option != word_of(name):
            return None
        if name in flags and not has_value:
            given[name] = True
        elif name in valued:
            given[name] = value = value if has_value else next(rest, "--")
            if value == "--" or (value.startswith("-") and not has_value):  # absent, or an option
                return None
        else:
            return None
    return given


def word_of(name: str) -> str:
    """The word of an option on the command line."""
    return f"--{name.replace('_', '-')}"


def load_config(arguments: "argparse.Namespace") -> "Config":
    """The configuration for a command. Raises ConfigError or UsageError."""
    from devherd.config.loader import load

    return load(given_options(vars(arguments), OPTIONS), os.environ, plugin_of=plugin_of)


def plugin_of(text: str) -> str:
    """The name of the plugin that a text configures, for an error message; empty if there is none."""
    from devherd.importers import source

    return source.plugin_of(text)


def given_options(given: Mapping[str, Any], names: Iterable[str]) -> dict[str, str | None]:
    """The values of these options, which have one; None for one that is not given."""
    return {name: given.get(name) for name in names}
