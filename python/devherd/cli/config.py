"""`devherd config check|show|sample|schema`; `config import` is in `import_config.py`."""

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from devherd.cli.options import plugin_of
from devherd.cli.scan import look
from devherd.errors import ExitCode
from devherd.text import first_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devherd.config.errors import Problem
    from devherd.config.model import Config

STDIN = "standard input"


def add_check_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="the file to check, `-` for standard input (default: that of --config)"
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 when a setting has no effect")


def run_check(arguments: argparse.Namespace) -> int:
    """Validate a configuration: print every error with its key path, or the resources that result on this host.

    The file is checked by itself first: an option or a variable could hide a wrong value. Settings without effect, in
    general or on this host, are warnings, printed last and counted; with --strict the exit code is then 1.
    """
    from devherd.config.errors import ConfigError

    arguments.config = arguments.file or arguments.config
    try:
        config, overruled = _judged(arguments)
    except ConfigError as error:
        for line in first_lines([str(each) for each in error.errors], "errors"):
            print(f"devherd: {line}", file=sys.stderr)
        return ExitCode.USAGE
    return _report(config, overruled, strict=arguments.strict)


def _judged(arguments: argparse.Namespace) -> tuple["Config", dict[str, str]]:
    """The configuration, and the option or variable that overrules a key, by key. Raises ConfigError, UsageError."""
    from devherd.config import yaml_file
    from devherd.config.chosen_file import file_of
    from devherd.config.loader import judge, load
    from devherd.config.yaml_file import decoded
    from devherd.settings import COMMON_OPTIONS

    options = {name: getattr(arguments, name) for name in ("config", *COMMON_OPTIONS)}
    path = file_of(options, os.environ)
    if path is None:
        return load(options, os.environ, plugin_of=plugin_of), {}
    source = STDIN if str(path) == "-" else str(path)
    cure = f"{yaml_file.CURE} with --config" if arguments.file is None else yaml_file.OR_STDIN
    text = decoded(source, sys.stdin.read if source == STDIN else lambda: yaml_file.read_text(path, cure))
    return judge(source, text, options, os.environ, plugin_of)


def _report(config: "Config", overruled: dict[str, str], *, strict: bool) -> int:
    from devherd.cli import tables
    from devherd.config.checks import placed, warnings_of
    from devherd.config.errors import Problem
    from devherd.config.front_end import API_SERVER_CURE
    from devherd.config.loader import resolve

    report = look(config)
    console = tables.console()
    console.print(f"{config.source or 'The default configuration'} is valid. On this host it results in:\n")
    tables.show(console, tables.scan_table(report.offers, report.problems, report.duration_seconds, report.notices))
    sys.stdout.flush()
    for key, origin in overruled.items():
        print(f"devherd: {config.source}: {key}: overridden by {origin}", file=sys.stderr)
    doubts = [*warnings_of(config), *_of_files(config)]
    warnings = [placed(config, warning) for warning in doubts] + report.config_warnings
    for line in first_lines(warnings, "warnings"):
        print(f"devherd: warning: {line}", file=sys.stderr)
    if config.front_end == "dra" and resolve(config).api_access() is None:
        # It may be checked elsewhere than where it is used.
        text = "`front_end: dra` needs an API server, and none can be asked from here"
        print(f"devherd: note: {placed(config, Problem(('front_end',), text, API_SERVER_CURE))}", file=sys.stderr)
    if warnings:
        print(f"devherd: warnings: {len(warnings)}", file=sys.stderr)
    return ExitCode.PROBLEM_FOUND if strict and warnings else ExitCode.DONE


def _of_files(config: "Config") -> "Iterator[Problem]":
    """A warning for each configured file or program that cannot be used on this host."""
    from devherd.config.errors import Problem
    from devherd.sources.request import unreadable, unusable

    if config.web_config and not config.web_config.exists():
        yield Problem(("web_config",), f"`{config.web_config}` is not there", "devherd does not start without it")
    if config.kubeconfig and not config.kubeconfig.exists():
        cure = "until it is there and the configuration is read again, no API server is asked"
        yield Problem(("kubeconfig",), f"`{config.kubeconfig}` is not there", cure)
    for number, external in enumerate(config.health.external):
        key, why = "", None
        if external.command is not None:
            key, why = "command", unusable(external.command)
        elif external.file is not None:
            key, why = "file", unreadable(external.file)
        if why:
            yield Problem(("health", "external", number, key), why, "without it, it reports nothing on this host")
    for number, rule in enumerate(config.resources):
        if rule.pre_start.program and (why := unusable(rule.pre_start.program)):
            place = ("resources", number, "pre_start", "program")
            yield Problem(place, why, "without it, no container with such a device starts on this host")


def add_sample_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument("--all", action="store_true", help="every key, also those that hardly anybody sets")


def run_sample(arguments: argparse.Namespace) -> int:
    """Print a configuration file in which each key is a comment with its description and its default."""
    from devherd.config.describe import sample

    print(sample(is_whole=arguments.all), end="")
    return ExitCode.DONE


def add_schema_arguments(_parser: argparse.ArgumentParser) -> None:
    """The command has no options of its own."""


def run_schema(_arguments: argparse.Namespace) -> int:
    """Print the JSON Schema of the configuration file, for editors and validators."""
    from devherd.config.describe import described
    from devherd.config.model import Config

    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **described(Config).model_json_schema()}
    print(json.dumps(_on_one_line(schema), indent=2))
    return ExitCode.DONE


def _on_one_line(part: Any) -> Any:
    """The schema with each description on one line: its line breaks are those of the source code."""
    if isinstance(part, list):
        return [_on_one_line(each) for each in part]
    if not isinstance(part, dict):
        return part
    return {
        key: " ".join(value.split()) if key == "description" and isinstance(value, str) else _on_one_line(value)
        for key, value in part.items()
    }


def add_show_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument("--output", choices=("yaml", "json"), default="yaml", help="default: yaml")


def run_show(arguments: argparse.Namespace) -> int:
    """Print the effective configuration: every value, and the option, variable or line of the file that it comes from.

    `devherd run` uses the same with the same options and environment. The YAML output is a valid configuration file
    with the origins as comments; the JSON output lists them separately, by key path.
    """
    from devherd.config.common import given_values
    from devherd.config.loader import load
    from devherd.config.shown import as_tree, as_yaml, origins, shown
    from devherd.settings import COMMON_OPTIONS

    options = {name: getattr(arguments, name) for name in ("config", *COMMON_OPTIONS)}
    config = load(options, os.environ, plugin_of=plugin_of)
    values = list(shown(config, given_values(options, os.environ)))
    if arguments.output == "yaml":
        print(as_yaml(values), end="")
    else:
        source = str(config.source) if config.source else None
        print(json.dumps({"file": source, "configuration": as_tree(values), "origins": origins(values)}, indent=2))
    return ExitCode.DONE
