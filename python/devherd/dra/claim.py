"""A ResourceClaim as the API server has it → which devices of a driver it has here, or why it cannot be served. Pure.

https://kubernetes.io/docs/reference/kubernetes-api/resource/resource-claim-v1/
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from devherd.dra.values import is_label

Json = Mapping[str, Any]

_NOTHING = (None, "")
_TYPE = ("apiVersion", "kind")
_NVIDIA, _AMD = "resource.nvidia.com/v1beta1", "gpu.resource.amd.com/v1alpha1"
_CONFIGS = {
    "gpu.nvidia.com": ((_NVIDIA, "GpuConfig"), (_NVIDIA, "MigDeviceConfig")),
    "gpu.amd.com": ((_AMD, "GpuConfig"),),
}
"""By driver: the opaque configurations that its vendor's driver takes, and that ask for nothing if they are empty.

https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/blob/95932046683719c43b6a0dd9613c2e5aad5d6703/api/nvidia.com/resource/v1beta1/gpuconfig.go
and migconfig.go there;
https://github.com/ROCm/k8s-gpu-dra-driver/blob/2622427226d5ac361c3588284f4815e0dae11eaa/api/amd.com/resource/gpu/v1alpha1/api.go
"""
_SOURCES = {"FromClass": "the DeviceClass", "FromClaim": "the claim"}
"""In the order of precedence: the last counts."""
_UID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,126}[A-Za-z0-9])?")
_LONGEST_SAID = 100


class ClaimError(Exception):
    """Why a claim cannot be prepared or unprepared, for the pod's Event: what, why and the cure, in one line."""

    def __init__(self, *parts: str) -> None:
        super().__init__(f"devherd: {' — '.join(parts)}")


class ForbiddenError(ClaimError):
    """The API server refuses to show the claim."""


