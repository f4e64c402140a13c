"""The control protocol of the embedded kubelet, JSON lines on a Unix socket: server, client and reports."""

import asyncio
import contextlib
import json
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devherd.errors import DevherdError, UnreachableError
from devherd_sim.kubelet.check import Checker
from devherd_sim.kubelet.events import Event
from devherd_sim.kubelet.manager import EmbeddedKubelet
from devherd_sim.kubelet.pod import AdmissionError, Allocation, StartError, parse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_ERRORS = ("register-refused", "stream-ended")


def status_report(kubelet: EmbeddedKubelet) -> dict[str, Any]:
    """The resources, the allocations of pods, and the refused registrations."""
    there = kubelet.resources()
    refused = {name: _last_error(kubelet, name) for name in known_resources(kubelet) if name not in there}
    return {
        "kubelet_dir": str(kubelet.paths.kubelet_dir),
        "kubernetes": kubelet.kubernetes,
        "resources": [resource_report(kubelet, name) for name in there],
        "refused": [{"name": name, "last_error": error} for name, error in refused.items() if error],
        "allocations": [held_report(allocation) for allocation in kubelet.allocations()],
    }


def resource_report(kubelet: EmbeddedKubelet, name: str) -> dict[str, Any]:
    """Device counts of a resource, and its plugin: null if none is connected."""
    plugin = kubelet.plugin(name)
    is_connected = plugin is not None and plugin.stopped_at is None
    return {
        "name": name,
        "capacity": kubelet.capacity(name),
        "allocatable": kubelet.allocatable(name),
        "in_use": len(kubelet.in_use(name)),
        "registrations": kubelet.registrations(name),
        "plugin": {
            "socket": plugin.socket,
            "connected_seconds": round(time.monotonic() - plugin.lists_seen.connected_at, 3),
            "pre_start_required": plugin.options.pre_start_required,
            "get_preferred_allocation_available": plugin.options.get_preferred_allocation_available,
        }
        if plugin is not None and is_connected
        else None,
        "last_error": _last_error(kubelet, name),
    }


def held_report(allocation: Allocation) -> dict[str, Any]:
    """An allocation as JSON."""
    return {
        "namespace": allocation.container.namespace,
        "pod": allocation.container.pod,
        "container": allocation.container.name,
        "resource": allocation.resource,
        "device_ids": list(allocation.device_ids),
    }


def known_resources(kubelet: EmbeddedKubelet) -> list[str]:
    """All resources that are registered or for which Register was called, even if it was refused; sorted."""
    called = {event.resource for event in kubelet.events.since(0, "register-called")}
    return sorted(called.union(kubelet.resources()))


def not_there(kubelet: EmbeddedKubelet, name: str, allocatable: int | None, seconds: float) -> tuple[str, str, str]:
    """The error, cause and remedy for a resource that did not appear in time."""
    wanted = "" if allocatable is None else f" with {allocatable} allocatable devices"
    what = f"{name} is not there{wanted} after {seconds:g} s"
    error = _last_error(kubelet, name)
    if name in kubelet.resources():
        why = f"{kubelet.allocatable(name)} of {kubelet.capacity(name)} devices are allocatable"
        return what, f"{why}; last error: {error['error']}" if error else why, "see `devherd sim kubelet devices`"
    if error:
        return what, f"its registration was refused: {error['error']}", "see `devherd sim kubelet events`"
    others = ", ".join(known_resources(kubelet)) or "no plugin at all"
    return what, f"its plugin has not called Register; called so far: {others}", "look at the plugin's own log"


def _last_error(kubelet: EmbeddedKubelet, name: str) -> dict[str, Any] | None:
    errors = [event for event in kubelet.events.since(resource=name) if event.kind in _ERRORS]
    return _error_json(errors[-1]) if errors else None


def _error_json(event: Event) -> dict[str, Any]:
    return {"error": event.detail["error"], "seconds_ago": round(time.monotonic() - event.at, 3)}


SOCKET_NAME = "sim-kubelet.sock"


def socket_of(kubelet_dir: Path) -> Path:
    """The command socket of the embedded kubelet of a directory."""
    return kubelet_dir / SOCKET_NAME


