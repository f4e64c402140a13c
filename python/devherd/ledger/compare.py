"""Compares the devices that the kubelet has given to pods with the devices that processes have open. Pure."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from devherd import spool
from devherd.inventory import Allocations, DeviceKey, key_of
from devherd.ledger.processes import Opened
from devherd.proto import spool_pb2

CHECKPOINT = "kubelet_internal_checkpoint"


@dataclass(frozen=True, slots=True)
class Given:
    """The pods that a device is given to."""

    pods: frozenset[str] = frozenset()
    """`namespace/name`."""
    uids: frozenset[str] = frozenset()
    """Uids of the pods; also empty if the checkpoint does not have them."""


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """Devices of one container."""

    uid: str
    container: str
    resource_name: str
    device_ids: frozenset[str]


def entries_of(content: bytes) -> list[CheckpointEntry]:
    """The entries of a checkpoint. Raises ValueError if the content is not a checkpoint."""
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
    """The pods of each device that is given to a pod."""
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
    """The names of pods by uid, from devices that are given to exactly one pod."""
    return {next(iter(one.uids)): next(iter(one.pods)) for one in given_to if len(one.uids) == 1 and len(one.pods) == 1}


HELD_ELSEWHERE = "held-elsewhere"
LEFT_OVER = "left-over-process"


@dataclass(frozen=True, slots=True, order=True)
class Conflict:
    """A process that has a device open although it should not."""

    key: DeviceKey
    reason: str
    process: Opened


def conflicts(
    open_by: Mapping[DeviceKey, Sequence[Opened]],
    given_to: Mapping[DeviceKey, Given],
    former: Mapping[DeviceKey, Collection[str]],
    has_ended: Callable[[str], bool],
) -> set[Conflict]:
    """The conflicts of one look, of devices that are not shared. A process that was killed is left over in any case.

    `former`: the uids of pods that each device was given to before. `has_ended` returns whether the kubelet has let go
    of the pod with this uid; False if unknown.
    """
    found = set()
    for key, processes in open_by.items():
        holder = given_to.get(key, Given())
        pods = {one.place.pod_uid for one in processes} - {""}
        for one in processes:
            uid = one.place.pod_uid
            reason = LEFT_OVER if one.is_killed else _reason(uid, pods, holder, former.get(key, ()), has_ended)
            if reason:
                found.add(Conflict(key, reason, one))
    return found


def _reason(
    uid: str, pods: Collection[str], holder: Given, former: Collection[str], has_ended: Callable[[str], bool]
) -> str:
    """Why a process of this pod (empty: of none) should not have the device open; empty if it may, or nobody knows."""
    is_holder = uid in holder.uids
    if uid and not is_holder and (uid in former or has_ended(uid)):
        return LEFT_OVER
    is_unknown = bool(uid) and bool(holder.pods) and not holder.uids  # this pod may be the holder
    if not is_holder and holder.pods and not is_unknown:
        return HELD_ELSEWHERE
    others = {other for other in pods if other != uid and other not in former and not has_ended(other)}
    if uid and others and (not is_holder or others & holder.uids):
        return HELD_ELSEWHERE
    return ""


def remembered(
    former: Mapping[DeviceKey, Collection[str]],
    before: Mapping[DeviceKey, Given],
    now: Mapping[DeviceKey, Given],
    open_by: Mapping[DeviceKey, Sequence[Opened]],
) -> dict[DeviceKey, set[str]]:
    """The former pods of each device, by uid, as long as one of their processes has it open."""
    kept = {}
    for key, processes in open_by.items():
        still_open = {one.place.pod_uid for one in processes} - {""}
        earlier = {*former.get(key, ()), *before.get(key, Given()).uids}
        uids = (earlier & still_open) - now.get(key, Given()).uids
        if uids:
            kept[key] = uids
    return kept
