"""Checks device plugins for errors, including those that a kubelet accepts silently."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd_sim.kubelet.connections import PluginEndpoint, PluginError
from devherd_sim.kubelet.manager import EmbeddedKubelet
from devherd_sim.kubelet.plugin_findings import Finding, Problem
from devherd_sim.kubelet.reports import refusal, state

_CDI_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*/[A-Za-z][A-Za-z0-9_.-]*=[A-Za-z0-9][A-Za-z0-9_.:-]*")
"""<https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md>, qualified names."""


def of_allocate(answer: api.AllocateResponse) -> Iterator[Problem]:
    """Yields the problems of an Allocate answer for one container."""
    if len(answer.container_responses) != 1:
        yield "wrong-number-of-answers", f"{len(answer.container_responses)} answers to Allocate for one container"
        return
    [given] = answer.container_responses
    if given == api.ContainerAllocateResponse():
        yield "empty-answer", "Allocate was answered with nothing"
    for device in given.devices:
        paths = f"{device.host_path!r} as {device.container_path!r}"
        if not (device.host_path.startswith("/") and device.container_path.startswith("/")):
            yield "bad-device", f"device {paths} is not an absolute path"
        if not device.permissions or set(device.permissions) - set("rwm"):
            yield "bad-device", f"device {paths} has the permissions `{device.permissions}`"
    for mount in given.mounts:
        if not (mount.host_path.startswith("/") and mount.container_path.startswith("/")):
            yield "bad-mount", f"mount {mount.host_path!r} at {mount.container_path!r} is not an absolute path"
    for named in given.cdi_devices:
        if not _CDI_NAME.fullmatch(named.name):
            yield "bad-cdi-name", f"CDI device `{named.name}`"


def of_preferred(
    answer: api.PreferredAllocationResponse, available: Collection[str], must_include: Collection[str], size: int
) -> Iterator[Problem]:
    """Yields the problems of a GetPreferredAllocation answer for one container."""
    if len(answer.container_responses) != 1:
        text = f"{len(answer.container_responses)} answers to GetPreferredAllocation for one container"
        yield "wrong-number-of-answers", text
        return
    chosen = list(answer.container_responses[0].deviceIDs)
    if len(chosen) != size or len(set(chosen)) != size:
        yield "bad-preference", f"{len(set(chosen))} devices preferred, where {size} are asked for"
    if foreign := sorted(set(chosen) - set(available)):
        yield "bad-preference", f"`{foreign[0]}` preferred, which is not available"
    if missing := sorted(set(must_include) - set(chosen)):
        yield "bad-preference", f"`{missing[0]}` not preferred, which must be included"


SLOW_SECONDS = 1.0
CALL_SECONDS = 30.0
"""Deadline of a call; a kubelet has none."""
DOWN_SECONDS = 10.0
"""Seconds for which a check stops the kubelet: a real restart takes seconds, and some plugins do not survive it."""
BACK_SECONDS = 30.0
"""Seconds that a plugin may take to register again; some look for the kubelet's socket only every 10 s."""
SETTLE_SECONDS = 1.0
"""Seconds to watch plugins that have registered again: some register once more, or end."""
UNKNOWN_ID = "devherd-check-unknown-id"

Answer = TypeVar("Answer")


