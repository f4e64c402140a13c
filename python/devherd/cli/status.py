"""Show the running instance: each resource with its devices, its registration and its process, and what is wrong."""

import argparse
import json
import time
from typing import TYPE_CHECKING

from devherd import instance
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
    parser.add_argument("--watch", action="store_true", help="keep the table up to date")


def run(arguments: argparse.Namespace) -> int:
    """Print it. Raises UnreachableError when no instance runs."""
    if arguments.watch and arguments.output != "table":
        raise UsageError("`--watch` shows a table", f"`--output {arguments.output}` is not a table", "leave one out")
    settings = instance_settings(arguments)
    if arguments.output == "json":
        herd, allocations = look(settings)
        print(json.dumps(status_json(herd, allocations), indent=2))
        return ExitCode.DONE
    from devherd.cli.inventory_table import console
    from devherd.cli.watch import watch

    if arguments.watch:
        return watch(console(), lambda: _table(*look(settings)))
    console().print(_table(*look(settings)))
    return ExitCode.DONE


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
    for resource in status["resources"]:
        child = herd.child_of(resource["name"])
        resource["child"] = child.name if child else None
    status["children"] = [
        {
            "name": child.name,
            "state": child.state,
            "pid": child.pid or None,
            "restarts": {cause: child.restarts[cause] for cause in sorted(child.restarts)},
            "last_exit": child.last_exit or None,
        }
        for _, child in sorted(herd.children.items())
    ]
    return status


def _table(herd: Herd, allocations: Allocations | None) -> "RenderableType":
    from rich.console import Group

    from devherd.cli import status_table

    return Group(*status_table.parts(herd, allocations))
