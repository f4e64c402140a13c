"""Validate a configuration: print every error with its key path, or the resources that result on this host.

Settings that are valid but cannot have an effect are printed as warnings.
"""

import argparse
import sys

from devherd.cli.common_options import load_config
from devherd.cli.scan import look
from devherd.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument("file", metavar="FILE", nargs="?", help="the file to check (default: that of --config)")


def run(arguments: argparse.Namespace) -> int:
    """Check and print."""
    from devherd.config import ConfigError
    from devherd.config.warnings import warnings_of

    arguments.config = arguments.file or arguments.config
    try:
        config = load_config(arguments)
    except ConfigError as error:
        for problem in error.problems:
            print(f"devherd: bad configuration in {error.source} — {problem} — correct it", file=sys.stderr)
        return ExitCode.USAGE
    for warning in warnings_of(config):
        print(f"devherd: warning: {config.source}: {warning}", file=sys.stderr)
    from devherd.cli import inventory_table

    report = look(config)
    console = inventory_table.console()
    console.print(f"{config.source or 'The default configuration'} is valid. On this host it results in:\n")
    console.print(inventory_table.scan(report.resources, report.problems, report.duration_seconds))
    return ExitCode.DONE
