"""argparse with devherd's form of errors, and the options that every command takes, with their help."""

import argparse
import difflib
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NoReturn

from devherd import settings
from devherd.cli.options import COMMON_OPTIONS, OPTIONS
from devherd.config.chosen_file import DEFAULT_PATH
from devherd.errors import UsageError

_LONGEST_CHOICE = 40
"""Characters of a list of choices in a line of usage; a longer one stands in the option's help."""


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Fits the screen: paragraphs are filled, indented lines stay as they are, as examples do."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = (
            "\n".join(_folded(line, width) for line in part.split("\n"))
            if part.startswith(" ") or "\n " in part
            else textwrap.fill(" ".join(part.split()), width, break_on_hyphens=False)
            for part in textwrap.dedent(text).strip("\n").split("\n\n")
        )
        return textwrap.indent("\n\n".join(paragraphs), indent)

    def _metavar_formatter(self, action: argparse.Action, default_metavar: str) -> Callable[[int], tuple[str, ...]]:
        if _has_long_choices(action):
            return lambda number: (default_metavar,) * number
        return super()._metavar_formatter(action, default_metavar)

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        """Several words with a form of their own, such as `[RESOURCE] DEVICE`, stand as they are."""
        is_form = isinstance(action.metavar, str) and " " in action.metavar
        return str(action.metavar) if is_form else super()._format_args(action, default_metavar)

    def _expand_help(self, action: argparse.Action) -> str:
        text = super()._expand_help(action)
        return f"{text}: {', '.join(map(str, action.choices or ()))}" if _has_long_choices(action) else text


def _folded(line: str, width: int) -> str:
    """A line that stands as it is, unless it is too long; a command goes on behind a backslash."""
    if len(line) <= width:
        return line
    command, row = line.lstrip().startswith("devherd "), _ROW.match(line)
    deeper = " " * (row.end() if row else len(line) - len(line.lstrip()) + 4)
    end = " \\" if command else ""
    parts = textwrap.wrap(
        line, width - len(end), subsequent_indent=deeper, break_long_words=False, break_on_hyphens=False
    )
    return f"{end}\n".join(parts)


_ROW = re.compile(r" +\S+ {2,}")
"""The first column of a row of a list."""


def _has_long_choices(action: argparse.Action) -> bool:
    return action.metavar is None and len("|".join(map(str, action.choices or ()))) > _LONGEST_CHOICE


class Parser(argparse.ArgumentParser):
    """A parser of one command's options: no abbreviations, which a later option would make ambiguous."""

    def __init__(
        self, *, prog: str, description: str | None = None, epilog: str | None = None, add_help: bool = True
    ) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            formatter_class=_Formatter,
            allow_abbrev=False,
            add_help=add_help,
        )

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """The values of options and arguments; options may stand between arguments of which there may be several."""
        is_open = any(action.nargs in ("+", "*") for action in self._get_positional_actions())
        return self.parse_intermixed_args(words) if is_open else self.parse_args(words)

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


COMMON_TITLE = "common options"


OWN_KUBELET_DIR = {
    "--kubelet-dir": "a directory of your own, such as /tmp/kubelet; it has no default",
    "--kubelet-root-dir": "where all but device-plugins is, as with a kubelet's --root-dir (default: as --kubelet-dir)",
}
"""The texts of options that differ where the kubelet is a simulated one: it does not take a real one's directory."""


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
    for word, (name, option) in zip(COMMON_OPTIONS, OPTIONS.items(), strict=True):
        if word in shown:
            text = texts.get(word) or option.text.format(getattr(settings.DEFAULTS, name, DEFAULT_PATH))
            group.add_argument(word, metavar=option.metavar, help=text)
        else:
            parser.add_argument(word, metavar=option.metavar, help=argparse.SUPPRESS)
