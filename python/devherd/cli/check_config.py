"""Validate a configuration: print every error with its key path, or the resources that result on this host.

The file is judged by itself first: an option or a variable that overrules a bad value in it would hide it. Settings
that are valid and have no effect, on any host or on this one, are warnings, printed last and counted; they are errors
with --strict.
"""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from devherd.cli.scan import look
from devherd.errors import ExitCode

if TYPE_CHECKING:
    from devherd.config import Config

STDIN = "standard input"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="the file to check, `-` for standard input (default: that of --config)"
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 when a setting has no effect")


def run(arguments: argparse.Namespace) -> int:
    """Check and print. Raises UsageError for a file that cannot be read."""
    from devherd.config import ConfigError

    arguments.config = arguments.file or arguments.config
    try:
        config, overruled = _judged(arguments)
    except ConfigError as error:
        for each in error.errors:
            print(f"devherd: {each}", file=sys.stderr)
        return ExitCode.USAGE
    return _report(config, overruled, strict=arguments.strict)


def _judged(arguments: argparse.Namespace) -> tuple["Config", dict[str, str]]:
    """The configuration, and its keys that an option or a variable overrules. Raises ConfigError, UsageError."""
    from devherd.config import COMMON_OPTIONS, file_of, judge, load, strict_yaml
    from devherd.config.file_content import decoded

    options = {name: getattr(arguments, name) for name in ("config", *COMMON_OPTIONS)}
    path = file_of(options, os.environ)
    if path is None:
        return load(options, os.environ), {}
    source = STDIN if str(path) == "-" else str(path)
    cure = f"{strict_yaml.CURE} with --config" if arguments.file is None else strict_yaml.OR_STDIN
    text = decoded(source, sys.stdin.read if source == STDIN else lambda: strict_yaml.read_text(path, cure))
    return judge(source, text, options, os.environ)


def _report(config: "Config", overruled: dict[str, str], *, strict: bool) -> int:
    from devherd.cli import inventory_table
    from devherd.config.warnings import placed, warnings_of

    report = look(config)
    console = inventory_table.console()
    console.print(f"{config.source or 'The default configuration'} is valid. On this host it results in:\n")
    inventory_table.show(
        console, inventory_table.scan(report.resources, report.problems, report.duration_seconds, report.notices)
    )
    sys.stdout.flush()
    for key, origin in overruled.items():
        print(f"devherd: {config.source}: {key}: overruled here by {origin}", file=sys.stderr)
    warnings = [placed(config, warning) for warning in warnings_of(config)] + report.doubts
    for warning in warnings:
        print(f"devherd: warning: {warning}", file=sys.stderr)
    if warnings:
        print(f"devherd: warnings: {len(warnings)}", file=sys.stderr)
    return ExitCode.PROBLEM_FOUND if strict and warnings else ExitCode.DONE
