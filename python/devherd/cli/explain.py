"""Show what the running instance knows of a device: its health with the evidence, its resource, its holders, its facts.

For each finding against the device: the source, the file and the value that were read, since when, how often, what
takes it back, and why it still stands.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from devherd import spool
from devherd.cli.instance import allocations_of, device_named, instance_settings, require_running, resource_named
from devherd.errors import ExitCode, UnreachableError
from devherd.instance.inventory_json import Json, health_of
from devherd.instance.read import read_instance
from devherd.inventory import Allocations
from devherd.proto import devices_pb2, health_pb2, spool_pb2
from devherd.settings import Settings
from devherd.spool import ids_of

if TYPE_CHECKING:
    from devherd.inventory import DeviceKey


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument("resource", metavar="RESOURCE", help="resource name: nvidia.com/gpu")
    parser.add_argument("device", metavar="DEVICE", help="device id, as `devherd status` shows it")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="default: text")


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation. Raises UnreachableError if no instance runs, UsageError if it has no such device."""
    settings = instance_settings(arguments)
    require_running(settings)
    try:
        explanation = explain(settings, arguments.resource, arguments.device)
    except OSError as error:
        raise UnreachableError(f"cannot read {error.filename}", error.strerror or str(error), "use sudo") from error
    if arguments.output == "json":
        print(json.dumps(explanation, indent=2))
    else:
        from devherd.cli.tables import plain

        print("\n".join(plain(line) for line in _lines(explanation)))
    return ExitCode.DONE


def explain(settings: Settings, resource_name: str, device_id: str) -> Json:
    """All information on a device in the files of the run directory. Raises UsageError, OSError."""
    herd = read_instance(settings)
    resource = resource_named(herd, resource_name)
    device = device_named(resource, device_id)
    key = device.vendor, device.card, device.id
    verdict, sources = _verdict(settings, key)
    allocations = allocations_of(settings)
    return {
        "resource": resource.name,
        "device": device_id,
        "vendor": device.vendor,
        "card": device.card or None,
        "health": health_of(device),
        "reasons": list(device.reasons),
        "warnings": list(device.warnings),
        "not_examined": verdict.frozen or None,
        "findings": [_finding(held) for held in verdict.held if not held.is_over],
        "past_events": [_finding(held) for held in verdict.held if held.is_over],
        "failed_sources": {source.source: source.failed for source in sources if source.failed},
        "source_complaints": {source.source: list(source.complaints) for source in sources if source.complaints},
        "rule": device.rule or None,
        "allocated": _holders(allocations, resource.name, device),
        "open_by": _open_by(herd.ledger, key),
        "facts": _facts(settings, key),
    }


def _verdict(settings: Settings, key: "DeviceKey") -> tuple[health_pb2.Verdict, Sequence[health_pb2.SourceState]]:
    """The verdict on a device, and the health sources."""
    verdicts = spool.read_or_empty(settings.verdicts_file, health_pb2.Verdicts)
    for verdict in verdicts.verdicts:
        if (verdict.vendor, verdict.card, verdict.device) == key:
            return verdict, verdicts.sources
    return health_pb2.Verdict(), verdicts.sources


def _finding(held: health_pb2.Held) -> Json:
    return {
        "reason": held.reason,
        "action": health_pb2.Action.Name(held.action).lower(),
        "source": held.source,
        "detail": held.detail,
        "file": held.file or None,
        "value": held.value or None,
        "first_seen": _time(held.first_timestamp_seconds),
        "last_seen": _time(held.last_timestamp_seconds),
        "count": held.count,
        "only_warned": held.only_warned or None,
        "rule": held.rule or None,
        "waiting": held.is_waiting,
        "taken_back_by": held.taken_back_by,
        "not_yet": held.not_yet or None,
    }


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _holders(
    allocations: Allocations | None, resource_name: str, device: spool_pb2.Device
) -> list[dict[str, str]] | None:
    """The containers that hold any id of the device; None if the kubelet cannot be asked."""
    if allocations is None:
        return None
    ids = {device.id, *ids_of(device.id, device.replicas, device.shares)}
    return [
        dict(holder)
        for (name, held_id), holders in sorted(allocations.items())
        if name == resource_name and held_id in ids
        for holder in holders
    ]


