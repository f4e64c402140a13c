"""Compare the devices that present plugins give the kubelet with those that devherd would offer; register nothing.

It scans the host once, as `devherd scan` does, and asks the kubelet's PodResources API for the allocatable devices of
every plugin. Each difference has its reason and, if one exists, the key of the configuration that removes it. Findings
of devherd about devices that the kubelet considers Healthy are listed, too. A device that the devherd of this node
calls Unhealthy, as one that is cordoned, counts as such.

The kubelet does not tell what containers get for a device: variables, mounts, device nodes, annotations, CDI names.
With --plugin-file these are compared, too, with what devherd would give by the settings in the plugin's manifest,
flags or file.

Exit code: 0 if nothing differs, 1 if something does, 4 if no kubelet answers.
"""

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from devherd.cli.options import load_config
from devherd.config.resolved import fits_any
from devherd.errors import DevherdError, ExitCode, UnreachableError, UsageError
from devherd.text import amount

PluginSettings = tuple[dict[str, Any], set[str], bool]
if TYPE_CHECKING:
    from pathlib import Path

    from devherd.comparison import Compared, Kubelet, Unseen
    from devherd.config.model import Config
    from devherd.inventory import Allocations
    from devherd.proto.spool_pb2 import Offer, Problem
    from devherd.settings import Settings

_NOT_COMPARED = (
    "Not compared: the variables, mounts, device nodes, annotations and CDI names that containers get. With"
    " --plugin-file FILE, the plugin's manifest, flags or file, they are."
)
SHOWN = 4
"""Ids of a difference that a line names; JSON has all of them."""


