"""Scan the host once and print every resource, its devices and what could not be read. Nothing is changed.

The table is the default everywhere, also in a pipe; ask for json or yaml to process it.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from devherd.cli.common_options import load_config
from devherd.errors import ExitCode, UsageError
from devherd.inventory_json import Json, inventory_json
from devherd.scanner.inventory import DeviceKey, key_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from devherd.config import Config
    from devherd.scanner.pipeline import ScanReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument("--output", choices=("table", "json", "yaml"), default="table", help="default: table")
    parser.add_argument(
        "--explain", action="store_true", help="say why each device is where it is, and where every fact was read"
    )
    parser.add_argument("--watch", action="store_true", help="scan each second and keep the table up to date")
    parser.add_argument("--fail-on-problem", action="store_true", help="exit 1 if the scan has a problem")


def run(arguments: argparse.Namespace) -> int:
    """Scan and print. Raises UsageError."""
    if arguments.watch and arguments.output != "table":
        raise UsageError("`--watch` shows a table", f"`--output {arguments.output}` was asked for", "leave one out")
    config = load_config(arguments)
    if arguments.watch:
        from devherd.cli.inventory_table import console
        from devherd.cli.watch import watch

        return watch(console(), lambda: _table(look(config), explain=arguments.explain))
    report = look(config)
    _print(report, arguments.output, explain=arguments.explain)
    return ExitCode.PROBLEM_FOUND if arguments.fail_on_problem and report.problems else ExitCode.DONE


def look(config: "Config") -> "ScanReport":
    """One scan of the host. Raises UsageError when the host is not where the configuration says."""
    from devherd.scanner.pipeline import scan_once

    if reason := _why_no_host(config.host_root):
        raise UsageError(f"no host in {config.host_root}", reason, "name the right one with --host-root")
    return scan_once(config)


def _why_no_host(root: Path) -> str:
    try:
        return "" if root.is_dir() else "it is no directory"
    except OSError as error:  # a path too long, or below a directory that is closed to us
        return error.strerror or str(error)


def _print(report: "ScanReport", output: str, *, explain: bool) -> None:
    if output == "table":
        from devherd.cli.inventory_table import console

        console().print(_table(report, explain=explain))
        return
    inventory = _inventory(report, explain=explain)
    if output == "json":
        print(json.dumps(inventory, indent=2))
    else:
        import yaml

        print(yaml.safe_dump(inventory, sort_keys=False, allow_unicode=True), end="")


def _inventory(report: "ScanReport", *, explain: bool) -> Json:
    """The scan's JSON; `explain` adds `rule` and `sources` to each device."""
    inventory = inventory_json(report.resources, report.problems, report.duration_seconds)
    if explain:
        for resource, shown in zip(report.resources, inventory["resources"], strict=True):
            for device, told in zip(resource.devices, shown["devices"], strict=True):
                key = key_of(device)
                told["rule"] = report.rules.get(key)
                told["sources"] = dict(sorted(report.sources.get(key, {}).items()))
    return inventory


def _table(report: "ScanReport", *, explain: bool) -> "RenderableType":
    from rich.console import Group

    from devherd.cli import inventory_table

    shown = inventory_table.scan(report.resources, report.problems, report.duration_seconds)
    return Group(*_explanations(report), shown) if explain else shown


def _explanations(report: "ScanReport") -> Iterator[str]:
    """For each device as it was found: where it went, by which rule, and the source of every fact."""
    from devherd.cli.inventory_table import plain

    homes: dict[DeviceKey, list[str]] = {}
    facts: dict[DeviceKey, dict[str, str]] = {}
    for resource in report.resources:
        for device in resource.devices:
            key = key_of(device)
            if resource.name not in homes.setdefault(key, []):
                homes[key].append(resource.name)
            facts[key] = dict(device.attributes)
    for key, rule in report.rules.items():
        home = " and ".join(homes.get(key, ["not advertised"]))
        yield f"{key[0]} {plain(key[2])} → {home}, by {rule}"
        for fact, source in sorted(report.sources.get(key, {}).items()):
            yield plain(f"    {fact}{_value(facts.get(key, {}).get(fact))} read from {source}")
    yield ""


def _value(value: str | None) -> str:
    return "" if value is None else f" = {value}"