def _facts(settings: Settings, key: "DeviceKey") -> dict[str, dict[str, str]]:
    """Value and source of each fact, by name."""
    inventory = spool.read_or_empty(settings.devices_file, devices_pb2.Inventory)
    devices = (known.device for known in inventory.devices)
    device = next((device for device in devices if (device.vendor, device.card, device.id) == key), None)
    if device is None:
        return {}
    return {
        name: {"value": _fact_text(device.attributes[name]), "source": device.attributes[name].source}
        for name in sorted(device.attributes)
    }


def _fact_text(fact: devices_pb2.Fact) -> str:
    return str(getattr(fact, fact.WhichOneof("value") or "text"))


def _lines(explanation: dict[str, Any]) -> Iterator[str]:
    reasons = f": {', '.join(explanation['reasons'])}" if explanation["reasons"] else ""
    yield f"{explanation['resource']} {explanation['device']} is {explanation['health']}{reasons}"
    for warning in explanation["warnings"]:
        yield f"  warning:     {warning}"
    yield f"  vendor:      {explanation['vendor']}"
    if explanation["card"]:
        yield f"  card:        {explanation['card']}"
    yield f"  chosen by:   {explanation['rule'] or 'unknown'}"
    yield f"  held by:     {_held_by(explanation['allocated'])}"
    if explanation["open_by"] is not None:
        yield f"  open by:     {_processes(explanation['open_by'])}"
    if explanation["not_examined"]:
        yield f"  not examined: {explanation['not_examined']}"
    yield from _source_lines(explanation)
    for title, findings in (("findings", explanation["findings"]), ("past events", explanation["past_events"])):
        if findings:
            yield from ("", f"{title}:")
        for finding in findings:
            yield from _finding_lines(finding)
    if explanation["facts"]:
        yield from ("", "facts:")
    for name, fact in explanation["facts"].items():
        yield f"  {name} = {fact['value']}" + (f"  ({fact['source']})" if fact["source"] else "")


def _source_lines(explanation: Json) -> Iterator[str]:
    for source, why in explanation["failed_sources"].items():
        yield f"  source {source} cannot look: {why}"
    for source, complaints in explanation["source_complaints"].items():
        yield from (f"  source {source}: {complaint}" for complaint in complaints)


def _held_by(holders: list[dict[str, str]] | None) -> str:
    if holders is None:
        return "unknown, the kubelet cannot be asked"
    named = (f"{holder['namespace']}/{holder['pod']} ({holder['container']})" for holder in holders)
    return ", ".join(named) or "no pod"


def _open_by(ledger: spool_pb2.Ledger | None, key: "DeviceKey") -> list[Json] | None:
    """The processes that have a device open; None if the ledger is not kept."""
    if ledger is None:
        return None
    return [
        {"pid": one.pid, "command": one.command, "pod": one.pod or None, "container_id": one.container_id or None}
        for device in ledger.devices
        if (device.vendor, device.card, device.device) == key
        for one in device.processes
    ]


def _processes(open_by: list[Json]) -> str:
    named = (f"{one['pid']} ({one['command']}) of {one['pod'] or 'no pod'}" for one in open_by)
    return ", ".join(named) or "no process"


def _finding_lines(finding: Json) -> Iterator[str]:
    yield f"  {finding['reason']} ({finding['action']}), by source {finding['source']}: {finding['detail']}"
    if finding["file"]:
        yield f"    read:       {finding['file']}" + (f": {finding['value']}" if finding["value"] else "")
    times = "once" if finding["count"] == 1 else f"{finding['count']} times"
    yield f"    seen:       first {finding['first_seen']}, last {finding['last_seen']}, raised {times}"
    if finding["only_warned"]:
        yield f"    warning:    {finding['only_warned']}"
    if finding["rule"]:
        yield f"    judged by:  {finding['rule']}"
    yield f"    taken back: by {finding['taken_back_by']}"
    if finding["not_yet"]:
        label = "waiting:  " if finding["waiting"] else "not yet:  "
        yield f"    {label}  {finding['not_yet']}"
