"""What has become of devices since it was told last. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from devherd.proto import health_pb2, spool_pb2
from devherd.spool.listing import ids_of

Reasons = dict[str, dict[str, list[str]]]
"""By resource and device, why it is Unhealthy; Healthy devices are left out."""

LONGEST_MESSAGE = 1024
"""Of an Event, as the API server has it."""


@dataclass(slots=True)
class Change:
    """What has become of devices of a resource: all of them are Unhealthy now, or all are Healthy again."""

    resource_name: str
    is_unhealthy: bool
    devices: dict[str, str] = field(default_factory=dict)
    """What is the matter with each, by id; empty for one that is well."""
    ids: dict[str, set[str]] = field(default_factory=dict)
    """The ids that the kubelet knows each device by."""


def reasons_of(resources: Iterable[spool_pb2.Resource]) -> Reasons:
    """What is to be told."""
    return {
        resource.name: ill
        for resource in resources
        if (ill := {device.id: list(device.reasons) for device in resource.devices if device.reasons})
    }


def changes(
    told: Mapping[str, Mapping[str, list[str]]],
    resources: Iterable[spool_pb2.Resource],
    verdicts: Iterable[health_pb2.Verdict],
) -> list[Change]:
    """What differs from what was told: at most two a resource. A device that is not listed any more is not told of."""
    held = {(verdict.vendor, verdict.card, verdict.device): verdict for verdict in verdicts}
    found: list[Change] = []
    for resource in resources:
        before = told.get(resource.name, {})
        ill, well = Change(resource.name, is_unhealthy=True), Change(resource.name, is_unhealthy=False)
        for device in resource.devices:
            reasons = list(device.reasons)
            if reasons == before.get(device.id, []):
                continue
            change = ill if reasons else well
            verdict = held.get((device.vendor, device.card, device.id), health_pb2.Verdict())
            change.devices[device.id] = _evidence(reasons, verdict) if reasons else ""
            change.ids[device.id] = {device.id, *ids_of(device.id, device.replicas)}
        found += [change for change in (ill, well) if change.devices]
    return found


def message_of(change: Change, devices: Iterable[str]) -> str:
    """One line for people, about some of the devices."""
    named = [f"{device} ({change.devices[device]})" if change.devices[device] else device for device in devices]
    state = "Unhealthy" if change.is_unhealthy else "Healthy again"
    text = f"{change.resource_name}: {state}: {', '.join(named)}"
    return text if len(text) <= LONGEST_MESSAGE else f"{text[: LONGEST_MESSAGE - 1]}…"


def _evidence(reasons: list[str], verdict: health_pb2.Verdict) -> str:
    details = {held.reason: held.detail for held in verdict.held if not held.is_over}
    return "; ".join(f"{reason}: {details[reason]}" if details.get(reason) else reason for reason in reasons)
