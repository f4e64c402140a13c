"""What processes have open, compared with what the kubelet has given to pods: who holds what is another's. Pure."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from devherd.inventory import DeviceKey
from devherd.ledger.given import Given
from devherd.ledger.processes import Opened

HELD_ELSEWHERE = "held-elsewhere"
LEFT_OVER = "left-over-process"


@dataclass(frozen=True, slots=True, order=True)
class Conflict:
    """A process that has a device open which is not its own."""

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

    `former`: the uids of pods that each device was given to before. `has_ended` is asked whether the kubelet has let go
    of a pod, by its uid; False if nobody knows.
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
    is_unknown = bool(uid) and bool(holder.pods) and not holder.uids  # it may be the one that it is given to
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
    """The pods that a device was given to and is not any more, as long as a process of theirs has it open."""
    kept = {}
    for key, processes in open_by.items():
        still_open = {one.place.pod_uid for one in processes} - {""}
        earlier = {*former.get(key, ()), *before.get(key, Given()).uids}
        uids = (earlier & still_open) - now.get(key, Given()).uids
        if uids:
            kept[key] = uids
    return kept
