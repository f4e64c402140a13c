"""Makes Events, to which `event_series` adds name and count, and finds the devices that have changed. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from devherd import history
from devherd.api_server import Json
from devherd.instance.inventory_json import to_do
from devherd.inventory import DeviceKey, key_of
from devherd.kubernetes.event_series import moment
from devherd.proto import health_pb2, spool_pb2
from devherd.reasons.registry import GONE
from devherd.spool import ids_of
from devherd.text import version_text

Reasons = dict[str, dict[str, list[str]]]
"""The reasons of each Unhealthy device, by resource and device."""

LONGEST_MESSAGE = 1024
"""The API server's limit for the message of an Event."""


@dataclass(slots=True)
class Change:
    """Devices of a resource that have become Unhealthy, or devices that have become Healthy again."""

    resource_name: str
    is_unhealthy: bool
    devices: dict[str, str] = field(default_factory=dict)
    """Evidence by device id; empty for a Healthy device."""
    ids: dict[str, set[str]] = field(default_factory=dict)
    """The ids that the kubelet knows each device by."""
    keys: dict[str, DeviceKey] = field(default_factory=dict)
    do: dict[str, str] = field(default_factory=dict)
    """By device id: what a person does about the finding that decides."""
    ends: dict[str, str] = field(default_factory=dict)
    """By device id: what ends the findings that make the device Unhealthy."""


def reasons_of(resources: Iterable[spool_pb2.Offer]) -> Reasons:
    """The reasons to report."""
    return {
        resource.name: ill
        for resource in resources
        if (ill := {device.id: list(device.reasons) for device in resource.devices if device.reasons})
    }


def with_lost(reasons: Reasons, lost: Iterable[health_pb2.LostDevice]) -> Reasons:
    """The reasons, plus GONE for each lost device without reasons."""
    for device in lost:
        reasons.setdefault(device.resource_name, {}).setdefault(device.device, [GONE])
    return reasons


def changes(
    reported: Mapping[str, Mapping[str, list[str]]],
    resources: Iterable[spool_pb2.Offer],
    verdicts: Iterable[health_pb2.Verdict],
) -> list[Change]:
    """The differences from what was reported, at most two a resource; devices not offered any more are ignored."""
    held = {(verdict.vendor, verdict.card, verdict.device): verdict for verdict in verdicts}
    found: list[Change] = []
    for resource in resources:
        before = reported.get(resource.name, {})
        ill, well = Change(resource.name, is_unhealthy=True), Change(resource.name, is_unhealthy=False)
        for device in resource.devices:
            reasons = list(device.reasons)
            if reasons == before.get(device.id, []):
                continue
            change = ill if reasons else well
            verdict = held.get(key_of(device), health_pb2.Verdict())
            change.devices[device.id] = _evidence(reasons, verdict) if reasons else ""
            change.keys[device.id] = key_of(device)
            change.do[device.id] = to_do(verdict.held) if reasons else ""
            change.ends[device.id] = _ends(reasons, verdict)
            change.ids[device.id] = {device.id, *ids_of(device.id, device.replicas, device.shares)}
        found += [change for change in (ill, well) if change.devices]
    return found


def message_of(change: Change, devices: Iterable[str], more: str = "") -> str:
    """The message about some of the devices, in one line; `more` follows."""
    devices = list(devices)
    named = [f"{device} ({change.devices[device]})" if change.devices[device] else device for device in devices]
    state = "Unhealthy" if change.is_unhealthy else "Healthy again"
    text = f"{change.resource_name}: {state}: {', '.join(named)}{_to_do(change, devices)}{more}"
    return text if len(text) <= LONGEST_MESSAGE else f"{text[: LONGEST_MESSAGE - 1]}…"


def _evidence(reasons: list[str], verdict: health_pb2.Verdict) -> str:
    details = {held.reason: held.detail for held in verdict.held if not held.is_over}
    return "; ".join(f"{reason}: {details[reason]}" if details.get(reason) else reason for reason in reasons)


def _to_do(change: Change, devices: list[str]) -> str:
    """What a person does: for all devices if that is the same, else for the first one."""
    told = [change.do[device] for device in devices]
    if not any(told):
        return ""
    is_same = len(set(told)) == 1
    return f"; do: {told[0]}" if is_same else f"; do for {devices[0]}: {told[0]}; for the others: devherd explain"


