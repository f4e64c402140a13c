"""The inventory as JSON, in the form that `devherd scan`, the HTTP API and `devherd status` share.

Other programs rely on the key names and their order.
"""

import os
import socket
from collections.abc import Iterable, Mapping
from typing import Any

from devherd._native import vendors
from devherd.proto import health_pb2, spool_pb2
from devherd.reasons.registry import CORDON, CORDONED
from devherd.spool import listed
from devherd.text import version

Json = dict[str, Any]

# Facts that name the model, by vendor, best first; every card has the last one, the PCI device id.
_MODEL_FACTS = {row.name: (*row.model, "device_id") for row in vendors()}


def inventory_json(
    offers: Iterable[spool_pb2.Offer],
    problems: Iterable[spool_pb2.Problem],
    duration_seconds: float,
    notices: Iterable[spool_pb2.Problem] = (),
) -> Json:
    """Resources sorted by name, each with its devices in the given order; problems and notices of the scan."""
    return {
        "devherd": version(),
        "host": host_name(),
        "duration_seconds": round(duration_seconds, 6),
        "resources": [_resource(offer) for offer in sorted(offers, key=lambda offer: offer.name)],
        "problems": _problems(problems),
        "notices": _problems(notices),
    }


def _problems(problems: Iterable[spool_pb2.Problem]) -> list[Json]:
    return [_problem(problem) for problem in problems]


def host_name() -> str:
    """The node's name: in a pod from `NODE_NAME`, because the pod's host name differs."""
    return os.environ.get("NODE_NAME") or socket.gethostname()


def health_of(device: spool_pb2.Device) -> str:
    """The health of a device, as the kubelet names it."""
    return "Unhealthy" if device.reasons else "Healthy"


def is_ill(device: spool_pb2.Device) -> bool:
    """True if a device is Unhealthy for another reason than an operator's cordon, which is intended."""
    return any(reason != CORDONED for reason in device.reasons)


def is_cordoned(device: spool_pb2.Device) -> bool:
    """True if an operator has cordoned the device."""
    return CORDONED in device.reasons


def model_of(vendor: str, attributes: Mapping[str, str]) -> str:
    """The model of a vendor's device with these facts; empty if no fact tells it."""
    return next((attributes[name] for name in _MODEL_FACTS.get(vendor, ()) if name in attributes), "")


def cordon_of(held: Iterable[health_pb2.Held]) -> str:
    """Who has cordoned a device, and why: `by root: ticket 4711`; empty without a cordon."""
    return next((f"{one.value}: {one.detail}" for one in held if one.source == CORDON), "")


def to_do(held: Iterable[health_pb2.Held]) -> str:
    """What a person does about a device: about the finding that decides, the gravest that counts; empty if all is well.

    The verdict has them in this order.
    """
    counting = (one for one in held if not (one.is_over or one.is_waiting or one.action == health_pb2.IGNORE))
    return next((one.do for one in counting if one.do), "")


def _resource(offer: spool_pb2.Offer) -> Json:
    return {
        "name": offer.name,
        "vendor": offer.vendor,
        "devices": [_device(device_id, device) for device_id, device in listed(offer)],
    }


def _device(device_id: str, device: spool_pb2.Device) -> Json:
    return {
        "id": device_id,
        "health": health_of(device),
        "reasons": list(device.reasons),
        "warnings": list(device.warnings),
        "numa_nodes": list(device.numa_nodes) or None,
        "nodes": [
            {"host_path": node.host_path, "container_path": node.container_path, "permissions": node.permissions}
            for node in device.edits.nodes
        ],
        "mounts": [
            {"host_path": mount.host_path, "container_path": mount.container_path, "read_only": mount.read_only}
            for mount in device.edits.mounts
        ],
        "envs": _sorted(device.edits.envs),
        "annotations": _sorted(device.edits.annotations),
        "cdi_devices": list(device.edits.cdi_devices),
        "attributes": _sorted(device.attributes),
    }


def _problem(problem: spool_pb2.Problem) -> Json:
    return {
        "vendor": problem.vendor,
        "path": problem.path,
        "error": problem.error,
        "device": problem.device or None,
    }


def _sorted(mapping: Any) -> dict[str, str]:
    return {key: mapping[key] for key in sorted(mapping)}
