"""Show the running instance: what is wrong with it, and each resource with its devices, registration and process."""

import argparse
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from devherd import instance
from devherd.cli import choice
from devherd.cli.instance import allocations_of, instance_settings, require_running
from devherd.errors import ExitCode, UnreachableError, UsageError
from devherd.instance import Allocations, Herd
from devherd.inventory_json import Json
from devherd.settings import Settings

if TYPE_CHECKING:
    from rich.console import RenderableType


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument("--output", choices=("table", "json"), default="table", help="default: table")
    parser.add_argument("--watch", action="store_true", help="keep the table up to date, what is wrong first")
    parser.add_argument("--sort", choices=("name", "health"), help="health: what is wrong first (default: name)")
    parser.add_argument("--fail-on-problem", action="store_true", help="exit 1 if anything shown is amiss")
    choice.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print it. Raises UnreachableError when no instance runs."""
    if arguments.watch and arguments.output != "table":
        raise UsageError("`--watch` shows a table", f"`--output {arguments.output}` is not a table", "leave one out")
    settings = instance_settings(arguments)
    chosen = choice.choice_of(arguments)
    herd, allocations = look(settings)
    chosen.require(herd.resources)
    if arguments.watch:
        from devherd.cli.inventory_table import console
        from devherd.cli.watch import watch

        return watch(console(), lambda: _seen(settings, chosen, worst_first=arguments.sort != "name"))
    resources = chosen.among(herd.resources)
    if arguments.output == "json":
        print(json.dumps(status_json(replace(herd, resources=resources), allocations), indent=2))
    else:
        from devherd.cli.inventory_table import console, show

        show(console(), _table(herd, allocations, chosen, worst_first=arguments.sort == "health"))
    from devherd.cli.status_table import has_problem

    return ExitCode.PROBLEM_FOUND if arguments.fail_on_problem and has_problem(herd, resources) else ExitCode.DONE


def look(settings: Settings) -> tuple[Herd, Allocations | None]:
    """The instance, and who holds its devices. Raises UnreachableError when none runs."""
    require_running(settings)
    try:
        return instance.read(settings), allocations_of(settings)
    except OSError as error:
        raise UnreachableError(f"cannot read {error.filename}", error.strerror or str(error), "use sudo") from error


def status_json(herd: Herd, allocations: Allocations | None) -> Json:
    """The live inventory with the configuration and every child; each resource names its own."""
    status = instance.live_inventory(herd, allocations)
    status["configuration"] = {
        "source": herd.configuration.source or None,
        "loaded": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(herd.configuration.loaded_timestamp_seconds)),
        "refusal": herd.configuration.refusal or None,
        "warnings": list(herd.configuration.warnings),
    }
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


def _seen(settings: Settings, chosen: choice.Choice, *, worst_first: bool) -> "RenderableType":
    """What a watch shows: also that the instance has gone, which may come back."""
    try:
        return _table(*look(settings), chosen, worst_first=worst_first)
    except UnreachableError as error:
        return str(error)


def _table(
    herd: Herd, allocations: Allocations | None, chosen: choice.Choice, *, worst_first: bool
) -> "RenderableType":
    from rich.console import Group

    from devherd.cli import status_table

    return Group(*status_table.parts(herd, allocations, chosen, worst_first=worst_first))
