"""The kubelet's directory: its sockets, their rights, and other plugins of the same resource names."""

import asyncio
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from devherd.doctor.line import Line, ok, problem, warning
from devherd.kubelet.registration import knock
from devherd.settings import Settings

TOPIC = "kubelet"
_OURS = "devherd-"
_KNOWN = {"nvidia-gpu.sock": "nvidia.com/gpu", "nvidia.sock": "nvidia.com/gpu"}
"""Sockets that are not named after their resource, as amd.com_gpu and gpu.intel.com-i915.sock are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletDirectory:
    """Facts about the kubelet's directory; each reason is None if the thing works."""

    settings: Settings
    refusal: str | None
    """Why no socket can be created in the directory that registration needs."""
    kubelet: str | None
    """Why the kubelet accepts no registration."""
    pod_resources: str | None
    """Why the kubelet does not list which pods hold which devices."""
    allocatable: str | None = None
    """Why the kubelet does not list the allocatable devices; not asked if `pod_resources` is set."""
    others: tuple[str, ...] = ()
    """Sockets of other plugins that are being served."""


def look(settings: Settings) -> KubeletDirectory:
    """Read the directory, and call the kubelet."""
    pod_resources = knock(settings.pod_resources_socket) or _answer(settings, "list_pods")
    return KubeletDirectory(
        settings=settings,
        refusal=_refusal(settings.socket_directory),
        kubelet=knock(settings.kubelet_socket),
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
        cure = "name the kubelet's directory with --kubelet-dir, mount it in the pod, and run as root"
        yield problem(TOPIC, f"{settings.socket_directory} cannot be used: {found.refusal}", cure)
    if found.kubelet is None:
        yield ok(TOPIC, f"{settings.kubelet_socket} accepts registrations (device plugin API v1beta1)")
    elif settings.registration == "kubelet_socket":
        cure = "start the kubelet (`systemctl status kubelet`), or name its directory with --kubelet-dir"
        yield problem(TOPIC, found.kubelet, cure)
    if found.pod_resources is None:
        yield ok(TOPIC, "PodResources v1 answers: the holders of devices are known")
    else:
        cure = f"mount {settings.pod_resources_socket.parent} in the pod; without it no holder of a device is shown"
        yield warning(TOPIC, f"PodResources does not answer: {found.pod_resources}", cure)
    if found.allocatable is not None:
        cure = "use Kubernetes 1.30 or newer; with this one, devherd does not notice that the kubelet has lost devices"
        yield warning(TOPIC, f"PodResources does not list allocatable devices: {found.allocatable}", cure)
    yield from _about_others(found, names)


def _about_others(found: KubeletDirectory, names: Collection[str]) -> Iterator[Line]:
    for socket in found.others:
        rival = next((name for name in sorted(names) if _is_of(socket, name)), None)
        path = found.settings.plugin_directory / socket
        if rival is not None:
            cure = "remove that plugin, or leave the resource out of devherd's configuration: they displace each other"
            yield problem(TOPIC, f"another plugin serves {rival}, too: {path}", cure)
        else:
            cure = "see that it does not serve the same resource names as devherd"
            yield warning(TOPIC, f"another plugin listens on {path}", cure)


def _is_of(socket: str, resource_name: str) -> bool:
    spellings = (resource_name.replace("/", "_"), resource_name.replace("/", "-"))
    return _KNOWN.get(socket) == resource_name or socket.removesuffix(".sock") in spellings


def _refusal(directory: Path) -> str | None:
    if not directory.is_dir():
        return "it does not exist"
    return None if os.access(directory, os.W_OK | os.X_OK) else "it cannot be written"


def _others(directory: Path) -> Iterator[str]:
    try:
        entries = sorted(directory.iterdir())
    except OSError:
        return
    for entry in entries:
        is_other = entry.is_socket() and entry.name != "kubelet.sock" and not entry.name.startswith(_OURS)
        if is_other and knock(entry) is None:
            yield entry.name


def _answer(settings: Settings, question: str) -> str | None:
    """Why the kubelet does not answer a question of `pod_resources`; None if it does."""
    import grpc.aio  # noqa: PLC0415 - slow, and not needed without a kubelet

    from devherd.kubelet import pod_resources  # noqa: PLC0415 - imports gRPC

    ask = {"list_pods": pod_resources.list_pods, "allocatable_ids": pod_resources.allocatable_ids}[question]
    try:
        asyncio.run(ask(settings.pod_resources_socket))
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return "the kubelet does not have version v1 of it"
        return f"the kubelet answered {error.code().name}: {error.details()}"
    return None