def _ends(reasons: list[str], verdict: health_pb2.Verdict) -> str:
    counting = (held for held in verdict.held if held.reason in reasons and not held.is_over)
    return "; ".join(dict.fromkeys(held.ends for held in counting if held.ends))


_SHOWN_FACTS = {"model": "", "pci_address": "PCI address ", "slot": "slot ", "serial": "serial "}


def ticket_of(change: Change, facts: Mapping[str, str], pods: Iterable[str]) -> str:
    """Facts for the repair or replacement of a device; empty unless exactly one device became Unhealthy."""
    if not change.is_unhealthy or len(change.devices) != 1:
        return ""
    [ends] = change.ends.values()
    held_by = ", ".join(pods)
    parts = {
        "": ", ".join(f"{word}{facts[name]}" for name, word in _SHOWN_FACTS.items() if facts.get(name)),
        "held by ": held_by,
        "ends ": ends,
    }
    return "".join(f"; {word}{text}" for word, text in parts.items() if text)


def node_event(change: Change, node: str, now: float, ticket: str = "") -> Json:
    """An Event about a node; its uid is the node's name, as in the kubelet's Events."""
    return _event(_node(node), _of(change), message_of(change, change.devices, ticket), node, now)


def configuration_event(refusal: str, node: str, now: float) -> Json:
    """An Event about a node: its configuration was refused, or if `refusal` is empty, the chosen one is in force."""
    if refusal:
        return _event(_node(node), ("Warning", "ConfigurationRefused"), refusal[:LONGEST_MESSAGE], node, now)
    return _event(_node(node), ("Normal", "ConfigurationLoaded"), "the chosen configuration is in force", node, now)


def restart_event(restart: spool_pb2.DriverRestart, node: str) -> Json:
    """An Event about a node: devherd has ended, so that its container gets the library of a newer driver."""
    text = (
        f"the NVIDIA driver {restart.driver} was newer than the library {restart.library} of devherd's container,"
        " which was restarted"
    )
    return _event(_node(node), ("Normal", "RestartedForDriver"), text, node, restart.timestamp_seconds)


def second_instance_event(what: str, standby: spool_pb2.Standby, node: str, now: float) -> Json:
    """An Event about a node: another instance has stood by for longer than a roll-out takes."""
    text = f"{version_text(standby.version, standby.revision)} stands by beside the one that serves: {what}"
    return _event(_node(node), ("Warning", "SecondInstance"), text[:LONGEST_MESSAGE], node, now)


def pod_event(change: Change, devices: list[str], pod: Json, node: str, now: float) -> Json:
    """An Event about a pod that holds some of the devices."""
    return _event(_pod(pod), _of(change), message_of(change, devices), node, now)


def application_event(event: history.HistoryEvent, pod: Json, node: str, now: float) -> Json:
    """An Event about a pod that holds a device which an application has used wrongly."""
    text = f"{event.resource_name} {event.device_id}: {event.message}"
    return _event(_pod(pod), ("Warning", "ApplicationXid"), text[:LONGEST_MESSAGE], node, now)


def lost_event(event: history.HistoryEvent, node: str) -> Json:
    """An Event about a node: a device is missing, is back, or is no longer lost."""
    text = f"{event.resource_name} {event.device_id} {event.message}"
    what = ("Warning", "DeviceMissing") if event.reasons else ("Normal", "DeviceFound")
    return _event(_node(node), what, text[:LONGEST_MESSAGE], node, event.time)


def _pod(pod: Json) -> Json:
    metadata = pod["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "uid": metadata["uid"],
    }


def _node(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": name}


def _of(change: Change) -> tuple[str, str]:
    return ("Warning", "DeviceUnhealthy") if change.is_unhealthy else ("Normal", "DeviceHealthy")


def _event(about: Mapping[str, str], what: tuple[str, str], message: str, node: str, now: float) -> Json:
    kind, reason = what
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": about.get("namespace", "default")},
        "involvedObject": dict(about),
        "reason": reason,
        "type": kind,
        "message": message,
        "source": {"component": "devherd", "host": node},
        "reportingComponent": "devherd",
        "reportingInstance": node,
        "firstTimestamp": moment(now),
    }
