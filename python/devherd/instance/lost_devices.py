"""Lost devices for status, page, API and commands: found by id, address, serial or slot; as a line; as JSON."""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from devherd.proto import health_pb2
from devherd.text import duration, place

Json = dict[str, Any]


def named(devices: Iterable[health_pb2.LostDevice], text: str) -> list[health_pb2.LostDevice]:
    """The lost devices with this id, PCI address, serial number or slot; if none, those whose id begins with `text`."""
    devices = list(devices)
    exact = [one for one in devices if text in {one.device, one.pci_address, one.serial, one.slot}]
    return exact or [one for one in devices if text and one.device.startswith(text)]


def line(device: health_pb2.LostDevice) -> str:
    """The device in one line: since when it is missing, its place, its last holder, its last findings."""
    since = duration(max(0.0, time.time() - device.since_timestamp_seconds))
    where = place(device.pci_address, device.slot, device.serial, device.port)
    was = f", was at {where}" if where else ""
    held = f", last held by {', '.join(device.pods)}" if device.pods else ""
    found = ", ".join(sorted({finding.reason for finding in device.findings}))
    before = f", found before: {found}" if found else ""
    return f"{device.resource_name} {device.device} is missing since {since}{was}{held}{before}"


def explanation(device: Json) -> Iterator[str]:
    """The lines of `devherd explain` about a device of `lost_json`."""
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(device["since"]))
    away = duration(max(0.0, time.time() - device["since"]))
    yield f"{device['resource']} {device['device']} is lost: no scan has found it since {since}, {away} ago"
    if device["model"]:
        yield f"  model:       {device['model']}"
    where = place(*(device[name] or "" for name in ("pci_address", "slot", "serial", "port")))
    yield f"  was at:      {where or 'unknown'}"
    yield f"  last held by: {', '.join(device['last_held_by']) or 'no pod, as far as is known'}"
    listed = "yes, Unhealthy" if device["is_listed"] else "not any more"
    yield f"  kubelet's list: {listed}"
    for finding in device["findings"]:
        read = f"; {finding['file']}: {finding['value']}" if finding["file"] else ""
        yield f"  before:      {finding['reason']}, by source {finding['source']}: {finding['detail']}{read}"
    yield f"  ends:        when it is back, or by `devherd forget {device['device']}`"


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
