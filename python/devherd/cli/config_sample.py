"""Print a configuration file with every key in it, as a comment with its description and its default."""

import argparse

from devherd.errors import ExitCode


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """The command has no options of its own."""


def run(_arguments: argparse.Namespace) -> int:
    """Print it."""
    from devherd.config.sample import sample

    print(sample(), end="")
    return ExitCode.DONE
