"""The objects of the API: Events and the node's condition. Pure.

<https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/>
"""

import time
from collections.abc import Mapping

from devherd.kubernetes.api import Json
from devherd.kubernetes.changes import LONGEST_MESSAGE, Change, Reasons, message_of

CONDITION = "DevicesUnhealthy"
"""As node-problem-detector has conditions: True is a problem."""
_NAMED = 10


def node_event(change: Change, node: str, now: float) -> Json:
    """An Event about a node, as the kubelet's own are: its uid is its name."""
    return _event(_node(node), _of(change), message_of(change, change.devices), node, now)


def configuration_event(refusal: str, node: str, now: float) -> Json:
    """An Event about a node: its configuration was refused, or with an empty text, one is in force again."""
    if refusal:
        return _event(_node(node), ("Warning", "ConfigurationRefused"), refusal[:LONGEST_MESSAGE], node, now)
    return _event(_node(node), ("Normal", "ConfigurationLoaded"), "the chosen configuration is in force", node, now)


def pod_event(change: Change, devices: list[str], pod: Json, node: str, now: float) -> Json:
    """An Event about a pod that holds some of the devices."""
    metadata = pod["metadata"]
    about = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "uid": metadata["uid"],
    }
    return _event(about, _of(change), message_of(change, devices), node, now)


def condition(reasons: Reasons, now: float) -> Json:
    """What to merge into the status of the node."""
    ill = [f"{name} {device}" for name, devices in sorted(reasons.items()) for device in sorted(devices)]
    others = f" and {len(ill) - _NAMED} more" if len(ill) > _NAMED else ""
    made = {
        "type": CONDITION,
        "status": "True" if ill else "False",
        "reason": "DevicesUnhealthy" if ill else "DevicesHealthy",
        "message": ", ".join(ill[:_NAMED]) + others if ill else "every device is Healthy",
        "lastHeartbeatTime": _time(now),
        "lastTransitionTime": _time(now),
    }
    return {"status": {"conditions": [made]}}


def no_condition() -> Json:
    """What takes the condition from the node's status."""
    return {"status": {"conditions": [{"type": CONDITION, "$patch": "delete"}]}}


def _node(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": name}


def _of(change: Change) -> tuple[str, str]:
    return ("Warning", "DeviceUnhealthy") if change.is_unhealthy else ("Normal", "DeviceHealthy")


def _event(about: Mapping[str, str], what: tuple[str, str], message: str, node: str, now: float) -> Json:
    kind, reason = what
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{about['name']}.", "namespace": about.get("namespace", "default")},
        "involvedObject": dict(about),
        "reason": reason,
        "type": kind,
        "message": message,
        "source": {"component": "devherd", "host": node},
        "reportingComponent": "devherd",
        "reportingInstance": node,
        "firstTimestamp": _time(now),
        "lastTimestamp": _time(now),
        "count": 1,
    }


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
