"""Show the running instance: what is wrong with it, and each resource with its devices, registration and process."""

import argparse
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from devherd.cli import filters
from devherd.cli.instance import allocations_of, instance_settings, require_running
from devherd.errors import ExitCode, UnreachableError, UsageError
from devherd.instance.inventory_json import Json
from devherd.instance.read import InstanceState, live_inventory, read_instance
from devherd.inventory import Allocations
from devherd.settings import Settings

if TYPE_CHECKING:
    from rich.console import RenderableType


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument("--output", choices=("table", "json"), default="table", help="default: table")
    parser.add_argument(
        "--map", action="store_true", help="draw the node: NUMA nodes, PCIe switches, cards, who holds what"
    )
    parser.add_argument("--watch", action="store_true", help="keep the table up to date, unhealthy devices first")
    parser.add_argument(
        "--devices",
        action="store_true",
        help="each device with its model, health and pods; JSON has all of that always",
    )
    parser.add_argument("--sort", choices=("name", "health"), help="health: unhealthy devices first (default: name)")
    parser.add_argument("--fail-on-problem", action="store_true", help="exit 1 if anything shown is wrong")
    filters.add_filter_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the status. Raises UnreachableError if no instance runs."""
    if arguments.watch and arguments.output != "table":
        raise UsageError("`--watch` shows a table", f"`--output {arguments.output}` is not a table", "leave one out")
    if arguments.map and arguments.output != "table":
        raise UsageError("`--map` is a picture", f"`--output {arguments.output}` is none", "leave one out")
    if arguments.map and arguments.devices:
        raise UsageError("`--map` is a picture", "`--devices` is a table", "leave one out")
    settings = instance_settings(arguments)
    chosen = filters.filters_of(arguments)
    herd, allocations = look(settings)
    chosen.require(herd.resources)
    if arguments.watch:
        from devherd.cli.tables import console, watch

        return watch(console(), lambda: _seen(settings, chosen, arguments))
    resources = chosen.among(herd.resources)
    if arguments.output == "json":
        print(json.dumps(status_json(replace(herd, resources=resources), allocations), indent=2))
    elif arguments.map:
        from devherd.cli.tables import console, show

        show(console(), _map(settings, herd, allocations, chosen))
    else:
        from devherd.cli.tables import console, show

        show(console(), _table(herd, allocations, chosen, arguments))
    from devherd.cli.status_table import has_problem

    return ExitCode.PROBLEM_FOUND if arguments.fail_on_problem and has_problem(herd, resources) else ExitCode.DONE


def look(settings: Settings) -> tuple[InstanceState, Allocations | None]:
    """The instance, and the holders of its devices. Raises UnreachableError if none runs."""
    require_running(settings)
    try:
        herd = read_instance(settings)
        return herd, herd.known_holders(allocations_of(settings))
    except OSError as error:
        raise UnreachableError(f"cannot read {error.filename}", error.strerror or str(error), "use sudo") from error


def status_json(herd: InstanceState, allocations: Allocations | None) -> Json:
    """The live inventory with the configuration, health sources and all children; each resource names its child."""
    status = live_inventory(herd, allocations)
    status["configuration"] = {
        "source": herd.configuration.source or None,
        "loaded": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(herd.configuration.loaded_timestamp_seconds)),
        "refusal": herd.configuration.refusal or None,
        "warnings": list(herd.configuration.warnings),
    }
    status["silent"] = sorted(herd.silent)
    status["sources"] = [
        {
            "name": source.source,
            "failed": source.failed or None,
            "report_errors": list(source.report_errors),
            "last_report": source.last_report_timestamp_seconds or None,
        }
        for source in herd.sources
    ]
    status["children"] = [
        {
            "name": child.name,
            "state": child.state,
            "pid": child.pid or None,
            "started": child.started_timestamp_seconds or None,
            "restarts": {cause: child.restarts[cause] for cause in sorted(child.restarts)},
            "last_exit": child.last_exit or None,
        }
        for _, child in sorted(herd.children.items())
    ]
    return status


def _seen(settings: Settings, chosen: filters.Filters, arguments: argparse.Namespace) -> "RenderableType":
    """The view of `--watch`; the error as text while no instance runs, because it may come back."""
    try:
        herd, allocations = look(settings)
        if arguments.map:
            return _map(settings, herd, allocations, chosen)
        return _table(herd, allocations, chosen, arguments)
    except UnreachableError as error:
        return str(error)


def _table(
    herd: InstanceState, allocations: Allocations | None, chosen: filters.Filters, arguments: argparse.Namespace
) -> "RenderableType":
    from rich.console import Group

    from devherd.cli import status_table

    worst_first = arguments.sort == "health" or (arguments.watch and arguments.sort is None)
    if arguments.devices:
        return Group(*status_table.devices(herd, allocations, chosen, worst_first=worst_first))
    return Group(*status_table.parts(herd, allocations, chosen, worst_first=worst_first))


def _map(
    settings: Settings, herd: InstanceState, allocations: Allocations | None, chosen: filters.Filters
) -> "RenderableType":
    from rich.console import Group

    from devherd.cli import status_map
    from devherd.cli.tables import console
    from devherd.instance.node_map import node_map, read_paths

    if chosen != filters.Filters():
        resources = chosen.among(herd.resources)
        names = {resource.name for resource in resources}
        herd = replace(herd, resources=resources, lost=[one for one in herd.lost if one.resource_name in names])
    drawn = node_map(herd, allocations, read_paths(settings))
    return Group(*status_map.lines(drawn, console().width, ascii_only=status_map.needs_ascii()))
