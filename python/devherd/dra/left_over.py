"""Whether a container can still have the devices of a claim that is gone, and was not unprepared.

Its pod was deleted by force, and its container may still run: then the kubelet unprepares the claim when that has
ended. PodResources alone does not tell: it leaves out a pod from the moment it is deleted by force. But once a minute
the kubelet unprepares all claims whose pods are gone. So a claim of which no container is shown for longer, and that is
not unprepared, is one that the kubelet does not know, as after its directory was made anew.
https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/kubelet/cm/dra/manager.go (`reconcileLoop`),
pkg/kubelet/kubelet.go (`HandlePodRemoves`, `SyncTerminatingPod`)
"""

import time
from collections.abc import Callable
from pathlib import Path

import grpc.aio

from devherd.dra.claim import NotYetError
from devherd.dra.records import Key
from devherd.kubelet.pod_resources import claimed, list_pods
from devherd.proto.spool_pb2 import PreparedClaim

UNSEEN_SECONDS = 75.0
"""The kubelet's loop has a period of 60 s."""


class LeftOver:
    """What the kubelet at `socket` shows of such claims, and since when it shows nothing."""

    def __init__(
        self, socket: Path, unseen_seconds: float = UNSEEN_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._socket = socket
        self._clock = clock
        self._unseen_seconds = unseen_seconds
        self._unseen: dict[Key, tuple[object, float]] = {}
        """Since when no container was shown, and by which kubelet: one that has just started does not know its pods."""

    async def check(self, record: PreparedClaim, what: str, pause: float, others: frozenset[str]) -> None:
        """Return if no container can have a device of the record; raise NotYetError as long as one may.

        `others`: pods of the same claim that have other devices.
        """
        key = record.driver, record.uid
        devices = {(one.pool, one.device) for one in record.devices}
        try:
            shown = claimed(await list_pods(self._socket))
            kubelet = self._socket.stat()
        except (grpc.aio.AioRpcError, OSError) as error:
            self._unseen.pop(key, None)
            why = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
            raise NotYetError(f"{what}, and the kubelet does not say whether a pod has it: {why}", pause) from None
        for one, holders in shown.items():
            is_its = (one.driver, one.namespace, one.claim) == (record.driver, record.namespace, record.name)
            seen = [each for each in holders if each["pod"] not in others]
            if is_its and (one.pool, one.device) in devices and seen:
                self._unseen.pop(key, None)
                holder = "container {container} of pod {namespace}/{pod}".format_map(seen[0])
                raise NotYetError(f"{what}, and {holder} still has it", pause)
        self._wait(key, what, pause, (kubelet.st_ino, kubelet.st_ctime_ns))

    def forget(self, key: Key) -> None:
        """The record is gone."""
        self._unseen.pop(key, None)

    def _wait(self, key: Key, what: str, pause: float, kubelet: object) -> None:
        """Return once nothing was seen for long. Raises NotYetError."""
        now = self._clock()
        known, since = self._unseen.get(key, (None, now))
        if known != kubelet:
            self._unseen[key] = kubelet, now
            since = now
        if (left := since + self._unseen_seconds - now) > 0:
            why = f"{what}, which is gone, and which the kubelet has not unprepared yet"
            raise NotYetError(f"{why}; without a sign of it the device is free in {left:.0f} s", min(pause, left))