class NotYetError(Exception):
    """Why a claim is not prepared yet, which may heal, and after how many seconds to look again."""

    def __init__(self, why: str, seconds: float) -> None:
        super().__init__(why)
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class ClaimOfPod:
    """A claim as the kubelet names it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Allocated:
    """A device that the scheduler has given to a claim."""

    request: str
    """Its name in the claim, as containers refer to it: without the part behind `/`, which chose a subrequest."""
    pool: str
    device: str
    """Its name in the pool."""
    share_id: str = ""
    """Empty unless several claims may have the device."""
    admin_access: bool = False
    """Whether it is for administrators, beside whoever has the device."""

    def excludes(self, other: "Allocated") -> bool:
        """Whether two claims cannot have this and the other at the same time."""
        is_shared = bool(self.share_id and other.share_id)
        return self.device == other.device and not (is_shared or self.admin_access or other.admin_access)


@dataclass(frozen=True, slots=True)
class ClaimAllocation:
    """What a claim has of one driver on this node."""

    devices: tuple[Allocated, ...]
    pods: frozenset[str]
    """The names of the pods for which the claim is reserved, in its namespace."""


def allocation_of(found: Json, claim: ClaimOfPod, driver: str, node: str) -> ClaimAllocation:
    """What is to be prepared of the driver, in the order of the allocation; perhaps nothing.

    `found`: the object of this namespace and name, whatever it contains. `node`: the name of this node and its pools.
    Raises ClaimError, in words for users.
    """
    if not is_uid(claim.uid):
        raise ClaimError(f"{claim} cannot be prepared", f"`{_said(claim.uid)}` is no uid")
    uid = _text(_map(found.get("metadata"), "metadata").get("uid"), "metadata.uid")
    if uid != claim.uid:
        raise ClaimError(
            f"{claim} was replaced",
            f"the pod's has the uid {claim.uid}, and the one that is there now {_said(uid)}",
            "delete the pod: it waits for a claim that is gone",
        )
    status = _map(found.get("status"), "status")
    if status.get("allocation") is None:
        raise ClaimError(f"{claim} has no devices", "it is not allocated any more", "delete the pod")
    devices = _map(_map(status["allocation"], "status.allocation").get("devices"), "status.allocation.devices")
    wanted = tuple(_allocated(_own(devices, driver), claim, node))
    _check_configs(devices, driver, claim)
    return ClaimAllocation(wanted, frozenset(_pods(status)))


def is_uid(text: str) -> bool:
    """Whether it may be a uid, which becomes a part of file names."""
    return _UID.fullmatch(text) is not None


def has(found: Json, uid: str, driver: str, device: str) -> bool:
    """Whether the claim of this uid is there, and the device is allocated to it."""
    try:
        status = _map(found.get("status"), "status")
        devices = _map(_map(status.get("allocation"), "allocation").get("devices"), "devices")
        is_there = _map(found.get("metadata"), "metadata").get("uid") == uid
        return is_there and any(result.get("device") == device for result in _own(devices, driver))
    except ClaimError:
        return False


def pods_of(found: Json) -> list[str]:
    """The names of the pods for which a claim is reserved."""
    try:
        return sorted(_pods(_map(found.get("status"), "status")))
    except ClaimError:
        return []


def _own(devices: Json, driver: str) -> list[Json]:
    results = (_map(each, "a result") for each in _list(devices.get("results"), "results"))
    return [each for each in results if each.get("driver") == driver]


def _allocated(results: Iterable[Json], claim: ClaimOfPod, node: str) -> Iterator[Allocated]:
    for result in results:
        request = _text(result.get("request"), "request").partition("/")[0]
        if not is_label(request):
            raise _malformed("a result's `request`", request)
        made = Allocated(
            request,
            _text(result.get("pool"), "pool"),
            _text(result.get("device"), "device"),
            _text(result.get("shareID") or "", "shareID", is_needed=False),
            result.get("adminAccess") is True,
        )
        if made.pool != node:
            raise ClaimError(
                f"{claim} has the device {_said(made.device)} of the pool `{_said(made.pool)}`",
                f"the pool of this node is `{node}`",
                "delete the pod and the claim; set NODE_NAME if the node's name is another",
            )
        yield made


def _pods(status: Json) -> Iterator[str]:
    for each in _list(status.get("reservedFor"), "status.reservedFor"):
        consumer = _map(each, "reservedFor")
        if consumer.get("resource") == "pods" and isinstance(consumer.get("name"), str):
            yield consumer["name"]


def _check_configs(devices: Json, driver: str, claim: ClaimOfPod) -> None:
    """Refuse what the driver's configurations ask for: a pod would run without it, and nobody would know.

    Of several configurations of one kind for a request the last counts, and the claim's before its class's.
    """
    requests = {_text(each.get("request"), "request") for each in _own(devices, driver)}
    in_force: dict[tuple[str, ...], tuple[str, Json]] = {}
    configs = [_map(each, "a config") for each in _list(devices.get("config"), "config")]
    for source, told in _SOURCES.items():
        for config in configs:
            opaque = _map(config.get("opaque"), "opaque")
            if opaque.get("driver") != driver or _source(config) != source:
                continue
            named = {_text(each, "requests") for each in _list(config.get("requests"), "requests")}
            asked = _map(opaque.get("parameters"), "parameters")
            kind = [_said(asked.get(part)) for part in _TYPE]
            for request in requests:
                if not named or request in named or request.partition("/")[0] in named:
                    in_force[request, *kind] = told, asked
    for told, asked in in_force.values():
        if (refused := _refused(driver, asked)) is not None:
            raise ClaimError(
                f"{claim} cannot be configured",
                f"`{refused}` in the configuration of {told} for {driver} is not served",
                "remove it there",
            )


def _source(config: Json) -> str:
    source = config.get("source")
    if not isinstance(source, str) or source not in _SOURCES:
        raise _malformed("a config's `source`", source)
    return source


def _refused(driver: str, asked: Json) -> str | None:
    """The first key that asks for something, with its value; None if nothing does."""
    todo: list[tuple[str, Any]] = [(str(key), value) for key, value in asked.items() if key not in _TYPE][::-1]
    while todo:  # no recursion: others decide how deep it is
        path, value = todo.pop()
        if isinstance(value, dict):
            todo += [(f"{path}.{key}", one) for key, one in value.items()][::-1]
        elif isinstance(value, list):
            todo += [(f"{path}.{index}", one) for index, one in enumerate(value)][::-1]
        elif value not in _NOTHING:
            return f"{_said(path)}: {_said(value)}"
    kind = tuple(asked.get(part) for part in _TYPE)
    return None if kind in ((None, None), *_CONFIGS.get(driver, ())) else f"kind: {_said(kind[1])}"


def _map(value: Any, what: str) -> Json:
    """A map, empty where there is none."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _malformed(f"`{what}`", value)
    return value


def _list(value: Any, what: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise _malformed(f"`{what}`", value)
    return value


def _text(value: Any, what: str, *, is_needed: bool = True) -> str:
    if not isinstance(value, str) or (is_needed and not value):
        raise _malformed(f"`{what}`", value)
    return value


def _malformed(what: str, value: Any) -> ClaimError:
    return ClaimError("the claim cannot be read", f"{what} is `{_said(value)}`")


def _said(value: Any) -> str:
    """A value of others in an error, in one line."""
    if isinstance(value, dict | list):
        return "a map" if isinstance(value, dict) else "a list"  # perhaps too deep for repr
    text = value if isinstance(value, str) else repr(value)
    shown = "".join(one if one.isprintable() else "?" for one in text)
    return shown if len(shown) <= _LONGEST_SAID else f"{shown[:_LONGEST_SAID]}…"
