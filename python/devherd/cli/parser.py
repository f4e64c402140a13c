"""argparse, with its errors in the form of all others."""

import argparse
import difflib
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
        """Raise UsageError for a wrong use."""
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message and unknown.startswith("-"):
            option = unknown.split()[0].partition("=")[0]
            close = difflib.get_close_matches(option, self._option_string_actions, n=1)
            cure = f"did you mean `{close[0]}`?" if close else f"see `{self.prog} --help`"
            raise UsageError(f"unknown option `{option}`", f"`{self.prog}` has no such option", cure)
        raise UsageError(f"wrong use of `{self.prog}`", message, f"see `{self.prog} --help`")
