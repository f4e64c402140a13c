"""What is known of one device: health with its evidence, resource, holders, place, facts, and what happened lately."""

import time
from collections.abc import Iterator, Sequence

from devherd import history
from devherd.cli.events import event_json
from devherd.cli.subject import Known, Subject, fact_text
from devherd.history import HistoryEvent
from devherd.instance.inventory_json import Json, health_of, to_do
from devherd.inventory import DeviceKey
from devherd.proto import health_pb2, spool_pb2
from devherd.reasons.registry import CORDONED

MOST_EVENTS = 10
"""Limit on the events shown for a device."""
UNKNOWN_HOLDER = "unknown, the kubelet cannot be asked, or pods have it by claims"
_OF_A_DEVICE = ("verdict", "allocation", "application", "cordon", "clear")


def of_device(known: Known, subject: Subject, events: Sequence[HistoryEvent]) -> Json:
    """All information on a device."""
    device, verdict = subject.device, known.verdict(subject.key)
    vendor, card, _ = subject.key
    return {
        "resource": subject.offer.name if subject.offer else None,
        "device": subject.device_id,
        "vendor": vendor,
        "card": card or None,
        "health": health_of(device) if device else None,
        "reasons": list(device.reasons) if device else [],
        "warnings": list(device.warnings) if device else [],
        "do": to_do(verdict.held) or None,
        "not_examined": verdict.frozen or None,
        "findings": [_finding(held) for held in verdict.held if not held.is_over],
        "past_events": [_finding(held) for held in verdict.held if held.is_over],
        "failed_sources": {source.source: source.failed for source in known.herd.sources if source.failed},
        "report_errors": {
            source.source: list(source.report_errors) for source in known.herd.sources if source.report_errors
        },
        "rule": (device.rule if device else None) or None,
        "allocated": _holders(known, subject),
        "open_by": _open_by(known.herd.ledger, subject.key),
        "facts": {
            name: {"value": fact_text(subject.facts[name]), "source": subject.facts[name].source}
            for name in sorted(subject.facts)
        },
        "kind": "device",
        "not_offered": None if device else subject.left_out or "no rule of the configuration offers it",
        "pci_address": subject.fact("pci_address") or None,
        "slot": subject.fact("slot") or None,
        "is_slot_shared": subject.fact("slot") in known.herd.shared_slots,
        "serial": subject.fact("serial") or None,
        "paths": [node.host_path for node in device.edits.nodes] if device else [],
        "events": [event_json(event) for event in _events_of(subject, events)],
    }


def _events_of(subject: Subject, events: Sequence[HistoryEvent]) -> list[HistoryEvent]:
    """The latest events about a device."""
    if subject.offer is None:
        return []
    ids = set(subject.ids)
    found = [
        event
        for event in events
        if event.kind in _OF_A_DEVICE
        and event.resource_name == subject.offer.name
        and (event.device_id in ids or ids & set(history.devices_of(event)))
    ]
    return found[-MOST_EVENTS:]


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
        "do": held.do or None,
        "ends": held.ends,
        "so_far": held.so_far or None,
    }


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _holders(known: Known, subject: Subject) -> list[dict[str, str]] | None:
    """The containers that hold any id of the device; None if the kubelet cannot be asked."""
    if known.allocations is None:
        return None
    if subject.offer is None:
        return []
    ids = set(subject.ids)
    return [
        dict(holder)
        for (name, held_id), holders in sorted(known.allocations.items())
        if name == subject.offer.name and held_id in ids
        for holder in holders
    ]


def headline(device: Json) -> str:
    """A device and its health in a line."""
    if device["not_offered"]:
        return f"{device['device']} is not offered: {device['not_offered']}"
    if cordon := cordon_of(device):
        return f"{device['resource']} {device['device']} is {cordon}"
    reasons = f": {', '.join(device['reasons'])}" if device["reasons"] else ""
    return f"{device['resource']} {device['device']} is {device['health']}{reasons}"


