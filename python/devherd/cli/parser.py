"""argparse with devherd's form of errors, and the options that every command takes."""

import argparse
import difflib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn, get_args

from devherd import settings
from devherd.config.chosen_file import DEFAULT_PATH
from devherd.errors import UsageError
from devherd.settings import Option

if TYPE_CHECKING:
    from devherd.config.model import Config


class Parser(argparse.ArgumentParser):
    """A parser of one command's options: no abbreviations, which a later option would make ambiguous."""

    def __init__(
        self, *, prog: str, description: str | None = None, epilog: str | None = None, add_help: bool = True
    ) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            add_help=add_help,
        )

    def error(self, message: str) -> NoReturn:
        """Raise UsageError for argparse's message, in the form of all other errors."""
        see = f"see `{self.prog} --help`"
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message and unknown.startswith("-"):
            option = unknown.split()[0].partition("=")[0]
            cure = _nearest(option, self._option_string_actions) or see
            raise UsageError(f"unknown option `{option}`", f"`{self.prog}` has no such option", cure)
        if unknown != message:
            raise UsageError(f"unknown argument `{unknown}`", f"`{self.prog}` takes no such argument", see)
        if found := _CHOICE.fullmatch(message):
            choices = [each.strip(" '") for each in found["choices"].split(",")]
            why = f"`{found['value']}` is not one of {', '.join(f'`{each}`' for each in choices)}"
            raise UsageError(f"bad value of {found['argument']}", why, _nearest(found["value"], choices) or see)
        if found := _NUMBER.fullmatch(message):
            raise UsageError(f"bad value of {found['argument']}", f"`{found['value']}` is not a number", see)
        raise UsageError(f"wrong use of `{self.prog}`", message, see)


# argparse's own messages: only the quotes around choices differ between Python versions.
_CHOICE = re.compile(r"argument (?P<argument>[^:]+): invalid choice: '(?P<value>.*)' \(choose from (?P<choices>.*)\)")
_NUMBER = re.compile(r"argument (?P<argument>[^:]+): invalid (int|float) value: '(?P<value>.*)'")


def _nearest(word: str, words: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=0.7)
    return f"did you mean `{close[0]}`?" if close else ""


_OPTIONS = {
    "config": Option("FILE", "configuration (default: {} if there is one)", is_fixed=True),
    **settings.COMMON_OPTIONS,
}
COMMON_OPTIONS = tuple(f"--{name.replace('_', '-')}" for name in _OPTIONS)
COMMON_VALUES = {
    "--registration": get_args(settings.RegistrationWay),
    "--log-level": get_args(settings.LogLevel),
    "--log-format": get_args(settings.LogFormat),
}
"""The values of the options that have few, for completion; the configuration checks all values."""
COMMON_TITLE = "common options"


OWN_KUBELET_DIR = {"--kubelet-dir": "a directory of your own, such as /tmp/kubelet; it has no default"}
"""The text of an option that differs where the kubelet is a simulated one: it does not take a real one's directory."""


def add_common_options(
    parser: argparse.ArgumentParser,
    shown: Collection[str] = COMMON_OPTIONS,
    texts: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Add the common options to a command's parser: all are accepted, for scripts; the help shows those in `shown`.

    `texts`: what the help says of an option, in place of the usual words.
    """
    about = "Each is also an environment variable DEVHERD_<NAME> and, except --config, a config key."
    group = parser.add_argument_group(COMMON_TITLE, about) if shown else parser
    for word, (name, option) in zip(COMMON_OPTIONS, _OPTIONS.items(), strict=True):
        if word in shown:
            text = texts.get(word) or option.text.format(getattr(settings.DEFAULTS, name, DEFAULT_PATH))
            group.add_argument(word, metavar=option.metavar, help=text)
        else:
            parser.add_argument(word, metavar=option.metavar, help=argparse.SUPPRESS)


def load_config(arguments: argparse.Namespace) -> "Config":
    """The configuration for a command. Raises ConfigError or UsageError."""
    from devherd.config.loader import load

    return load(given_options(arguments, _OPTIONS), os.environ, plugin_of=plugin_of)


def plugin_of(text: str) -> str:
    """The name of the plugin that a text configures, for an error message; empty if there is none."""
    from devherd.importers import source

    return source.plugin_of(text)


def given_options(arguments: argparse.Namespace, names: Iterable[str]) -> dict[str, str | None]:
    """The values of these options on the command line; None for one that is not given."""
    return {name: getattr(arguments, name, None) for name in names}