class Control:
    """Serves the commands of one kubelet."""

    def __init__(self, kubelet: EmbeddedKubelet) -> None:
        self._kubelet = kubelet
        self._socket = socket_of(kubelet.paths.kubelet_dir)
        self._server: asyncio.Server | None = None
        self._commands: dict[str, Callable[..., Awaitable[Any]]] = {
            "status": self._status,
            "wait": self._wait,
            "events": self._events,
            "check": self._check,
            "devices": self._devices,
            "allocate": self._allocate,
            "admit": self._admit,
            "free": self._free,
            "restart": self._restart,
        }

    async def open(self) -> None:
        """Start to listen. Raises OSError when the socket cannot be created."""
        self._socket.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self._socket)
        self._socket.chmod(0o600)

    async def close(self) -> None:
        """Stop listening and remove the socket."""
        if self._server is not None:
            self._server.close()
            self._socket.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ValueError):  # the client disconnected, or its line is too long
            while line := await reader.readline():
                writer.write(json.dumps(await self._answer(line)).encode() + b"\n")
                await writer.drain()
        writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            command = self._commands[request.pop("command")]
            return {"answer": await command(**request)}
        except DevherdError as error:
            return {"error": [error.what, error.why, error.cure]}
        except AdmissionError as error:
            return {
                "error": ["the pod is rejected", error.message, "see `devherd sim kubelet status` for what there is"]
            }
        except StartError as error:
            return {"error": ["the container does not start", str(error), "the kubelet would try again"]}
        except OSError as error:
            return {"error": ["the kubelet cannot go on", str(error), "look at its directory"]}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return {"error": ["no such request", repr(error), "see devherd_sim/kubelet/control.py"]}

    async def _status(self) -> dict[str, Any]:
        return status_report(self._kubelet)

    async def _wait(
        self, resource: str, allocatable: int | None, seconds: float, of_seconds: float | None = None
    ) -> dict[str, Any]:
        """Wait until a resource has `allocatable` devices; None: until its connected plugin has sent a list.

        `of_seconds` is the client's total timeout for the error message; part of it may have passed.
        """
        kubelet = self._kubelet

        def is_there() -> bool:
            plugin = kubelet.plugin(resource)
            if plugin is None or plugin.stopped_at is not None or plugin.lists_seen.first_after is None:
                return False
            return allocatable is None or kubelet.allocatable(resource) == allocatable

        try:
            await kubelet.events.until(is_there, within=seconds)
        except TimeoutError:
            raise DevherdError(*not_there(kubelet, resource, allocatable, of_seconds or seconds)) from None
        return resource_report(kubelet, resource)

    async def _events(self, since: int, follow: bool = False) -> dict[str, Any]:
        """The events since a mark, and the next mark; `follow` waits until there is an event."""
        events = self._kubelet.events
        if follow:
            await events.until(lambda: events.mark() > since, within=float("inf"))
        return {"next": events.mark(), "events": [event.as_json() for event in events.since(since)]}

    async def _check(self, resources: list[str], restart: bool, seconds: float) -> list[dict[str, str]]:
        known = known_resources(self._kubelet)
        if unknown := set(resources) - set(known):
            raise DevherdError(
                f"no plugin has registered {min(unknown)}",
                f"those that have called Register: {', '.join(known) or 'none'}",
                "start the plugin, then try `devherd sim kubelet wait RESOURCE` first",
            )
        checker = Checker(self._kubelet, seconds)
        return [finding.as_json() for finding in await checker.findings(resources or known, restart=restart)]

    async def _devices(self, resource: str | None = None) -> list[dict[str, Any]]:
        holders = {
            (held.resource, device_id): held.container.pod
            for held in self._kubelet.allocations()
            for device_id in held.device_ids
        }
        return [
            {
                "resource": name,
                "id": device_id,
                "health": health,
                "numa_nodes": self._kubelet.numa_nodes(name, device_id) or None,
                "pod": holders.get((name, device_id)),
            }
            for name in self._kubelet.resources()
            if resource in (None, name)
            for device_id, health in self._kubelet.devices(name).items()
        ]

    async def _allocate(self, resource: str, count: int, pod: str, container: str) -> dict[str, Any] | None:
        allocation = await self._kubelet.allocate(resource, count, pod=pod, container=container)
        if allocation is None:
            return None
        await self._kubelet.start_container(pod=pod, container=container)
        return held_report(allocation) | allocation.answer()

    async def _admit(self, manifest: dict[str, Any]) -> list[dict[str, Any]]:
        pod = parse(manifest)
        await self._kubelet.admit(pod)
        held = self._kubelet.allocations()
        return [
            {
                "container": spec.name,
                "device_ids": [
                    device_id
                    for allocation in held
                    if allocation.container == pod.container(spec.name)
                    for device_id in allocation.device_ids
                ],
                **await self._kubelet.start_container(
                    pod=pod.name, container=spec.name, namespace=pod.namespace, uid=pod.uid
                ),
            }
            for spec in pod.in_order()
        ]

    async def _free(self, pod: str) -> list[dict[str, Any]]:
        namespace, _, name = pod.rpartition("/")
        return [held_report(allocation) for allocation in self._kubelet.free(name, namespace or "default")]

    async def _restart(self) -> None:
        await self._kubelet.restart()


def ask(kubelet_dir: Path, command: str, **words: Any) -> Any:
    """Send a request and return the answer. Has no timeout, since a plugin may answer late.

    Raises UnreachableError when no embedded kubelet runs on this directory, DevherdError when the request is refused.
    """
    path = socket_of(kubelet_dir)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(json.dumps({"command": command, **words}).encode() + b"\n")
            line = connection.makefile("rb").readline()
    except OSError as error:
        raise _unreachable(kubelet_dir, f"{path}: {error.strerror or error}") from error
    if not line:
        raise _unreachable(kubelet_dir, "it ended before it answered")
    reply = json.loads(line)
    if "error" in reply:
        raise DevherdError(*reply["error"])
    return reply["answer"]


def _unreachable(kubelet_dir: Path, why: str) -> UnreachableError:
    return UnreachableError(
        "no embedded kubelet answers", why, f"start one with `devherd sim kubelet --kubelet-dir {kubelet_dir}`"
    )
