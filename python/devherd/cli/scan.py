"""Scan the host once and print every resource, its devices and all read errors. Nothing is changed.

Where an instance serves this host, its verdicts count as well: a scan alone sees neither past events nor cordons. The
devices that it has lost are problems.

The table is the default everywhere, also in a pipe; ask for json or yaml to process it. `--as dra`: `scan_dra`.
"""

import argparse
import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from devherd.cli import filters
from devherd.cli.options import load_config
from devherd.config.resolved import fits_any
from devherd.errors import ExitCode, UnreachableError, UsageError
from devherd.health.verdicts import finding_of
from devherd.instance import lost_devices
from devherd.instance.inventory_json import Json, inventory_json, is_ill
from devherd.inventory import DeviceKey, key_of
from devherd.proto import health_pb2
from devherd.proto.spool_pb2 import Problem
from devherd.settings import DEFAULTS
from devherd.spool import listed
from devherd.text import amount

if TYPE_CHECKING:
    from rich.console import RenderableType

    from devherd._native import Finding
    from devherd.config.model import Config
    from devherd.scanner.once import ScanReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument("--output", choices=("table", "json", "yaml"), help="default: table; with --as: yaml")
    parser.add_argument(
        "--as",
        dest="form",
        choices=("dra",),
        help="print the ResourceSlices and DeviceClasses that a DRA driver of this node would publish",
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="show the rule that selected each device, the source of every fact, and every finding",
    )
    parser.add_argument("--watch", action="store_true", help="scan each second and keep the table up to date")
    parser.add_argument(
        "--fail-on-problem",
        action="store_true",
        help="exit 1 for a problem, or a device that is Unhealthy other than by a cordon",
    )
    filters.add_filter_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Scan and print. Raises UsageError."""
    if arguments.form == "dra":
        from devherd.cli import scan_dra

        return scan_dra.run(arguments, load_config(arguments))
    output = arguments.output or "table"
    if arguments.watch and output != "table":
        raise UsageError("`--watch` shows a table", f"`--output {output}` is not a table", "leave one out")
    config, chosen = load_config(arguments), filters.filters_of(arguments)
    report = with_verdicts(look(config), config)
    chosen.require(report.offers)
    if arguments.watch:
        from devherd.cli.tables import console, watch

        return watch(console(), lambda: _seen(with_verdicts(look(config), config), chosen, explain=arguments.explain))
    report = _only(report, chosen)
    _print(report, chosen, output, explain=arguments.explain)
    is_wrong = bool(report.problems) or any(is_ill(device) for offer in report.offers for device in offer.devices)
    return ExitCode.PROBLEM_FOUND if arguments.fail_on_problem and is_wrong else ExitCode.DONE


def look(config: "Config") -> "ScanReport":
    """One scan of the host. Raises UsageError when host_root is not a directory."""
    from devherd.config.loader import resolve
    from devherd.scanner.once import scan_once

    check_host_root(config)
    return scan_once(resolve(config))


def with_verdicts(report: "ScanReport", config: "Config") -> "ScanReport":
    """The report with the verdicts of the instance that serves this host, if one runs, and with its lost devices."""
    from devherd.cli.instance import require_running
    from devherd.instance.read import read_instance

    settings = config.settings()
    try:
        require_running(settings)
        herd = read_instance(settings)
    except (UnreachableError, OSError) as error:
        if isinstance(error.__cause__, PermissionError) and config.host_root == DEFAULTS.host_root:
            hint = Problem(
                path=str(settings.run_dir), error="an instance may run there; its verdicts are for root: use sudo"
            )
            return replace(report, notices=[*report.notices, hint])
        return report
    if herd.instance is None or Path(herd.instance.host_root).resolve() != config.host_root.resolve():
        return report
    known = {key_of(device): device for offer in herd.resources for device in offer.devices}
    for device in (device for offer in report.offers for device in offer.devices):
        if (held := known.get(key_of(device))) is not None:
            device.reasons.extend(one for one in held.reasons if one not in device.reasons)
            device.warnings.extend(one for one in held.warnings if one not in (*device.warnings, *device.reasons))
    lost = [
        Problem(vendor=one.vendor, device=one.device, path=str(settings.lost_file), error=lost_devices.line(one))
        for one in herd.lost
    ]
    verdicts = {(one.vendor, one.card, one.device): one.held for one in herd.verdicts}
    return replace(report, problems=[*report.problems, *lost], verdicts=verdicts, instance=str(settings.run_dir))


def check_host_root(config: "Config") -> None:
    """Raises UsageError when host_root is not a directory."""
    if reason := _why_no_host(config.host_root):
        raise UsageError(f"cannot scan {config.host_root}", reason, "give the host's root directory with --host-root")


def _only(report: "ScanReport", chosen: filters.Filters) -> "ScanReport":
    """The report, reduced to the chosen resources and vendors."""
    if chosen == filters.Filters():
        return report
    resources = chosen.among(report.offers)
    keys = {key_of(device) for resource in resources for device in resource.devices}
    return replace(
        report,
        offers=resources,
        vendors=[],
        rules={key: rule for key, rule in report.rules.items() if key in keys},
        problems=_of_vendors(report.problems, chosen),
        notices=_of_vendors(report.notices, chosen),
    )


def _of_vendors(problems: "list[Problem]", chosen: filters.Filters) -> "list[Problem]":
    return [one for one in problems if not chosen.vendors or fits_any(one.vendor, chosen.vendors)]


def _seen(report: "ScanReport", chosen: filters.Filters, *, explain: bool) -> "RenderableType":
    """The view of `--watch`: chosen resources that are gone, then all devices, the unhealthy ones first."""
    from rich.console import Group

    from devherd.cli import tables

    found = _only(report, chosen)
    table = _table(replace(found, offers=filters.worst_first(found.offers)), chosen, explain=explain)
    return Group(*tables.absent_table(chosen.absent(report.offers)), table)


def _why_no_host(root: Path) -> str:
    try:
        return "" if root.is_dir() else "it is not a directory"
    except OSError as error:  # a path that is too long, or below a directory without access
        return error.strerror or str(error)


def _print(report: "ScanReport", chosen: filters.Filters, output: str, *, explain: bool) -> None:
    if output == "table":
        from devherd.cli.tables import console, show

        show(console(), _table(report, chosen, explain=explain))
        return
    inventory = inventory_of(report, explain=explain)
    if output == "json":
        print(json.dumps(inventory, indent=2))
    else:
        import yaml

        print(yaml.safe_dump(inventory, sort_keys=False, allow_unicode=True), end="")


def inventory_of(report: "ScanReport", *, explain: bool) -> Json:
    """The scan's JSON; `explain` adds `rule`, `sources` and `findings` to each device."""
    inventory = inventory_json(report.offers, report.problems, report.duration_seconds, report.notices)
    if explain:
        for resource, shown in zip(report.offers, inventory["resources"], strict=True):
            for (_, device), entry in zip(listed(resource), shown["devices"], strict=True):
                key = key_of(device)
                entry["rule"] = report.rules.get(key)
                entry["sources"] = dict(sorted(report.sources.get(key, {}).items()))
                entry["findings"] = [_finding(action, found) for action, found in _findings(report, key)]
    return inventory


