"""Scan the host once and print the labels that `node_labels` would give the node. Nothing is changed.

Each is a line `NAME=VALUE`. Lines that begin with `#` name the labels that the vendors' own labellers may write and
devherd does not, each with the reason.
"""

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING

from devherd.cli.parser import load_config
from devherd.errors import ExitCode

if TYPE_CHECKING:
    from devherd.config.model import Config
    from devherd.node_labels.node import Labels


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument("--output", choices=("text", "json"), default="text", help="default: text")


def run(arguments: argparse.Namespace) -> int:
    """Scan and print. Raises UsageError."""
    config = load_config(arguments)
    labels = _labels(config)
    if arguments.output == "json":
        shown = {"write": config.node_labels.write, "labels": labels.values, "missing": labels.missing}
        print(json.dumps(shown, indent=2, sort_keys=True))
        return ExitCode.DONE
    for name, value in sorted(labels.values.items()):
        print(f"{name}={value}")
    for name, why in sorted(labels.missing.items()):
        print(f"# {name}: {why}")
    if config.node_labels.write == "none":
        print("# not written: node_labels.write is none")
    return ExitCode.DONE


def _labels(config: "Config") -> "Labels":
    from devherd.cli.scan import check_host_root
    from devherd.config.resolution import resolve
    from devherd.node_labels.node import node_of
    from devherd.node_labels.others import labels_of_node
    from devherd.scanner.once import scan_once

    check_host_root(config)
    resolved = resolve(config)
    # With a writer configured, NVML is asked for the facts of the labels.
    asking = dataclasses.replace(resolved, node_labels=dataclasses.replace(resolved.node_labels, write="node"))
    report = scan_once(asking)
    return labels_of_node(node_of(resolved, report.inventory, report.offers), resolved.node_labels.omit)
