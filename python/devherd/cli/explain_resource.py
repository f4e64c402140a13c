"""What is known of a resource: its numbers, who holds what, what is Unhealthy and why; and all that is not well."""

from collections.abc import Iterator, Sequence

from devherd.cli.explain_device import UNKNOWN_HOLDER, cordon_of, headline, held_by, of_device, where
from devherd.cli.status_table import has_problem, is_in_trouble
from devherd.cli.subject import Known, Subject
from devherd.errors import ExitCode
from devherd.exporter.status_page.overview import troubles_of_the_instance
from devherd.instance.inventory_json import Json, is_ill
from devherd.instance.lost_devices import explanation as lost_lines
from devherd.instance.lost_devices import lost_json
from devherd.instance.read import is_by_dra
from devherd.proto import spool_pb2
from devherd.reasons.registry import CORDONED
from devherd.spool import listed, size_of
from devherd.text import amount

MOST_SHOWN = 20
"""Limit on the devices in the text; the JSON has all."""


def of_resource(known: Known, offer: spool_pb2.Offer) -> tuple[Json, ExitCode]:
    """All information on a resource, and the exit code: a problem if it is not registered or a device is ill."""
    registration = None if is_by_dra(offer) else known.herd.registration(offer.name)
    noted = [_short(known, each) for each in _of(known, offer) if each.device and is_noted(each.device)]
    explanation = {
        "kind": "resource",
        "resource": offer.name,
        "vendor": offer.vendor,
        "registered": registration.registered if registration else None,
        "detail": (registration.detail if registration else "") or None,
        **numbers(known, offer),
        "holders": _holders(known, offer),
        "devices": noted,
        "lost": lost_json([device for device in known.herd.lost if device.resource_name == offer.name]),
        "obstacle": obstacle(known, offer.name, 1) or None,
    }
    is_problem = is_in_trouble(known.herd, offer) or bool(explanation["lost"])
    return explanation, ExitCode.PROBLEM_FOUND if is_problem else ExitCode.DONE


def is_noted(device: spool_pb2.Device) -> bool:
    """True if there is something to say of a device's health."""
    return bool(device.reasons or device.warnings)


def numbers(known: Known, offer: spool_pb2.Offer) -> Json:
    """How many ids of a resource there are, are allocatable, held and free; None: unknown."""
    healthy = [listed_id for listed_id, device in listed(offer) if not device.reasons]
    held = None
    if known.allocations is not None:
        held = {listed_id for listed_id, _ in listed(offer) if (offer.name, listed_id) in known.allocations}
    return {
        "capacity": size_of(offer),
        "allocatable": len(healthy),
        "held": None if held is None else len(held),
        "free": None if held is None else sum(each not in held for each in healthy),
    }


def obstacle(known: Known, resource_name: str, wanted: int) -> str:
    """Why a pod cannot get `wanted` devices of a resource here; empty if it can."""
    offer = next((each for each in known.herd.resources if each.name == resource_name), None)
    if offer is None:
        others = any(name == resource_name for name, _ in known.allocations or ())
        return "another device plugin serves it" if others else "this node has no such resource"
    if not is_by_dra(offer) and not (registration := known.herd.registration(resource_name)).registered:
        return f"it is not registered with the kubelet: {registration.detail}"
    counted = numbers(known, offer)
    if not counted["capacity"]:
        return "it has no device"
    if not counted["allocatable"]:
        reasons = sorted({reason for device in offer.devices for reason in device.reasons})
        return f"none is allocatable: all {amount(counted['capacity'], 'device')} are Unhealthy ({', '.join(reasons)})"
    if counted["free"] is None or counted["free"] >= wanted:
        return ""
    pods = sorted(
        {f"{holder['namespace']}/{holder['pod']}" for one in _holders(known, offer) or () for holder in one["holders"]}
    )
    unhealthy = counted["capacity"] - counted["allocatable"]
    beside = f", {unhealthy} Unhealthy" if unhealthy else ""
    free = (
        f"{counted['free']} of {counted['allocatable']} free, {wanted} wanted"
        if counted["free"]
        else f"all {counted['allocatable']} are held"
    )
    return f"{free}{beside}; held by {', '.join(pods)}"


def _of(known: Known, offer: spool_pb2.Offer) -> list[Subject]:
    return [subject for subject in known.subjects if subject.offer is offer]


def _holders(known: Known, offer: spool_pb2.Offer) -> list[Json] | None:
    """The held ids of a resource with their holders; None if the kubelet cannot be asked."""
    if known.allocations is None:
        return None
    return [
        {"device": listed_id, "holders": [dict(holder) for holder in holders]}
        for listed_id, _ in listed(offer)
        if (holders := known.allocations.get((offer.name, listed_id)))
    ]


