"""Validate a configuration: print every error with its key path, or the resources that it makes on this host.

What is allowed but can have no effect is told as well, and is no error.
"""

import argparse
import sys

from devherd.cli.common_options import load_config
from devherd.cli.scan import look
from devherd.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument("file", metavar="FILE", nargs="?", help="what to check (default: what --config names)")


def run(arguments: argparse.Namespace) -> int:
    """Check and print."""
    from devherd.config import ConfigError
    from devherd.config.doubts import doubts

    arguments.config = arguments.file or arguments.config
    try:
        config = load_config(arguments)
    except ConfigError as error:
        for problem in error.problems:
            print(f"devherd: bad configuration in {error.source} — {problem} — correct it", file=sys.stderr)
        return ExitCode.USAGE
    for doubt in doubts(config):
        print(f"devherd: doubtful configuration in {config.source} — {doubt}", file=sys.stderr)
    from devherd.cli import inventory_table

    report = look(config)
    console = inventory_table.console()
    console.print(f"{config.source or 'The default configuration'} is good. On this host it makes:\n")
    console.print(inventory_table.scan(report.resources, report.problems, report.duration_seconds))
    return ExitCode.DONE
