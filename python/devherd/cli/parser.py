"""argparse, with its errors in the form of all others."""

import argparse
import difflib
import re
from collections.abc import Iterable
from typing import NoReturn

from devherd.errors import UsageError


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
        """Raise UsageError for a wrong use, in the words of all other errors."""
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


# argparse's own messages, which are the same in all versions but for the quotes around choices.
_CHOICE = re.compile(r"argument (?P<argument>[^:]+): invalid choice: '(?P<value>.*)' \(choose from (?P<choices>.*)\)")
_NUMBER = re.compile(r"argument (?P<argument>[^:]+): invalid (int|float) value: '(?P<value>.*)'")


def _nearest(word: str, words: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(words), n=1)
    return f"did you mean `{close[0]}`?" if close else ""
