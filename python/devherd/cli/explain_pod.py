"""What is known of a pod: its devices, why it has none, and what happened to them while it held them.

The kubelet's PodResources API says what it holds now, the history what it was given. What it asks for is known where
the API server answers: in devherd's own pod, with the component `events`.
"""

import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from devherd import history
from devherd.cli.events import event_json
from devherd.cli.explain_device import line_of_event, of_device
from devherd.cli.explain_resource import obstacle, short_lines
from devherd.cli.subject import Known
from devherd.errors import ExitCode, UnreachableError, UsageError
from devherd.history import HistoryEvent
from devherd.instance.inventory_json import Json, host_name, is_ill
from devherd.kubelet import cures
from devherd.text import amount

if TYPE_CHECKING:
    from devherd.proto.podresources_v1_pb2 import ListPodResourcesResponse
    from devherd.settings import Settings

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
"""The name of a pod: a namespace has no dot, unlike the domain of a resource."""
_WHILE_HELD = ("verdict", "application", "cordon", "clear")
_API_SECONDS = 2.0


def is_name(word: str) -> bool:
    """True if a word may be the name of a pod: NAMESPACE/NAME."""
    return _NAME.fullmatch(word) is not None


def of_pod(
    settings: "Settings",
    known: Known,
    pods: "ListPodResourcesResponse | None",
    events: Sequence[HistoryEvent],
    name: str,
) -> tuple[Json, ExitCode]:
    """All information on a pod, and the exit code: a problem if it lacks a device, or one that it had is wrong now.

    Raises UsageError for a pod that nobody knows, UnreachableError if there is nobody to ask.
    """
    is_listed = pods is not None and any(f"{pod.namespace}/{pod.name}" == name for pod in pods.pod_resources)
    asked = _at_the_api_server(settings, name)
    given = [event for event in events if event.kind == "allocation" and history.pod_of(event) == name]
    if not (is_listed or given or asked):
        raise _nobody_knows(settings, pods, name)
    held = _held(known, name)
    devices = [
        {**of_device(known, subject, ()), "container": container, "device": device_id}
        for container, resource_name, device_id in held
        if (subject := known.subject(resource_name, device_id))
    ]
    wants = None if asked is None else _wants(asked, known, held)
    happened = _happened(known, events, given)
    explanation = {
        "kind": "pod",
        "pod": name,
        "is_listed": is_listed if pods is not None else None,
        "devices": devices,
        "of_other_plugins": [
            {"container": container, "resource": resource_name, "device": device_id}
            for container, resource_name, device_id in held
            if known.subject(resource_name, device_id) is None
        ],
        "wants": wants,
        "status": _status(asked) if asked else None,
        "obstacles": _obstacles(known) if is_listed and asked is None and not held else [],
        "events": [event_json(event) for event in happened],
    }
    is_problem = any(want["obstacle"] for want in wants or ()) or any(
        _is_wrong(known, resource_name, device_id) for resource_name, device_id in _once_held(held, given)
    )
    return explanation, ExitCode.PROBLEM_FOUND if is_problem else ExitCode.DONE


def _once_held(held: Sequence[tuple[str, str, str]], given: Sequence[HistoryEvent]) -> set[tuple[str, str]]:
    """Resource and id of what a pod holds, and of what it was given."""
    before = ((event.resource_name, listed_id) for event in given for listed_id in history.devices_of(event))
    return {(resource_name, listed_id) for _, resource_name, listed_id in held} | set(before)


def _is_wrong(known: Known, resource_name: str, listed_id: str) -> bool:
    """True if a device is Unhealthy now, other than by a cordon, or lost."""
    subject = known.subject(resource_name, listed_id)
    if subject and subject.device:
        return is_ill(subject.device)
    return any(
        lost.resource_name == resource_name and lost.device == listed_id.partition("::")[0] for lost in known.herd.lost
    )


def _nobody_knows(settings: "Settings", pods: "ListPodResourcesResponse | None", name: str) -> Exception:
    if pods is None:
        from devherd.kubelet.registration import refused

        refusal = refused(settings.pod_resources_socket)
        return UnreachableError(
            f"it is not known whether there is a pod `{name}`",
            f"{settings.pod_resources_socket} does not answer",
            "see `devherd doctor`" if refusal is None else cures.of_pod_resources(refusal, settings),
        )
    close = difflib.get_close_matches(name, [f"{pod.namespace}/{pod.name}" for pod in pods.pod_resources], n=1)
    cure = f"did you mean `{close[0]}`?" if close else "`devherd explain RESOURCE` shows why a pod gets no device here"
    return UsageError(
        f"no pod of this node is called `{name}`",
        "the kubelet does not list it: it has ended, waits for a node, or is on another one",
        cure,
    )


def _held(known: Known, name: str) -> list[tuple[str, str, str]]:
    """Container, resource and id of each device that the pod holds."""
    return [
        (holder["container"], resource_name, device_id)
        for (resource_name, device_id), holders in sorted((known.allocations or {}).items())
        for holder in holders
        if f"{holder['namespace']}/{holder['pod']}" == name
    ]


