"""Validate a file with a device class, and print what it finds on this host. Nothing is changed.

The file has the keys of one class, as those that devherd ships, or several classes by name, in TOML or YAML; `-` is
standard input. Each device is shown with its facts and the file of each, and with what a container gets.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devherd.cli.options import load_config
from devherd.cli.scan import check_host_root
from devherd.errors import ExitCode
from devherd.text import amount, first_lines

if TYPE_CHECKING:
    from devherd._native import ClassEntry, Device, Edits, Look, Problem
    from devherd.config.device_class import Find

_STDIN = "standard input"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="the file to check, `-` for standard input; or a class that devherd ships",
    )
    parser.add_argument("--output", choices=("text", "json"), default="text", help="default: text")


def run(arguments: argparse.Namespace) -> int:
    """Print the errors of the file, or the devices. Raises UsageError."""
    from devherd.config import yaml_file
    from devherd.config.class_file import classes_in
    from devherd.config.classes import DIRECTORY, shipped_names
    from devherd.config.errors import ConfigError
    from devherd.config.loader import resolve
    from devherd.scanner.once import scan_classes

    path = Path(arguments.file)
    if arguments.file in shipped_names() and not path.exists():
        path = DIRECTORY / f"{arguments.file}.toml"
    source = _STDIN if str(path) == "-" else str(path)
    read = sys.stdin.read if source == _STDIN else lambda: yaml_file.read_text(path, yaml_file.OR_STDIN)
    try:
        classes = classes_in(source, yaml_file.decoded(source, read, "class"))
    except ConfigError as error:
        for line in first_lines([str(each) for each in error.errors], "errors"):
            print(f"devherd: {line}", file=sys.stderr)
        return ExitCode.USAGE
    config = load_config(arguments)
    check_host_root(config)
    natives = [one.native(name) for name, one in classes.items()]
    report = scan_classes(resolve(config), natives, with_entries=True)
    looks = {(one.vendor, one.card, one.id): one for one in report.looks}
    devices = [
        _shown(device, edits, looks.get(device.key)) for device, edits in zip(report.devices, report.edits, strict=True)
    ]
    problems = [_problem(one, report.entries) for one in report.problems]
    notices = [{"path": one.path, "device": one.device, "notice": one.error} for one in report.notices]
    failing = {one["entry"] for one in problems}
    left = [
        {"class": one.class_name, "path": one.path, "why": one.why}
        for one in report.entries
        if not one.is_taken and one.path not in failing
    ]
    shown = {"classes": [*classes], "devices": devices, "problems": problems, "notices": notices, "not_taken": left}
    if arguments.output == "json":
        print(json.dumps(shown, indent=2))
    else:
        from devherd.cli.tables import plain

        empty = {name: one.find for name, one in classes.items()}
        for entry in report.entries:
            empty.pop(entry.class_name, None)
        print("".join(f"{plain(line)}\n" for line in _lines(shown, empty)), end="")
    return ExitCode.PROBLEM_FOUND if problems else ExitCode.DONE


def _shown(device: "Device", edits: "Edits", look: "Look | None") -> dict[str, Any]:
    findings = [*device.findings, *(look.findings if look else ())]
    return {
        "class": device.attribute("class"),
        "resource": device.resource_name,
        "ids": device.shares or [device.id],
        "numa_nodes": device.numa_nodes,
        "facts": {
            name: {"value": fact.text, "kind": fact.kind, "file": fact.source} for name, fact in device.facts.items()
        },
        "nodes": [{"path": node.host_path, "permissions": node.permissions} for node in edits.nodes],
        "environment": dict(edits.envs),
        "findings": [{"reason": one.reason, "file": one.file, "value": one.value} for one in findings],
        "not_known": dict(look.not_looked) if look else {},
    }


_MOST_IDS = 3
_MOST_ENTRIES = 20
"""A host has thousands of entries in some directories."""


def _problem(problem: "Problem", entries: "list[ClassEntry]") -> dict[str, Any]:
    """A problem, with the entry of which it makes no device."""
    why = f"{problem.path}: {problem.error}"
    entry = next((one.path for one in entries if not one.is_taken and one.why == why), None)
    return {"path": problem.path, "device": problem.device, "problem": problem.error, "entry": entry}


def _lines(shown: dict[str, Any], empty: "dict[str, Find]") -> Iterator[str]:
    """What is shown, as text; `empty` has the classes in whose directories nothing is."""
    for name in shown["classes"]:
        own = [device for device in shown["devices"] if device["class"] == name]
        yield f"class {name}: {amount(len(own), 'device')}"
        if name in empty:
            yield f"  there is no entry in {' and '.join(empty[name].directories)}"
        for device in own:
            yield from _about(device)
        others = [entry for entry in shown["not_taken"] if entry["class"] == name]
        yield from (f"  not {entry['path']}: {entry['why']}" for entry in others[:_MOST_ENTRIES])
        if len(others) > _MOST_ENTRIES:
            yield f"  and {len(others) - _MOST_ENTRIES} more entries: see `--output json`"
    for notice in shown["notices"]:
        yield f"notice: {notice['path']}: {notice['notice']}"
    for problem in shown["problems"]:
        entry = problem["entry"]
        of_entry = f" (of {entry})" if entry and not Path(problem["path"]).is_relative_to(entry) else ""
        yield f"problem: {problem['path']}: {problem['problem']}{of_entry}"


def _about(device: dict[str, Any]) -> Iterator[str]:
    ids = device["ids"]
    more = f" … {ids[-1]} ({len(ids)} shares)" if len(ids) > _MOST_IDS else ""
    yield f"  {device['resource']}: {' '.join(ids[: 1 if more else _MOST_IDS])}{more}"
    for name, fact in sorted(device["facts"].items()):
        yield f"    {name} = {fact['value']} ({fact['kind']}) from {fact['file']}"
    for node in device["nodes"]:
        yield f"    node {node['path']} {node['permissions']}"
    for variable, value in sorted(device["environment"].items()):
        yield f"    {variable}={value}"
    if device["numa_nodes"]:
        yield f"    NUMA node {', '.join(map(str, device['numa_nodes']))}"
    for finding in device["findings"]:
        yield f"    {finding['reason']}: {finding['file']} {finding['value']}".rstrip()
    for source, why in sorted(device["not_known"].items()):
        yield f"    health by {source} is not known: {why}"
