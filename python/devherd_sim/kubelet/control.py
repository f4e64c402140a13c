"""A way for commands to reach the running embedded kubelet: JSON lines on a Unix socket.

One request a line, `{"command": "allocate", "resource": …}`; one answer a line, `{"answer": …}` or
`{"error": [what, why, cure]}`.
"""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devherd.errors import DevherdError
from devherd_sim.kubelet import pod_manifest, reports
from devherd_sim.kubelet.allocation import AdmissionError, StartError
from devherd_sim.kubelet.check.checker import Checker
from devherd_sim.kubelet.manager import EmbeddedKubelet

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SOCKET_NAME = "sim-kubelet.sock"


def socket_of(kubelet_dir: Path) -> Path:
    """Where the embedded kubelet of a directory takes commands."""
    return kubelet_dir / SOCKET_NAME


class Control:
    """Serves one kubelet."""

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
        """Listen. Raises OSError when the socket cannot be made."""
        self._socket.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self._socket)
        self._socket.chmod(0o600)

    async def close(self) -> None:
        """Stop listening and remove the socket."""
        if self._server is not None:
            self._server.close()
            self._socket.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ValueError):  # the caller left, or sent no line within reason
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
        return reports.status(self._kubelet)

    async def _wait(
        self, resource: str, allocatable: int | None, seconds: float, of_seconds: float | None = None
    ) -> dict[str, Any]:
        """Until the resource has so many allocatable devices; None: any list of a plugin that is connected.

        `of_seconds` is what the caller has been given for it, some of which are over.
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
            raise DevherdError(*reports.not_there(kubelet, resource, allocatable, of_seconds or seconds)) from None
        return reports.resource(kubelet, resource)

    async def _events(self, since: int, follow: bool = False) -> dict[str, Any]:
        """Those since a mark, and the mark after them; with `follow`, when there is one."""
        events = self._kubelet.events
        if follow:
            await events.until(lambda: events.mark() > since, within=float("inf"))
        return {"next": events.mark(), "events": [event.as_json() for event in events.since(since)]}

    async def _check(self, resources: list[str], restart: bool, seconds: float) -> list[dict[str, str]]:
        known = reports.known(self._kubelet)
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
        return reports.held(allocation) | allocation.answer()

    async def _admit(self, manifest: dict[str, Any]) -> list[dict[str, Any]]:
        pod = pod_manifest.parse(manifest)
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
        return [reports.held(allocation) for allocation in self._kubelet.free(name, namespace or "default")]

    async def _restart(self) -> None:
        await self._kubelet.restart()
