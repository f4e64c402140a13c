"""Lost devices for status, page, API and commands: as a line, as text, as JSON."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from devherd._native import Finding
from devherd.proto import health_pb2
from devherd.reasons.registry import GONE, INVENTORY, MEANINGS, RESOURCE, to_do
from devherd.text import duration, place

Json = dict[str, Any]


def line(device: health_pb2.LostDevice) -> str:
    """The device in one line: since when it is missing, its place, its last holder, its last findings."""
    since = duration(max(0.0, time.time() - device.since_timestamp_seconds))
    where = place(device.pci_address, device.slot, device.serial, device.port)
    was = f", was at {where}" if where else ""
    held = f", last held by {', '.join(device.pods)}" if device.pods else ""
    found = ", ".join(sorted({finding.reason for finding in device.findings}))
    before = f", found before: {found}" if found else ""
    return f"{device.resource_name} {device.device} has been lost for {since}{was}{held}{before}"


def explanation(device: Json) -> Iterator[str]:
    """The lines of `devherd explain` about a device of `lost_json`."""
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(device["since"]))
    away = duration(max(0.0, time.time() - device["since"]))
    yield f"{device['resource']} {device['device']} is lost: no scan has found it since {since}, {away} ago"
    yield f"  do:          {device['do']}"
    if device["model"]:
        yield f"  model:       {device['model']}"
    where = place(*(device[name] or "" for name in ("pci_address", "slot", "serial", "port")))
    yield f"  was at:      {where or 'unknown'}"
    before = device.get("held_before")
    earlier = f"no pod when it was lost; {before['pod']} had it since {before['time']}" if before else ""
    yield f"  last held by: {', '.join(device['last_held_by']) or earlier or 'no pod, as far as is known'}"
    listed = "yes, Unhealthy" if device["is_listed"] else "not any more"
    yield f"  kubelet's list: {listed}"
    for finding in device["findings"]:
        read = f"; {finding['file']}: {finding['value']}" if finding["file"] else ""
        yield f"  before:      {finding['reason']}, by source {finding['source']}: {finding['detail']}{read}"
    yield f"  ends:        when it is back, or by devherd forget {device['device']}"


def lost_json(devices: Sequence[health_pb2.LostDevice]) -> list[Json]:
    """One object a device; unknown values are null."""
    return [_json(device) for device in devices]


def _json(device: health_pb2.LostDevice) -> Json:
    return {
        "resource": device.resource_name,
        "device": device.device,
        "vendor": device.vendor,
        "card": device.card or None,
        "since": device.since_timestamp_seconds,
        "do": _to_do(device),
        "pci_address": device.pci_address or None,
        "slot": device.slot or None,
        "serial": device.serial or None,
        "port": device.port or None,
        "model": device.model or None,
        "last_held_by": list(device.pods),
        "is_listed": device.is_listed,
        "findings": [
            {
                "source": held.source,
                "reason": held.reason,
                "detail": held.detail,
                "file": held.file or None,
                "value": held.value or None,
                "last_seen": held.last_timestamp_seconds,
            }
            for held in device.findings
        ],
    }


def _to_do(device: health_pb2.LostDevice) -> str:
    facts = {"pci_address": device.pci_address, "slot": device.slot, RESOURCE: device.resource_name}
    return to_do(Finding(source=INVENTORY, reason=GONE), MEANINGS[INVENTORY, GONE], device.device, facts)
