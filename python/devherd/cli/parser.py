"""argparse, with its errors in the form of all others."""

import argparse
from typing import NoReturn

from devherd.errors import UsageError


class Parser(argparse.ArgumentParser):
    """A parser of one command's options: no abbreviations, which a later option would make ambiguous."""

    def __init__(self, *, prog: str, description: str | None = None, epilog: str | None = None) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Raise UsageError for a wrong use."""
        raise UsageError(f"wrong use of `{self.prog}`", message, f"see `{self.prog} --help`")
