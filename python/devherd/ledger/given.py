"""What the kubelet has given to pods: names by PodResources, uids by its checkpoint, which PodResources lacks. Pure.

The checkpoint is `kubelet_internal_checkpoint` (pkg/kubelet/cm/devicemanager/checkpoint: `PodDevicesEntry`): it keeps
the answers of Allocate. It may be older than PodResources, so an entry counts while PodResources has its device in
a container of that name.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from devherd import spool
from devherd.inventory import Allocations, DeviceKey, key_of
from devherd.proto import spool_pb2

CHECKPOINT = "kubelet_internal_checkpoint"


@dataclass(frozen=True, slots=True)
class Given:
    """The pods that a device is given to."""

    pods: frozenset[str] = frozenset()
    """`namespace/name`."""
    uids: frozenset[str] = frozenset()
    """Empty also if the checkpoint does not say."""


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """Devices of one container."""

    uid: str
    container: str
    resource_name: str
    device_ids: frozenset[str]


def entries_of(content: bytes) -> list[CheckpointEntry]:
    """The entries of a checkpoint. Raises ValueError if it is none."""
    try:
        entries = json.loads(content)["Data"]["PodDeviceEntries"] or []
        return [
            CheckpointEntry(
                one["PodUID"], one["ContainerName"], one["ResourceName"], frozenset(_ids(one["DeviceIDs"] or {}))
            )
            for one in entries
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no checkpoint of the kubelet: {error!r}") from error


def _ids(by_node: dict[str, Any]) -> Iterator[str]:
    for ids in by_node.values():
        yield from ids


def given(
    offers: Iterable[spool_pb2.Offer], allocations: Allocations, entries: Iterable[CheckpointEntry]
) -> dict[DeviceKey, Given]:
    """The pods of each device that any has."""
    by_id: dict[tuple[str, str], list[CheckpointEntry]] = {}
    for entry in entries:
        for device_id in entry.device_ids:
            by_id.setdefault((entry.resource_name, device_id), []).append(entry)
    found: dict[DeviceKey, Given] = {}
    for offer in offers:
        for device_id, device in spool.listed(offer):
            holders = allocations.get((offer.name, device_id), [])
            containers = {holder["container"] for holder in holders}
            uids = {entry.uid for entry in by_id.get((offer.name, device_id), ()) if entry.container in containers}
            if holders:
                before = found.get(key_of(device), Given())
                pods = {f"{holder['namespace']}/{holder['pod']}" for holder in holders}
                found[key_of(device)] = Given(before.pods | pods, before.uids | uids)
    return found


def names_of(given_to: Iterable[Given]) -> dict[str, str]:
    """The names of pods by uid, where a device has one pod alone."""
    return {next(iter(one.uids)): next(iter(one.pods)) for one in given_to if len(one.uids) == 1 and len(one.pods) == 1}
