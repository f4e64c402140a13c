"""The control protocol of the embedded kubelet, JSON lines on a Unix socket: server and client."""

import asyncio
import contextlib
import json
import operator
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devherd.errors import DevherdError, UnreachableError
from devherd_sim.kubelet import reports
from devherd_sim.kubelet.check import DOWN_SECONDS, Checker
from devherd_sim.kubelet.manager import EmbeddedKubelet
from devherd_sim.kubelet.plugin_findings import require_check
from devherd_sim.kubelet.pod import AdmissionError, StartError, parse
from devherd_sim.kubelet.registration import Disturbance


@dataclass(frozen=True, slots=True)
class _Counted:
    words: str
    is_reached: Callable[[int, int], bool]


_COUNTED = {
    "allocatable": _Counted("allocatable devices", operator.eq),
    "capacity": _Counted("devices in all", operator.eq),
    "registrations": _Counted("calls of Register", operator.ge),
}

SOCKET_NAME = "sim-kubelet.sock"


def socket_of(kubelet_dir: Path) -> Path:
    """The command socket of the embedded kubelet of a directory."""
    return kubelet_dir / SOCKET_NAME


class KubeletCommands:
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
            "refuse": self._disturb,
            "delay": self._disturb,
            "stop": self._stop,
            "start": self._start,
            "restart": self._restart,
        }
        self._changing = asyncio.Lock()
        """Held while the kubelet stops, is away and starts."""

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
        return reports.status_report(self._kubelet)

    async def _wait(
        self,
        resource: str,
        *,
        seconds: float,
        of_seconds: float | None = None,
        gone: bool = False,
        **numbers: int | None,
    ) -> dict[str, Any]:
        """Wait until a resource is as wanted; with no numbers: until its connected plugin has sent a list.

        `of_seconds` is the client's total timeout for the error message; part of it may have passed.
        """
        kubelet = self._kubelet
        wanted = {name: number for name, number in numbers.items() if number is not None}

        def is_there() -> bool:
            if not kubelet.running or resource not in reports.known_resources(kubelet):
                return False
            plugin = reports.connected(kubelet, resource)
            if gone or not wanted:
                return plugin is None if gone else plugin is not None and plugin.lists_seen.first_after is not None
            counts = reports.resource_report(kubelet, resource)
            return all(_COUNTED[name].is_reached(counts[name], number) for name, number in wanted.items())

        try:
            await kubelet.events.until(is_there, within=seconds)
        except TimeoutError:
            words = " and ".join(f"{number} {_COUNTED[name].words}" for name, number in wanted.items())
            what = f"{resource} is not gone" if gone else f"{resource} is not there{words and f' with {words}'}"
            because = reports.why_not(kubelet, resource)
            raise DevherdError(f"{what} after {of_seconds or seconds:g} s", *because) from None
        return reports.resource_report(kubelet, resource)

    async def _events(self, since: int, follow: bool = False) -> dict[str, Any]:
        """The events since a mark, and the next mark; `follow` waits until there is an event."""
        events = self._kubelet.events
        if follow:
            await events.until(lambda: events.mark() > since, within=float("inf"))
        return {"next": events.mark(), "events": [event.as_json() for event in events.since(since)]}

    async def _check(
        self,
        resources: list[str],
        restart: bool,
        seconds: float,
        down: float = DOWN_SECONDS,
        ignored: Sequence[str] = (),
    ) -> list[dict[str, str]]:
        accepted = {require_check(name) for name in ignored}
        self._require_running()
        known = reports.known_resources(self._kubelet)
        if not known:
            raise DevherdError(
                "there is nothing to check",
                f"no plugin has called Register at {self._kubelet.paths.kubelet_socket}",
                "start the plugin, then try `devherd sim kubelet wait RESOURCE` first",
            )
        if unknown := set(resources) - set(known):
            raise DevherdError(
                f"no plugin has registered {min(unknown)}",
                f"those that have called Register: {', '.join(known) or 'none'}",
                "start the plugin, then try `devherd sim kubelet wait RESOURCE` first",
            )
        checker = Checker(self._kubelet, seconds, down)
        async with self._changing:
            found = await checker.findings(resources or known, restart=restart)
        return [finding.as_json() for finding in found if finding.check not in accepted]

    async def _devices(self, resource: str | None = None) -> list[dict[str, Any]]:
        return list(reports.device_reports(self._kubelet, resource))

    async def _allocate(self, resource: str, count: int, pod: str, container: str) -> dict[str, Any] | None:
        self._require_running()
        allocation = await self._kubelet.allocate(resource, count, pod=pod, container=container)
        if allocation is None:
            return None
        await self._kubelet.start_container(pod=pod, container=container)
        return reports.held_report(allocation) | allocation.answer()

    async def _admit(self, manifest: dict[str, Any]) -> list[dict[str, Any]]:
        self._require_running()
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
        return [reports.held_report(allocation) for allocation in self._kubelet.free(name, namespace or "default")]

    async def _disturb(self, resource: str, times: int, delay: float, error: str | None = None) -> None:
        """Delay the next Register calls for a resource, and refuse them if `error` is given."""
        self._kubelet.disturbances[resource] = Disturbance(times, error, delay)

    async def _stop(self) -> None:
        async with self._changing:
            await self._kubelet.stop()

    async def _start(self) -> None:
        async with self._changing:
            if not self._kubelet.running:
                await self._kubelet.start()

    async def _restart(self, down: float = 0.0) -> None:
        async with self._changing:
            await self._kubelet.restart(down=down)

    def _require_running(self) -> None:
        if not self._kubelet.running:
            raise DevherdError("the kubelet is stopped", "it admits no pod then", "see `devherd sim kubelet start`")


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