def _short(known: Known, subject: Subject) -> Json:
    return of_device(known, subject, ())


def lines_of_resource(explanation: Json) -> Iterator[str]:
    """The explanation of a resource as text."""
    detail = f": {explanation['detail']}" if explanation["detail"] else ""
    served = {True: "is registered", None: "is offered for DRA"}.get(explanation["registered"], "is not registered")
    yield f"{explanation['resource']} {served}{detail}"
    yield f"  vendor:      {explanation['vendor']}"
    yield f"  capacity:    {explanation['capacity']}"
    yield f"  allocatable: {explanation['allocatable']}"
    held, free = explanation["held"], explanation["free"]
    yield "  held:        " + (UNKNOWN_HOLDER if held is None else f"{held}, {free} free")
    if explanation["obstacle"]:
        yield f"  another pod gets none: {explanation['obstacle']}"
    if explanation["holders"]:
        yield from ("", "held:")
    for one in explanation["holders"] or ():
        yield f"  {one['device']} by {held_by(one['holders'])}"
    yield from _noted(explanation["devices"])
    yield from _missing(explanation["lost"])


def of_everything(known: Known) -> tuple[Json, ExitCode]:
    """Everything that is not well, the worst first, and the exit code."""
    shown = [each for each in known.subjects if each.device and is_noted(each.device)]
    shown.sort(key=_badness)
    troubles = [(trouble.text, trouble.is_bad) for trouble in troubles_of_the_instance(known.herd)]
    resources = known.herd.resources
    explanation = {
        "kind": "node",
        "resources": len(resources),
        "total": sum(map(size_of, resources)),
        "problems": [text for text, is_bad in troubles if is_bad],
        "warnings": [text for text, is_bad in troubles if not is_bad],
        "devices": [_short(known, each) for each in shown],
        "lost": lost_json(known.herd.lost),
    }
    is_problem = has_problem(known.herd, resources)
    return explanation, ExitCode.PROBLEM_FOUND if is_problem else ExitCode.DONE


def _badness(subject: Subject) -> int:
    assert subject.device is not None
    return 0 if is_ill(subject.device) else 1 if subject.device.warnings else 2


def lines_of_everything(explanation: Json) -> Iterator[str]:
    """The problems as text, or a line that all is well."""
    devices = amount(explanation["total"], "device")
    whole = f"{devices} of {amount(explanation['resources'], 'resource')}"
    if not any(explanation[part] for part in ("problems", "warnings", "devices", "lost")):
        yield (
            f"all is well: {whole}, all Healthy and registered" if explanation["resources"] else "there are no devices"
        )
        return
    yield from explanation["problems"]
    yield from _noted(explanation["devices"], is_first=not explanation["problems"])
    yield from _missing(explanation["lost"])
    if explanation["warnings"]:
        yield ""
    yield from (f"warning: {text}" for text in explanation["warnings"])


def _noted(devices: Sequence[Json], *, is_first: bool = False) -> Iterator[str]:
    """A paragraph for each device of which there is something to say."""
    for number, device in enumerate(devices[:MOST_SHOWN]):
        if number or not is_first:
            yield ""
        yield from short_lines(device)
    if len(devices) > MOST_SHOWN:
        yield f"and {len(devices) - MOST_SHOWN} more: devherd status --unhealthy"


def _missing(lost: Sequence[Json]) -> Iterator[str]:
    """A paragraph for each lost device."""
    for device in lost:
        yield ""
        yield from lost_lines(device)


def short_lines(device: Json) -> Iterator[str]:
    """A device with what is held against it, as text."""
    yield headline(device)
    if device["do"] and not cordon_of(device):
        yield f"  do:      {device['do']}"
    for finding in device["findings"]:
        if finding["action"] == "ignore" or finding["waiting"]:
            continue
        if cordon_of(device) and finding["reason"] == CORDONED:
            yield f"  ends {finding['ends']}"
            continue
        word = "warning: " if finding["action"] == "warn" else ""
        yield f"  {word}{finding['reason']} since {finding['first_seen']}: {finding['detail']}"
        if finding["do"] not in {None, device["do"]}:
            yield f"    do: {finding['do']}"
        yield f"    ends {finding['ends']}"
    if place := where(device):
        yield f"  where:   {place}"
    yield f"  held by: {held_by(device['allocated'])}"
    yield f"  more:    devherd explain {device['resource']} {device['device']}"
