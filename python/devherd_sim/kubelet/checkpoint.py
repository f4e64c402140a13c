"""The kubelet's checkpoint, `kubelet_internal_checkpoint` (version 2): its format, its checksum, its file."""

import base64
import binascii
import json
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd_sim.kubelet.pod import Allocation, Container


class CheckpointError(Exception):
    """A checkpoint is invalid."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The allocations, and the healthy devices of every registered resource."""

    allocations: tuple[Allocation, ...] = ()
    registered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def encode(allocations: Iterable[Allocation], registered: Mapping[str, Iterable[str]]) -> bytes:
    """Encode the checkpoint file. The output is deterministic, unlike the kubelet's, whose order is random."""
    entries = [_entry(allocation) for allocation in allocations]
    entries.sort(key=lambda entry: (entry["PodUID"], entry["ContainerName"], entry["ResourceName"]))
    data = {
        "PodDeviceEntries": entries or None,
        "RegisteredDevices": {resource: sorted(ids) for resource, ids in sorted(registered.items())},
    }
    return json.dumps({"Data": data, "Checksum": checksum(data)}, separators=(",", ":"), ensure_ascii=False).encode()


def decode(content: bytes) -> Checkpoint:
    """Decode a checkpoint file. Raises CheckpointError when it is truncated or malformed, or its checksum is wrong."""
    try:
        stored = json.loads(content)
        data = stored["Data"]
        wanted = checksum(data)
        if stored["Checksum"] != wanted:
            raise CheckpointError(f"its checksum is {stored['Checksum']}, that of its content {wanted}")
        registered = {resource: tuple(ids or ()) for resource, ids in (data.get("RegisteredDevices") or {}).items()}
        return Checkpoint(tuple(_allocation(entry) for entry in data.get("PodDeviceEntries") or ()), registered)
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error, DecodeError) as error:
        raise CheckpointError(f"it is not a checkpoint: {error!r}") from error


def checksum(data: Mapping[str, Any]) -> int:
    """The FNV-1a hash of the printed data. Malformed data raises errors that decode() turns into CheckpointError."""
    value = 0x811C9DC5
    for byte in _printed(data).encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def _entry(allocation: Allocation) -> dict[str, Any]:
    return {
        "PodUID": allocation.container.uid,
        "ContainerName": allocation.container.name,
        "ResourceName": allocation.resource,
        "DeviceIDs": {str(node): list(ids) for node, ids in sorted(allocation.by_numa_node.items())},
        "AllocResp": base64.b64encode(allocation.response.SerializeToString(deterministic=True)).decode(),
    }


def _allocation(entry: Mapping[str, Any]) -> Allocation:
    per_node = {int(node): tuple(ids or ()) for node, ids in (entry["DeviceIDs"] or {}).items()}
    return Allocation(
        Container.of_uid(entry["PodUID"], entry["ContainerName"]),
        entry["ResourceName"],
        tuple(sorted({device_id for ids in per_node.values() for device_id in ids})),
        api.ContainerAllocateResponse.FromString(base64.b64decode(entry["AllocResp"] or "")),
        per_node,
    )


def _printed(data: Mapping[str, Any]) -> str:
    """Format like `%#v` of Go's spew: types in parentheses, bare strings, maps sorted by key, nil unlike empty."""
    entries = _listed(data.get("PodDeviceEntries"), _printed_entry)
    registered = _mapped(data.get("RegisteredDevices"), str)
    return (
        f"(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){entries}"
        f" RegisteredDevices:(map[string][]string){registered}}}"
    )


def _printed_entry(entry: Mapping[str, Any]) -> str:
    names = " ".join(f"{name}:(string){entry[name]}" for name in ("PodUID", "ContainerName", "ResourceName"))
    response = entry["AllocResp"]
    content = None if response is None else base64.b64decode(response, validate=True)
    return (
        f"{{{names} DeviceIDs:(checkpoint.DevicesPerNUMA){_mapped(entry['DeviceIDs'], int)}"
        f" AllocResp:([]uint8){_listed(content, str)}}}"
    )


def _listed(values: Iterable[Any] | None, printed: Any) -> str:
    return "<nil>" if values is None else f"[{' '.join(map(printed, values))}]"


def _mapped(values: Mapping[str, Any] | None, order: Any) -> str:
    if values is None:
        return "<nil>"
    return f"map[{' '.join(f'{key}:{_listed(values[key], str)}' for key in sorted(values, key=order))}]"


NAME = "kubelet_internal_checkpoint"


def read(directory: Path) -> bytes | None:
    """The content of a directory's checkpoint; None when absent. Raises OSError."""
    try:
        return (directory / NAME).read_bytes()
    except FileNotFoundError:
        return None


def write(directory: Path, content: bytes) -> None:
    """Replace a directory's checkpoint, creating the directory if needed. Raises OSError.

    Unlike the kubelet it does not sync to disk: a simulated node does not lose power, and a sync would distort
    measurements.
    """
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(prefix=".", dir=directory, delete=False) as file:
        beside = Path(file.name)
        try:
            file.write(content)
            file.flush()
            beside.replace(directory / NAME)
        except OSError:
            beside.unlink()
            raise