def cordon_of(device: Json) -> str:
    """Who has cordoned a device and why, if nothing else is held against it; else empty."""
    if device["reasons"] != [CORDONED]:
        return ""
    [found, *_] = [*(one for one in device["findings"] if one["reason"] == CORDONED), {"value": "", "detail": ""}]
    return " ".join(filter(None, ("cordoned", found["value"]))) + f": {found['detail']}" * bool(found["detail"])


def where(device: Json) -> str:
    """The location of a device: address, slot, serial number; without these, its paths."""
    facts = (("PCI address", "pci_address"), ("slot", "slot"), ("serial", "serial"))
    shared = {"slot": " (shared with another card)"} if device["is_slot_shared"] else {}
    named = (f"{word} {device[name]}{shared.get(name, '')}" for word, name in facts if device[name])
    return ", ".join(named) or ", ".join(device["paths"])


def lines(explanation: Json) -> Iterator[str]:
    """The explanation of a device as text."""
    yield from _head(explanation)
    for title, findings in (("findings", explanation["findings"]), ("past events", explanation["past_events"])):
        if findings:
            yield from ("", f"{title}:")
        for finding in findings:
            yield from _finding_lines(finding, is_over=title == "past events", said=explanation["do"])
    if explanation["events"]:
        yield from ("", "lately:")
        yield from map(line_of_event, explanation["events"])
    if explanation["facts"]:
        yield from ("", "facts:")
    for name, fact in explanation["facts"].items():
        yield f"  {name} = {fact['value']}" + (f"  ({fact['source']})" if fact["source"] else "")


def _head(explanation: Json) -> Iterator[str]:
    yield headline(explanation)
    if explanation["do"]:
        yield f"  do:          {explanation['do']}"
    for warning in explanation["warnings"]:
        yield f"  warning:     {warning}"
    yield f"  vendor:      {explanation['vendor']}"
    if explanation["card"]:
        yield f"  card:        {explanation['card']}"
    if place := where(explanation):
        yield f"  where:       {place}"
    if not explanation["not_offered"]:
        yield f"  chosen by:   {explanation['rule'] or 'unknown'}"
        yield f"  held by:     {held_by(explanation['allocated'])}"
    if explanation["open_by"] is not None:
        yield f"  open by:     {_processes(explanation['open_by'])}"
    if explanation["not_examined"]:
        yield f"  not examined: {explanation['not_examined']}"
    yield from _source_lines(explanation)


def line_of_event(event: Json) -> str:
    """An event as a line."""
    device = f" {event['device_id']}" if event["device_id"] else ""
    return f"  {event['time']}  {event['kind']}{device}: {event['message']}"


def _source_lines(explanation: Json) -> Iterator[str]:
    for source, why in explanation["failed_sources"].items():
        yield f"  source {source} cannot check devices: {why}"
    for source, errors in explanation["report_errors"].items():
        yield from (f"  source {source}: {error}" for error in errors)


def held_by(holders: list[dict[str, str]] | None) -> str:
    """The holders of a device as text; None: unknown."""
    if holders is None:
        return UNKNOWN_HOLDER
    named = (f"{holder['namespace']}/{holder['pod']} ({holder['container']})" for holder in holders)
    return ", ".join(named) or "no pod"


def _finding_lines(finding: Json, *, is_over: bool, said: str | None) -> Iterator[str]:
    """`said`: what to do about the device, which is not said again."""
    yield f"  {finding['reason']} ({finding['action']}), by source {finding['source']}: {finding['detail']}"
    if finding["file"]:
        yield f"    read:       {finding['file']}" + (f": {finding['value']}" if finding["value"] else "")
    times = "once" if finding["count"] == 1 else f"{finding['count']} times"
    yield f"    seen:       first {finding['first_seen']}, last {finding['last_seen']}, raised {times}"
    if finding["only_warned"]:
        yield f"    warning:    {finding['only_warned']}"
    if finding["rule"]:
        yield f"    judged by:  {finding['rule']}"
    if is_over:
        return
    if finding["do"] not in {None, said}:
        yield f"    do:         {finding['do']}"
    yield f"    ends:       {finding['ends']}"
    if finding["so_far"]:
        yield f"    so far:     {finding['so_far']}"


def _open_by(ledger: spool_pb2.Ledger | None, key: DeviceKey) -> list[Json] | None:
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