def _table(report: "ScanReport", chosen: filters.Filters, *, explain: bool) -> "RenderableType":
    from rich.console import Group

    from devherd.cli import tables

    shown: RenderableType = tables.scan_table(report.offers, report.problems, report.duration_seconds, report.notices)
    if report.instance:
        of_instance = f"health: as seen now, and as the instance in {report.instance} holds it (`devherd status`)"
        shown = Group(shown, of_instance)
    if not report.offers and chosen != filters.Filters():
        return Group(f"{chosen.none_fits()}.", "", shown)
    if not report.rules:
        return Group(*_where_it_looked(report.vendors), shown)
    if explain:
        return Group(*_explanations(report), shown)
    if not report.offers:
        found = amount(len(report.rules), "device")
        return Group(f"Found {found}, none of which is advertised: `devherd scan --explain` says why.", "", shown)
    return shown


def _where_it_looked(asked: Collection[str]) -> Iterator[str]:
    from devherd._native import vendors

    yield "No device was found. Looked for:"
    for row in vendors():
        yield f"    {row.title} in {row.found_in}" if row.name in asked else f"    {row.title}: switched off"
    yield "See which drivers are loaded (`lspci -k`); `devherd demo` shows devherd without hardware."
    yield ""


def _explanations(report: "ScanReport") -> Iterator[str]:
    """For each device: its resource, the rule that chose it, the source of every fact, and the evidence against it."""
    from devherd.cli.tables import plain

    homes: dict[DeviceKey, list[str]] = {}
    facts: dict[DeviceKey, dict[str, str]] = {}
    for resource in report.offers:
        for device in resource.devices:
            key = key_of(device)
            if resource.name not in homes.setdefault(key, []):
                homes[key].append(resource.name)
            facts[key] = dict(device.attributes)
    for key, rule in report.rules.items():
        home = " and ".join(homes.get(key, ["not advertised"]))
        is_left_out = report.inventory.entries[key].left_out
        yield f"{key[0]} {plain(key[2])} → {rule if is_left_out else f'{home}, by {rule}'}"
        for fact, source in sorted(report.sources.get(key, {}).items()):
            yield plain(f"    {fact}{_value(facts.get(key, {}).get(fact))} read from {source}")
        for action, found in _findings(report, key):
            evidence = f"{found.file}: {found.value}" if found.value else found.file
            yield plain(f"    {action}: {found.reason} by {found.source}: {found.detail} {evidence}".rstrip())
    yield ""


def _findings(report: "ScanReport", key: DeviceKey) -> Iterator[tuple[str, "Finding"]]:
    """The findings of the scan with their actions, then those that only the running instance holds."""
    own = report.held.get(key, [])
    yield from ((held.action, held.finding) for held in own)
    seen = {(held.finding.source, held.finding.reason, held.finding.file) for held in own}
    for held in report.verdicts.get(key, ()):
        if not held.is_over and (held.source, held.reason, held.file) not in seen:
            yield health_pb2.Action.Name(held.action).lower(), finding_of(held)


def _finding(action: str, found: "Finding") -> Json:
    return {
        "reason": found.reason,
        "action": action,
        "source": found.source,
        "detail": found.detail,
        "file": found.file or None,
        "value": found.value or None,
    }


def _value(value: str | None) -> str:
    return "" if value is None else f" = {value}"
