"""The kubelet's calls of a driver: `DRAPlugin`, v1 and v1beta1. What they do is in `preparation`.

Errors are told a claim, never for the whole call: the kubelet shows them in the pod's Event. Every uid that was asked
for is in the answer, and no other, else the kubelet refuses all of it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import grpc
import grpc.aio

from devherd.dra.claim import ClaimError, ClaimOfPod
from devherd.dra.preparation import Preparation, PreparedAnswer
from devherd.proto import dra_v1_pb2, dra_v1beta1_pb2

log = logging.getLogger(__name__)

LONGEST_SECONDS = 43.0
"""Limit for an answer. The kubelet waits 45 s, and after an error a pod waits for 60 to 90 s more:
pkg/kubelet/cm/dra/plugin/dra_plugin.go (`defaultClientCallTimeout`), Kubernetes 1.37."""
SETTLED_SECONDS = 0.5
"""Without a call, until a process ends: the kubelet writes its checkpoint between choosing a process and calling it."""
MARGIN_SECONDS = 1.0
"""So much earlier than the caller's own deadline."""

VERSIONS = {"v1": dra_v1_pb2, "v1beta1": dra_v1beta1_pb2}
"""The best first: the kubelet takes the first that it knows."""

Context = grpc.aio.ServicerContext[Any, Any]
_T = TypeVar("_T")


class ClaimCalls:
    """The two calls for one driver, in every version, and how many are in progress."""

    def __init__(self, driver: str, preparation: Preparation) -> None:
        self._driver = driver
        self._preparation = preparation
        self._open = self._begun = 0
        self._none_open = asyncio.Event()
        self._none_open.set()

    def serve(self, server: grpc.aio.Server) -> None:
        """Add the services to a driver's server."""
        server.add_generic_rpc_handlers([_Version(name, api, self).handler for name, api in VERSIONS.items()])

    async def idle(self, seconds: float) -> None:
        """Return once no call has been in progress for SETTLED_SECONDS, or after `seconds`."""
        begun = -1
        try:
            async with asyncio.timeout(seconds):
                while self._open or begun != self._begun:
                    await self._none_open.wait()
                    begun = self._begun
                    await asyncio.sleep(SETTLED_SECONDS)
        except TimeoutError:  # or calls follow one another so closely
            if self._open:
                log.warning("%s: ends while the kubelet waits for an answer", self._driver)

    async def prepare(self, claims: Iterable[ClaimOfPod], seconds: float) -> dict[str, list[PreparedAnswer] | str]:
        """By uid: the devices, or why there are none. The claims are prepared at once."""
        return await self._each(claims, seconds, "prepared", lambda it: self._preparation.prepare(self._driver, it))

    async def unprepare(self, claims: Iterable[ClaimOfPod], seconds: float) -> dict[str, str | None]:
        """By uid: why its devices could not be taken back; None if they were."""
        return await self._each(
            claims, seconds, "released", lambda it: self._preparation.unprepare(self._driver, it.uid)
        )

    async def _each(
        self,
        claims: Iterable[ClaimOfPod],
        seconds: float,
        what: str,
        do: Callable[[ClaimOfPod], Awaitable[_T]],
    ) -> dict[str, _T | str]:
        by_uid = {claim.uid: claim for claim in claims}
        self._open += 1
        self._begun += 1
        self._none_open.clear()
        try:
            done = await asyncio.gather(*(self._one(claim, seconds, what, do) for claim in by_uid.values()))
            return dict(zip(by_uid, done, strict=True))
        finally:
            self._open -= 1
            if not self._open:
                self._none_open.set()

    async def _one(
        self, claim: ClaimOfPod, seconds: float, what: str, do: Callable[[ClaimOfPod], Awaitable[_T]]
    ) -> _T | str:
        name = f"{claim.namespace}/{claim.name}"
        try:
            async with asyncio.timeout(seconds):
                return await do(claim)
        except ClaimError as error:
            log.warning("%s: claim %s cannot be %s: %s", self._driver, name, what, error)
            return str(error)
        except TimeoutError:
            log.error("%s: claim %s was not %s within %.0f s", self._driver, name, what, seconds)
            return f"devherd: the claim was not {what} within {seconds:.0f} s — see devherd's log — it is tried again"
        except Exception as error:  # one claim must not cost the others
            log.exception("%s: claim %s cannot be %s", self._driver, name, what)
            return f"devherd: the claim cannot be {what} — {error!r} — this is a defect; see devherd's log"


class _Version:
    """The service in one version of the API. The methods' names are the protocol's."""

    def __init__(self, name: str, api: Any, calls: ClaimCalls) -> None:
        self._api = api
        self._calls = calls
        self._has_shares = "share_id" in api.Device.DESCRIPTOR.fields_by_name
        methods = {
            "NodePrepareResources": (self._prepare, api.NodePrepareResourcesRequest, api.NodePrepareResourcesResponse),
            "NodeUnprepareResources": (
                self._unprepare,
                api.NodeUnprepareResourcesRequest,
                api.NodeUnprepareResourcesResponse,
            ),
        }
        self.handler = grpc.method_handlers_generic_handler(
            f"k8s.io.kubelet.pkg.apis.dra.{name}.DRAPlugin",
            {
                method: grpc.unary_unary_rpc_method_handler(
                    do, request_deserializer=asked.FromString, response_serializer=answer.SerializeToString
                )
                for method, (do, asked, answer) in methods.items()
            },
        )

    async def _prepare(self, request: Any, context: Context) -> Any:
        prepared = await self._calls.prepare(_claims(request), _seconds(context))
        answer = self._api.NodePrepareResourcesResponse()
        for uid, devices in prepared.items():
            if isinstance(devices, str):
                answer.claims[uid].error = devices
            else:
                answer.claims[uid].devices.extend(map(self._device, devices))
        return answer

    async def _unprepare(self, request: Any, context: Context) -> Any:
        released = await self._calls.unprepare(_claims(request), _seconds(context))
        answer = self._api.NodeUnprepareResourcesResponse()
        for uid, error in released.items():
            answer.claims[uid].error = error or ""
        return answer

    def _device(self, device: PreparedAnswer) -> Any:
        share = {"share_id": device.share_id} if device.share_id and self._has_shares else {}
        return self._api.Device(
            request_names=device.requests,
            pool_name=device.pool,
            device_name=device.device,
            cdi_device_ids=device.cdi_device_ids,
            **share,
        )


def _claims(request: Any) -> list[ClaimOfPod]:
    return [ClaimOfPod(claim.namespace, claim.name, claim.uid) for claim in request.claims]


def _seconds(context: Context) -> float:
    """How long the answer may take."""
    left = context.time_remaining()
    return LONGEST_SECONDS if left is None else max(0.0, min(LONGEST_SECONDS, left - MARGIN_SECONDS))