@dataclass(frozen=True, slots=True)
class ComparisonReport:
    """A comparison, and the problems of its scan."""

    resources: list["Compared"]
    unseen: list["Unseen"]
    problems: list["Problem"]
    with_containers: bool = False
    """Whether what containers get was to be compared, too."""
    is_whole: bool = True
    """False if settings of the plugin were left out that may have had an effect."""

    @property
    def not_compared(self) -> list[str]:
        """The resources of both sides for which it was not compared what containers get."""
        return [each.name for each in self.resources if each.kubelet and each.devherd and not each.with_containers]

    @property
    def is_same(self) -> bool:
        """Whether pods would get the same devices from devherd."""
        return not any(resource.differences for resource in self.resources)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument("--output", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument(
        "--resource", metavar="GLOB", action="append", default=[], help="only these resources; can be repeated"
    )
    parser.add_argument(
        "--plugin-file",
        metavar="FILE",
        help="what `config import` reads of the present plugin: compare also what containers get; - = standard input",
    )
    parser.add_argument(
        "--every",
        metavar="SECONDS",
        type=int,
        help="keep running, compare again at this interval and print changes: for a pod",
    )


def run(arguments: argparse.Namespace) -> int:
    """Compare and print. Raises UsageError, and UnreachableError if no kubelet answers."""
    if arguments.every is not None and arguments.every < 1:
        raise UsageError("bad value of --every", f"`{arguments.every}` is less than a second", "give 60, for a minute")
    config = load_config(arguments)
    if arguments.every is not None:
        return _stay(config, arguments)
    report = compare(config, arguments.resource, _plugins(arguments))
    print(_shown(report, arguments.output))
    return ExitCode.DONE if report.is_same else ExitCode.PROBLEM_FOUND


def _plugins(arguments: argparse.Namespace) -> "PluginSettings | None":
    """The settings of the present plugins, from their file. Raises UsageError."""
    if arguments.plugin_file is None:
        return None
    from devherd.cli.import_config import settings_of

    return settings_of(arguments.plugin_file)


def compare(config: "Config", globs: Sequence[str] = (), plugins: "PluginSettings | None" = None) -> ComparisonReport:
    """Ask the kubelet and scan the host, once each. Raises UsageError and UnreachableError.

    `plugins`: the settings of the present plugins, as `settings_of` has them.
    """
    from devherd.cli.scan import look
    from devherd.comparison import Comparison

    kubelet, allocations = _asked(config.settings())
    config = config.model_copy(update={"front_end": "device_plugin"})  # another device plugin is compared with
    report = look(config)
    _recall(report.offers, config.settings().offers_file)
    theirs = _by_their_settings(config, plugins[0]) if plugins else None
    both = Comparison(
        kubelet,
        report.offers,
        allocations=allocations,
        entries=report.inventory.entries,
        rules=report.rules,
        disabled=[name for name, section in _sections(config) if section["enabled"] is False],
        has_health_rules=bool(config.health.rules),
        by_plugin=_of_vendors(look(theirs).offers, plugins[1]) if plugins and theirs else (),
        keys_of_vendors=_differing(config, theirs) if theirs else None,
    )
    return ComparisonReport(
        [each for each in both.resources() if not globs or fits_any(each.name, globs)],
        [each for each in both.unseen(report.held) if not globs or fits_any(each.resource, globs)],
        report.problems,
        with_containers=plugins is not None,
        is_whole=plugins is None or plugins[2],
    )


def _of_vendors(offers: "Sequence[Offer]", vendors: set[str]) -> "list[Offer]":
    """The offers of these vendors: of others the file does not tell what their plugins do."""
    return [offer for offer in offers if offer.vendor in vendors]


def _by_their_settings(config: "Config", settings: dict[str, Any]) -> "Config":
    """The imported configuration, on the host that is compared."""
    from devherd.config.model import Config

    return Config.model_validate(settings | {"host_root": str(config.host_root)})


def _sections(config: "Config") -> Iterator[tuple[str, dict[str, Any]]]:
    yield from config.vendors.model_dump(mode="json").items()


def _differing(config: "Config", theirs: "Config") -> dict[str, str]:
    """By vendor: the options that the present plugin has otherwise, as they would be written."""
    keys = {}
    for (name, ours), (_, other) in zip(_sections(config), _sections(theirs), strict=True):
        if options := {key: value for key, value in other.items() if value != ours[key]}:
            keys[name.replace("_", "-")] = f"vendors: {{{name}: {json.dumps(options)}}}"
    return keys


def _recall(offers: "Sequence[Offer]", file: "Path") -> None:
    """Add the running instance's reasons for Unhealthy devices: a scan sees neither cordons nor past events."""
    from devherd import spool
    from devherd.inventory import key_of
    from devherd.proto.spool_pb2 import Offers

    try:
        known = spool.read_or_empty(file, Offers).offers
    except OSError:  # only root may read it
        return
    reasons = {key_of(device): device.reasons for offer in known for device in offer.devices}
    for device in (device for offer in offers for device in offer.devices):
        device.reasons.extend(one for one in reasons.get(key_of(device), ()) if one not in device.reasons)


def _asked(settings: "Settings") -> "tuple[Kubelet, Allocations]":
    import asyncio

    import grpc.aio

    from devherd.kubelet import cures
    from devherd.kubelet.pod_resources import allocatable_nodes, list_pods, parse
    from devherd.kubelet.registration import knock, refused

    socket = settings.pod_resources_socket
    what, refusal = f"cannot ask the kubelet at {socket}", refused(socket)
    if refusal is not None:
        raise UnreachableError(what, str(knock(socket)), cures.of_pod_resources(refusal, settings))

    async def ask() -> "tuple[Kubelet, Allocations]":
        return await allocatable_nodes(socket), parse(await list_pods(socket))

    try:
        return asyncio.run(ask())
    except grpc.aio.AioRpcError as error:
        code = error.code().name
        raise UnreachableError(what, f"{code}: {error.details()}", cures.of_answer(code)) from error


def _stay(config: "Config", arguments: argparse.Namespace) -> int:
    """Print each comparison that differs from the one before, until a signal ends the process."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(ExitCode.DONE))
    before, plugins = "", _plugins(arguments)
    while True:
        try:
            shown = _shown(compare(config, arguments.resource, plugins), arguments.output)
        except DevherdError as error:
            shown = f"devherd: {error}"
        if shown != before:
            print(shown, flush=True)
            before = shown
        time.sleep(arguments.every)


def _shown(report: ComparisonReport, output: str) -> str:
    if output == "json":
        return json.dumps(_json(report), indent=2)
    from devherd.cli.tables import plain

    return "\n".join(map(plain, _lines(report)))


def _lines(report: ComparisonReport) -> Iterator[str]:
    for resource in report.resources:
        yield from _lines_of(resource)
    if report.unseen:
        yield "Found by devherd on devices that the kubelet calls Healthy:"
    for found in report.unseen:
        finding = found.held.finding
        evidence = f"{finding.file}: {finding.value}" if finding.value else finding.file
        text = f"  {found.resource} {found.device}: {finding.reason} ({found.held.action}), {finding.detail} {evidence}"
        yield text.rstrip()
    if report.problems:
        yield "Problems of the scan:"
    for problem in report.problems:
        yield f"  {problem.vendor}: {problem.path}: {problem.error}"
    yield _summary(report)
    yield from _not_compared(report)


def _summary(report: ComparisonReport) -> str:
    differing = sum(bool(resource.differences) for resource in report.resources)
    if differing:
        return f"{differing} of {amount(len(report.resources), 'resource')} would differ for pods."
    if not report.resources:
        return "The kubelet has no device of any plugin, and devherd would offer none."
    if any(_not_compared(report)):
        return "Nothing differs in names, ids and NUMA nodes."
    return "Nothing differs: pods would have the same devices, and containers would get the same for them."


def _not_compared(report: ComparisonReport) -> Iterator[str]:
    if not report.with_containers:
        yield _NOT_COMPARED
        return
    if names := report.not_compared:
        yield f"Not compared: what containers get for {_named(names)}: the plugin's file does not tell."
    if not report.is_whole:
        yield "Not compared: settings of the plugin that are not translated; devherd config import FILE names them."


def _lines_of(resource: "Compared") -> Iterator[str]:
    count = amount(len(resource.differences), "difference")
    sign = "=" if resource.kubelet == resource.devherd else "≠"
    yield f"{resource.name}: {resource.kubelet} {sign} {resource.devherd} ids, {count}"
    for difference in resource.differences:
        yield f"  {difference.kind}: {_named(difference.devices)}: {difference.reason}"
        if difference.key:
            yield f"    to have it as today: {difference.key}"
        holders = sorted({pod for each in difference.devices for pod in resource.held.get(each, ())})
        if holders:
            yield f"    held by {_named(holders)}"


def _named(words: Sequence[str]) -> str:
    more = len(words) - SHOWN
    return f"{', '.join(words[:SHOWN])} and {more} more" if more > 0 else ", ".join(words)


def _json(report: ComparisonReport) -> dict[str, Any]:
    return {
        "same": report.is_same,
        "resources": [
            {
                "name": resource.name,
                "kubelet": resource.kubelet,
                "devherd": resource.devherd,
                "containers_compared": resource.with_containers,
                "differences": [
                    {
                        "kind": difference.kind,
                        "reason": difference.reason,
                        "key": difference.key or None,
                        "devices": [
                            {"id": each, "pods": list(resource.held.get(each, ()))} for each in difference.devices
                        ],
                    }
                    for difference in resource.differences
                ],
            }
            for resource in report.resources
        ],
        "findings": [
            {
                "resource": found.resource,
                "device": found.device,
                "reason": found.held.finding.reason,
                "action": found.held.action,
                "source": found.held.finding.source,
                "detail": found.held.finding.detail,
                "file": found.held.finding.file or None,
                "value": found.held.finding.value or None,
            }
            for found in report.unseen
        ],
        "problems": [
            {"vendor": problem.vendor, "path": problem.path, "error": problem.error} for problem in report.problems
        ],
    }
