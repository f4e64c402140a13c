"""Pools and classes as objects of resource.k8s.io/v1, ready to be sent. Pure.

An empty map or list is not written: the API server drops it, and what comes back would differ from what was sent.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from devherd.dra.classes import DeviceClass
from devherd.dra.pools import SHARES, Pools, Published
from devherd.dra.tables import Value
from devherd.dra.values import MOST_DEVICES, quantity, taint_key
from devherd.reasons.registry import CORDONED

API_VERSION = "resource.k8s.io/v1"

Json = dict[str, Any]

_CORDONED = taint_key(CORDONED)
_NODE_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")


def is_node_name(name: str) -> bool:
    """Whether a node can have this name: a DNS subdomain of at most 253 characters."""
    return len(name) <= 253 and _NODE_NAME.fullmatch(name) is not None


NO_SCHEDULE = "NoSchedule"


def slices_of(pools: Pools, node: str, node_uid: str = "", effect: str = NO_SCHEDULE) -> Iterator[Json]:
    """The ResourceSlices of this node, of at most MOST_DEVICES devices each; a pool without devices is one empty slice.

    `effect` is that of the taints of Unhealthy devices; a cordon keeps new pods away, and no more.

    With the node's uid the garbage collector removes them with the node. Names begin as those of the Go helper:
    https://github.com/kubernetes/dynamic-resource-allocation/blob/v0.37.2/resourceslice/resourceslicecontroller.go
    """
    for driver, devices in sorted(pools.devices.items()):
        parts = [devices[first : first + MOST_DEVICES] for first in range(0, len(devices), MOST_DEVICES)] or [[]]
        for index, part in enumerate(parts):
            metadata: Json = {"generateName": f"{index:05x}-{driver}-{node}-"}
            if node_uid:
                owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": True}
                metadata["ownerReferences"] = [owner]
            spec: Json = {
                "driver": driver,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": len(parts)},
            }
            if part:
                spec["devices"] = [_device(device, effect) for device in part]
            yield {"apiVersion": API_VERSION, "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


def class_objects(classes: Iterable[DeviceClass]) -> Iterator[Json]:
    """The DeviceClasses."""
    for each in classes:
        spec: Json = {"selectors": [{"cel": {"expression": each.expression}}]}
        if each.extended_resource_name:
            spec["extendedResourceName"] = each.extended_resource_name
        yield {"apiVersion": API_VERSION, "kind": "DeviceClass", "metadata": {"name": each.name}, "spec": spec}


def _device(device: Published, effect: str) -> Json:
    is_shared = device.subject.shares > 1
    made: Json = {"name": device.name, "attributes": _attributes(device)}
    if device.capacities:
        made["capacity"] = {name: _capacity(device, name) for name in device.capacities}
    if is_shared:
        made["allowMultipleAllocations"] = True
    if device.taints:
        made["taints"] = _taints(device.taints, effect)
    return made


def _attributes(device: Published) -> dict[str, dict[str, Value]]:
    return {name: {kind: value} for name, (kind, value) in device.attributes.items()}


def _capacity(device: Published, name: str) -> Json:
    number, is_binary = device.capacities[name]
    made: Json = {"value": quantity(number, is_binary=is_binary)}
    if name == SHARES and device.subject.shares > 1:
        most = "1" if device.subject.takes_one else made["value"]
        made["requestPolicy"] = {"default": "1", "validRange": {"min": "1", "max": most, "step": "1"}}
    return made


def _taints(keys: Sequence[str], effect: str) -> list[Json]:
    return [{"key": key, "effect": NO_SCHEDULE if key == _CORDONED else effect} for key in keys]
