"""List the device classes: those that devherd ships, and those of the configuration. Nothing is changed.

The host is scanned once for all of them, also for those that are not served, so that the list shows which of them has
devices here. `devherd classes check` shows the devices.
"""

import argparse
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from devherd.cli.options import load_config
from devherd.cli.scan import check_host_root
from devherd.errors import ExitCode

if TYPE_CHECKING:
    from rich.table import Table

    from devherd.config.model import Config

_OWN = "configuration"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument("--output", choices=("table", "json"), default="table", help="default: table")


def run(arguments: argparse.Namespace) -> int:
    """Print them. Raises UsageError."""
    config = load_config(arguments)
    check_host_root(config)
    listed = listing(config)
    if arguments.output == "json":
        print(json.dumps({"classes": listed}, indent=2))
    else:
        from devherd.cli.tables import console, show

        show(console(), _table(listed))
    return ExitCode.DONE


def listing(config: "Config") -> list[dict[str, Any]]:
    """Each class with its words, whether it is served, and how many devices it has here; those in force first."""
    from devherd.config.classes import shipped, shipped_names
    from devherd.config.loader import resolve
    from devherd.scanner.once import scan_classes

    in_use = config.classes.in_use()
    classes = in_use | {name: shipped(name) for name in shipped_names() if name not in in_use}
    report = scan_classes(resolve(config), [one.native(name) for name, one in classes.items()])
    found = Counter(device.attribute("class") or "" for device in report.devices)
    return [
        {
            "name": name,
            "enabled": name in in_use,
            "devices": found[name],
            "title": one.title,
            "resource": one.resource_of(name),
            "source": one.source or (_OWN if name in config.classes.define else ""),
            "confirmed": one.confirmed,
        }
        for name, one in sorted(classes.items(), key=lambda each: (each[0] not in in_use, not found[each[0]], each[0]))
    ]


def _table(listed: list[dict[str, Any]]) -> "Table":
    from devherd.cli.tables import plain, table

    made = table(
        "CLASS", "SERVED", "DEVICES", "TITLE", "CONFIRMED", "STANDS IN FOR", dispensable=("STANDS IN FOR", "CONFIRMED")
    )
    for one in listed:
        served, confirmed = "yes" if one["enabled"] else "no", one["confirmed"] or ""
        made.add_row(one["name"], served, str(one["devices"]), plain(one["title"]), confirmed, plain(one["source"]))
    return made
