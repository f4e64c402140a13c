"""The kubelet's directory: its sockets, their rights, and other plugins of the same resource names."""

import asyncio
import errno
import os
import socket
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from devherd.doctor.line import Line, ok, problem, warning
from devherd.kubelet import cures
from devherd.kubelet.endpoint import MAX_PATH_BYTES, Endpoint
from devherd.kubelet.registration import knock, refused
from devherd.settings import Settings

TOPIC = "kubelet"
_OURS = "devherd-"
_KNOWN = {"nvidia-gpu.sock": "nvidia.com/gpu", "nvidia.sock": "nvidia.com/gpu"}
"""Sockets that are not named after their resource, as amd.com_gpu and gpu.intel.com-i915.sock are."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something does not work, and what to do about it."""

    why: str
    cure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletDirectory:
    """Facts about the kubelet's directory; each refusal is None if the thing works."""

    settings: Settings
    refusal: Refusal | None
    """Why no socket can be created in the directory that registration needs."""
    kubelet: Refusal | None
    """Why the kubelet accepts no registration."""
    pod_resources: Refusal | None
    """Why the kubelet does not list which pods hold which devices."""
    allocatable: Refusal | None = None
    """Why the kubelet does not list the allocatable devices; not asked if `pod_resources` is set."""
    others: tuple[str, ...] = ()
    """Sockets of other plugins that are being served."""


def look(settings: Settings) -> KubeletDirectory:
    """Read the directory, make a socket in it and remove it, and call the kubelet."""
    pod_resources = _pod_resources(settings)
    kubelet = refused(settings.kubelet_socket)
    return KubeletDirectory(
        settings=settings,
        refusal=_refusal(settings.socket_directory),
        kubelet=None if kubelet is None else Refusal(_why(settings.kubelet_socket), cures.of_registration(kubelet)),
        pod_resources=pod_resources,
        allocatable=None if pod_resources else _answer(settings, "allocatable_ids"),
        others=tuple(_others(settings.plugin_directory)),
    )


def judge(found: KubeletDirectory, names: Collection[str]) -> Iterator[Line]:
    """The report lines; `names` are the resources that devherd offers to the kubelet."""
    settings = found.settings
    if found.refusal is None:
        yield ok(TOPIC, f"{settings.socket_directory} takes sockets")
    else:
        what = f"{settings.socket_directory} cannot be used: {found.refusal.why}"
        yield problem(TOPIC, what, found.refusal.cure)
    if found.kubelet is None:
        yield ok(TOPIC, f"{settings.kubelet_socket} accepts registrations (device plugin API v1beta1)")
    elif settings.registration == "kubelet_socket":
        yield problem(TOPIC, found.kubelet.why, found.kubelet.cure)
    if found.pod_resources is None:
        yield ok(TOPIC, "PodResources v1 answers: the holders of devices are known")
    else:
        what = f"PodResources does not answer: {found.pod_resources.why}"
        yield warning(TOPIC, what, f"{found.pod_resources.cure}; without it no holder of a device is shown")
    if found.allocatable is not None:
        what = f"PodResources does not list allocatable devices: {found.allocatable.why}"
        without = "without it, devherd does not notice that the kubelet has lost devices"
        yield warning(TOPIC, what, f"{found.allocatable.cure}; {without}")
    yield from _about_others(found, names)


def _about_others(found: KubeletDirectory, names: Collection[str]) -> Iterator[Line]:
    for other in found.others:
        rival = next((name for name in sorted(names) if _is_of(other, name)), None)
        path = found.settings.plugin_directory / other
        if rival is not None:
            cure = "remove that plugin, or leave the resource out of devherd's configuration: they displace each other"
            yield problem(TOPIC, f"another plugin serves {rival}, too: {path}", cure)
        else:
            cure = "see that it does not serve the same resource names as devherd"
            yield warning(TOPIC, f"another plugin listens on {path}", cure)


def _is_of(socket: str, resource_name: str) -> bool:
    spellings = (resource_name.replace("/", "_"), resource_name.replace("/", "-"))
    return _KNOWN.get(socket) == resource_name or socket.removesuffix(".sock") in spellings


def _refusal(directory: Path) -> Refusal | None:
    """Why a resource cannot be served there: only a bind shows what a security module refuses."""
    # As long as a resource's socket, and hidden from the kubelet by the dot.
    path = directory / f".{Endpoint(directory, TOPIC, time.time_ns() // 10_000_000).name}"
    try:
        _bind(path)
    except OSError as error:
        why = "it does not exist" if error.errno == errno.ENOENT else error.strerror or str(error)
        return Refusal(why, cures.of_directory(error))
    path.unlink(missing_ok=True)
    return None


def _bind(path: Path) -> None:
    """Make a socket. Raises OSError, also for a path too long, of which Python's own has no number."""
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    with socket.socket(socket.AF_UNIX) as probe:
        probe.bind(str(path))


def _why(path: Path) -> str:
    return knock(path) or "it answers again"


def _pod_resources(settings: Settings) -> Refusal | None:
    path = settings.pod_resources_socket
    refusal = refused(path)
    if refusal is None:
        return _answer(settings, "list_pods")
    return Refusal(_why(path), cures.of_pod_resources(refusal, settings))


def _others(directory: Path) -> Iterator[str]:
    try:
        entries = sorted(directory.iterdir())
    except OSError:
        return
    for entry in entries:
        is_other = entry.is_socket() and entry.name != "kubelet.sock" and not entry.name.startswith(_OURS)
        if is_other and knock(entry) is None:
            yield entry.name


def _answer(settings: Settings, question: str) -> Refusal | None:
    """Why the kubelet does not answer a question of `pod_resources`; None if it does."""
    import grpc.aio  # noqa: PLC0415 - slow, and not needed without a kubelet

    from devherd.kubelet import pod_resources  # noqa: PLC0415 - imports gRPC

    ask = {"list_pods": pod_resources.list_pods, "allocatable_ids": pod_resources.allocatable_ids}[question]
    try:
        asyncio.run(ask(settings.pod_resources_socket))
    except grpc.aio.AioRpcError as error:
        code = error.code().name
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            newer = "use Kubernetes 1.30 or newer" if question == "allocatable_ids" else cures.of_answer(code)
            return Refusal("the kubelet does not have version v1 of it", newer)
        return Refusal(f"the kubelet answered {code}: {error.details()}", cures.of_answer(code))
    return None