def _at_the_api_server(settings: "Settings", name: str) -> Json | None:
    """The pod's object from the API server; None if no API server is reachable, or if it has no such pod."""
    from devherd.api_server import Api, ApiError
    from devherd.config.resolved import ResolvedFileError, read_resolved

    namespace, _, pod = name.partition("/")
    try:
        access = read_resolved(settings.resolved_config_file).api_access()
        if access is None:
            return None
        return Api(access, seconds=_API_SECONDS).get(f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(pod)}")
    except (ApiError, ResolvedFileError):
        return None


def _wants(pod: Json, known: Known, held: Sequence[tuple[str, str, str]]) -> list[Json]:
    """For each resource of a device plugin that a pod asks for: how many it wants and has, and why it has no more."""
    wanted: dict[str, int] = {}
    spec = pod.get("spec", {})
    for container in spec.get("containers", []):
        for resource_name, number in container.get("resources", {}).get("limits", {}).items():
            if "/" in resource_name and str(number).isdecimal():
                wanted[resource_name] = wanted.get(resource_name, 0) + int(number)
    has = {name: sum(one == name for _, one, _ in held) for name in wanted}
    return [
        {
            "resource": name,
            "wanted": number,
            "has": has[name],
            "obstacle": obstacle(known, name, number - has[name]) or None if has[name] < number else None,
        }
        for name, number in sorted(wanted.items())
    ]


def _status(pod: Json) -> Json:
    """Phase and node of a pod, and the messages of kubelet or scheduler about it."""
    status = pod.get("status", {})
    scheduled: Json = next((one for one in status.get("conditions", []) if one.get("type") == "PodScheduled"), {})
    unscheduled = scheduled.get("message") if scheduled.get("status") == "False" else None
    return {
        "phase": status.get("phase"),
        "node": pod.get("spec", {}).get("nodeName"),
        "reason": status.get("reason") or (scheduled.get("reason") if unscheduled else None),
        "message": status.get("message") or unscheduled,
    }


def _obstacles(known: Known) -> list[Json]:
    """What keeps a pod without a device from one, by resource."""
    why = ((offer.name, obstacle(known, offer.name, 1)) for offer in known.herd.resources)
    return [{"resource": name, "obstacle": text} for name, text in why if text]


def _happened(known: Known, events: Sequence[HistoryEvent], given: Sequence[HistoryEvent]) -> list[HistoryEvent]:
    """The allocations `given`, and the events of their devices until another pod got these, by time."""
    boot = history.booted()
    found = {id(event): event for event in given}
    for allocation in given:
        for listed_id in history.devices_of(allocation):
            until = min(
                (event.at(boot) for event in events if _ends(event, allocation, listed_id, boot)), default=math.inf
            )
            subject = known.subject(allocation.resource_name, listed_id)
            device_id = subject.key[2] if subject else listed_id.rpartition("::")[0] or listed_id
            for event in events:
                if (
                    event.kind in _WHILE_HELD
                    and (event.resource_name, event.device_id) == (allocation.resource_name, device_id)
                    and allocation.at(boot) <= event.at(boot) < until
                ):
                    found[id(event)] = event
    return history.in_order(found.values())


def _ends(event: HistoryEvent, allocation: HistoryEvent, listed_id: str, boot: float) -> bool:
    """True if an event shows that another pod got the device after an allocation."""
    return (
        event.kind == "allocation"
        and event.at(boot) > allocation.at(boot)
        and event.resource_name == allocation.resource_name
        and history.pod_of(event) not in {"", history.pod_of(allocation)}
        and listed_id in history.devices_of(event)
    )


def lines(explanation: Json) -> Iterator[str]:
    """The explanation of a pod as text."""
    devices, others = explanation["devices"], explanation["of_other_plugins"]
    number = len(devices) + len(others)
    yield f"pod {explanation['pod']} {_state(explanation, number)}"
    if explanation["status"]:
        yield from _status_lines(explanation["status"])
    for want in explanation["wants"] or ():
        why = f": {want['obstacle']}" if want["obstacle"] else ""
        yield f"  wants {want['wanted']} of {want['resource']}, has {want['has']}{why}"
    for one in explanation["obstacles"]:
        yield f"  {one['resource']}: {one['obstacle']}"
    for device in devices:
        yield from ("", f"container {device['container']}:")
        yield from (f"  {line}" for line in short_lines(device))
    for other in others:
        yield from ("", f"container {other['container']}:")
        yield f"  {other['resource']} {other['device']}, of another device plugin"
    if explanation["events"]:
        yield from ("", "what happened:")
        yield from map(line_of_event, explanation["events"])


def _state(explanation: Json, number: int) -> str:
    if number:
        return f"holds {amount(number, 'device')}"
    if explanation["is_listed"]:
        return "holds no device"
    if explanation["is_listed"] is None:
        return "held devices; the kubelet cannot be asked whether it still does"
    node = (explanation["status"] or {}).get("node")
    if explanation["status"] and node != host_name():
        return f"is on node {node}, not here" if node else "is on no node yet"
    return "holds no device any more: the kubelet does not list it"


def _status_lines(status: Mapping[str, str | None]) -> Iterator[str]:
    yield f"  phase:       {status['phase'] or 'unknown'}"
    if status["message"]:
        reason = f"{status['reason']}: " if status["reason"] else ""
        yield f"  because:     {reason}{status['message']}"
