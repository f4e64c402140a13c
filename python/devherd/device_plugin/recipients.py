"""Records in the history which pods hold a resource's devices: Allocate does not name them.

It asks the PodResources API after an allocation, and when a device becomes Unhealthy. Answers to the kubelet do not
wait for that.
"""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import grpc.aio

from devherd.device_plugin.snapshot import Snapshot
from devherd.history import History
from devherd.inventory import Allocations
from devherd.kubelet.pod_resources import list_pods, parse

PAUSES_SECONDS = (0.1, 0.4, 1.0, 2.0, 4.0, 8.0)
"""Pause before each question about the same devices: the kubelet lists an allocation only after Allocate returns."""

log = logging.getLogger(__name__)


class Recipients:
    """The questions of one resource child to the kubelet."""

    def __init__(self, socket: Path, history: History, snapshot: Snapshot) -> None:
        """`snapshot` is the first one: an earlier process has already handled its Unhealthy devices."""
        self._socket = socket
        self._history = history
        self._snapshot = snapshot
        self._ill = snapshot.unhealthy_ids
        self._allocated: dict[tuple[str, ...], int] = {}
        """How often the kubelet was asked, by the ids of a container."""
        self._failed: dict[tuple[str, ...], int] = {}
        """How often the kubelet was asked, by the ids of devices that have become Unhealthy."""
        self._wanted = asyncio.Event()

    def allocated(self, device_ids: Sequence[str]) -> None:
        """Note that a container gets these devices: ask which pod it belongs to."""
        self._ask_about(self._allocated, device_ids)

    def look(self, snapshot: Snapshot) -> None:
        """After a change of the list: ask who holds the devices that are Unhealthy now."""
        if snapshot is self._snapshot:
            return
        before, self._ill, self._snapshot = self._ill, snapshot.unhealthy_ids, snapshot
        for device_id in self._ill - before:
            self._ask_about(self._failed, (device_id,))

    async def run(self) -> None:
        """Ask and write until cancelled."""
        while True:
            await self._wanted.wait()
            while waiting := [*self._allocated.values(), *self._failed.values()]:
                await asyncio.sleep(PAUSES_SECONDS[min(waiting)])
                await self._ask()
            self._wanted.clear()

    def _ask_about(self, waiting: dict[tuple[str, ...], int], device_ids: Sequence[str]) -> None:
        waiting[tuple(device_ids)] = 0
        self._wanted.set()

    async def _ask(self) -> None:
        allocations: Allocations | None = None
        try:
            allocations = parse(await list_pods(self._socket))
        except grpc.aio.AioRpcError as error:
            log.debug("cannot ask %s which pods hold devices: %s", self._socket, error.details())
        self._settle(self._allocated, allocations)
        self._settle(self._failed, allocations, is_ill=True)

    def _settle(
        self, waiting: dict[tuple[str, ...], int], allocations: Allocations | None, *, is_ill: bool = False
    ) -> None:
        """Write who holds the devices. If nobody holds a device yet, ask again, a few times.

        `allocations` is None while the kubelet does not answer.
        """
        for device_ids, times in list(waiting.items()):
            by_holder: dict[tuple[str, str, str], list[str]] = {}
            for device_id in device_ids:
                for one in (allocations or {}).get((self._snapshot.name, device_id), ()):
                    by_holder.setdefault((one["namespace"], one["pod"], one["container"]), []).append(device_id)
            for holder, held in by_holder.items():
                self._note(holder, held, is_ill=is_ill)
            if by_holder or times + 1 == len(PAUSES_SECONDS) or (is_ill and allocations is not None):
                del waiting[device_ids]
            else:
                waiting[device_ids] = times + 1

    def _note(self, holder: tuple[str, str, str], device_ids: Sequence[str], *, is_ill: bool) -> None:
        namespace, pod, container = holder
        alone = device_ids[0] if len(device_ids) == 1 else ""
        held = f"held by pod {namespace}/{pod}, container {container}"
        message = held if alone else f"{', '.join(device_ids)} {held}"
        reasons: tuple[str, ...] = ()
        if is_ill:
            device = self._snapshot.devices.get(device_ids[0])
            reasons = tuple(device.reasons) if device else ()
            message = f"Unhealthy ({', '.join(reasons)}) while {held}"
            log.warning("%s is %s", device_ids[0], message)
        self._history.note(
            "allocation",
            message,
            resource_name=self._snapshot.name,
            device_id=alone,
            reasons=reasons,
            details={"namespace": namespace, "pod": pod, "container": container, "devices": " ".join(device_ids)},
        )