class Checker:
    """Checks plugins.

    `patience`: seconds that a plugin may take to register again after a restart of the kubelet; `down`: seconds between
    the kubelet's stop and start.
    """

    def __init__(self, kubelet: EmbeddedKubelet, patience: float, down: float = DOWN_SECONDS) -> None:
        self._kubelet = kubelet
        self._patience = patience
        self._down = down
        self._slow: list[str] = []

    async def findings(self, resources: Iterable[str], *, restart: bool) -> list[Finding]:
        """Check the plugins of these resources and return their problems; `restart` restarts the kubelet too."""
        found: list[Finding] = []
        checked = list(resources)
        for resource in checked:
            found += [Finding(resource, *problem) for problem in self._refusals(resource)]
            found += [Finding(resource, *problem) for problem in self._rivals(resource, since=0)]
            found += [Finding(resource, *problem) for problem in await self._plugin(resource)]
        if restart:
            alive = [resource for resource in checked if self._alive(resource)]
            mark = self._kubelet.events.mark()
            found += [Finding(resource, *problem) async for resource, problem in self._after_restart(alive)]
            again = [
                Finding(resource, *problem) for resource in alive for problem in self._rivals(resource, since=mark)
            ]
            found += [finding for finding in again if finding.check not in {each.check for each in found}]
        return found

    def _alive(self, resource: str) -> PluginEndpoint | None:
        endpoint = self._kubelet.plugin(resource)
        return endpoint if endpoint is not None and endpoint.stopped_at is None else None

    def _refusals(self, resource: str) -> Iterator[Problem]:
        """Yields the last refusal of Register, unless the plugin has registered since: plugins retry."""
        events = self._kubelet.events
        outcomes = [
            event for event in events.since(resource=resource) if event.kind in {"registered", "register-refused"}
        ]
        if outcomes and outcomes[-1].kind == "register-refused":
            yield "register-refused", refusal(**outcomes[-1].detail)
            endpoint, path = outcomes[-1].detail["endpoint"], outcomes[-1].detail["socket"]
            if "/" in endpoint:
                yield "endpoint-with-a-slash", f"its endpoint `{endpoint}` means {path}"

    def _rivals(self, resource: str, since: int) -> Iterator[Problem]:
        """Yields the conflicts between plugins of one resource, since a mark of the events."""
        again = [
            str(event.detail["problem"])
            for event in self._kubelet.events.since(since, "doubtful", resource)
            if event.detail["check"] == "same-socket-again"
        ]
        if again:
            yield "same-socket-again", again[-1] + (f"; {len(again)} times in all" if len(again) > 1 else "")
        sockets = sorted({Path(each.socket).name for each in self._kubelet.live_plugins(resource)})
        if len(sockets) > 1:
            yield "two-plugins", f"{len(sockets)} sockets have ListAndWatch open: {', '.join(sockets)}"

    async def _plugin(self, resource: str) -> list[Problem]:
        endpoint = self._alive(resource)
        if endpoint is None:
            ended = [str(event.detail["error"]) for event in self._kubelet.events.since(0, "stream-ended", resource)]
            ghosts = [Path(each.socket).name for each in self._kubelet.live_plugins(resource)]
            of_ghosts = (
                f"; ListAndWatch of {', '.join(ghosts)} is open, and the kubelet asks it nothing" if ghosts else ""
            )
            return [("gone", f"not connected: {ended[-1]}{of_ghosts}")] if ended else []
        if endpoint not in self._kubelet.live_plugins(resource):
            return [("gone", f"{state(self._kubelet, resource)}: pods are sent to it")]
        self._slow = []
        if endpoint.dialled_seconds > SLOW_SECONDS:
            self._slow.append(f"the connection and GetDevicePluginOptions took {endpoint.dialled_seconds:.1f} s")
        found = list(endpoint.lists_seen.problems(time.monotonic(), self._kubelet.numa_node_count))
        has_called_register = self._kubelet.registrations(resource) > 0
        if has_called_register and Path(endpoint.socket).parent != self._kubelet.paths.plugin_directory:
            found.append(("endpoint-with-a-slash", f"its socket is {endpoint.socket}"))
        ids = [device.ID for device in endpoint.lists_seen.last if device.health == "Healthy" and device.ID]
        if ids:
            found += [problem async for problem in self._calls(endpoint, ids)]
        return found + [("slow-answer", answer) for answer in self._slow]

    async def _calls(self, endpoint: PluginEndpoint, ids: list[str]) -> AsyncIterator[Problem]:
        allocated = await self._timed("Allocate", lambda: endpoint.ask_allocate(ids[:1], CALL_SECONDS))
        if isinstance(allocated, PluginError):
            yield "allocate-fails", f"Allocate of `{ids[0]}`: {allocated}"
        else:
            for problem in of_allocate(allocated):
                yield problem
        unknown = await self._timed("Allocate", lambda: endpoint.ask_allocate([UNKNOWN_ID], CALL_SECONDS))
        if isinstance(unknown, api.AllocateResponse):
            yield "unknown-id-accepted", "Allocate of an id that is in no list was answered"
        if endpoint.options.get_preferred_allocation_available:
            for problem in await self._preference(endpoint, sorted(set(ids))):
                yield problem
        if endpoint.options.pre_start_required:
            started = await self._timed("PreStartContainer", lambda: endpoint.ask_pre_start(ids[:1]))
            if isinstance(started, PluginError):
                yield "pre-start-fails", f"PreStartContainer of `{ids[0]}`: {started}"

    async def _preference(self, endpoint: PluginEndpoint, ids: list[str]) -> list[Problem]:
        must, size = ids[-1:], min(2, len(ids))
        preferred = await self._timed(
            "GetPreferredAllocation", lambda: endpoint.ask_preferred(ids, must, size, CALL_SECONDS)
        )
        if isinstance(preferred, PluginError):
            return [("bad-preference", f"GetPreferredAllocation of {size} of {len(ids)}: {preferred}")]
        return list(of_preferred(preferred, ids, must, size))

    async def _timed(self, name: str, call: Callable[[], Awaitable[Answer]]) -> Answer | PluginError:
        began = time.monotonic()
        try:
            return await call()
        except PluginError as error:
            return error
        finally:
            if (took := time.monotonic() - began) > SLOW_SECONDS:
                self._slow.append(f"{name} took {took:.1f} s")

    async def _after_restart(self, resources: list[str]) -> AsyncIterator[tuple[str, Problem]]:
        before = {resource: self._kubelet.allocatable(resource) for resource in resources}
        mark = self._kubelet.events.mark()
        await self._kubelet.restart(down=self._down)
        deadline = time.monotonic() + self._patience
        missing = []
        for resource in resources:
            try:
                await self._kubelet.events.wait(
                    "list", resource, since=mark, within=max(0.0, deadline - time.monotonic())
                )
            except TimeoutError:
                missing.append(resource)
                away = f"{self._patience:g} s after a restart of the kubelet, which was away for {self._down:g} s"
                yield resource, ("not-registered-again", f"not back {away}; {self._registered_again(resource, mark)}")
        await asyncio.sleep(SETTLE_SECONDS)
        for resource in resources:
            now = self._kubelet.allocatable(resource)
            if now < before[resource] and resource not in missing:
                yield resource, ("not-registered-again", f"back with {now} of {before[resource]} Healthy devices")

    def _registered_again(self, resource: str, since: int) -> str:
        """How often Register was called since a mark, and the outcome."""
        calls = len(self._kubelet.events.since(since, "register-called", resource))
        if not calls:
            return "Register was not called"
        return f"Register was called {calls} time{'s' * (calls > 1)}: {state(self._kubelet, resource)}"
