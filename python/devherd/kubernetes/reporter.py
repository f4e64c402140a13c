"""Process `kubernetes:events`: reports to the API server when devices become Unhealthy and when they are Healthy again.

If the API server cannot be reached, the difference is reported later: a device that is back in its old state by then is
not reported. No other process waits for this one.
"""

import asyncio
import contextlib
import logging
import signal
import sys
import time

import grpc.aio

from devherd import spool
from devherd.backoff import Backoff
from devherd.config.resolved import ConfigPart
from devherd.instance.inventory_json import host_name
from devherd.instance.read import read_instance
from devherd.inventory import Allocations
from devherd.kubelet.pod_resources import list_pods, parse
from devherd.kubernetes import objects
from devherd.kubernetes.access import Access
from devherd.kubernetes.api import Api, ApiError, Json, RateLimit
from devherd.kubernetes.objects import Change, Reasons, changes, reasons_of
from devherd.process import BEAT_PERIOD_SECONDS, RENEW, Child
from devherd.proto import spool_pb2
from devherd.spool import identity_of

log = logging.getLogger(__name__)

_CURES = {
    401: "the token is not accepted",
    403: "add the component deploy/kubernetes/components/events, and for the node's condition node-condition beside it",
}


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    access = Access.of_this_pod()
    while access is None:  # the token may be mounted late
        child.beat()
        time.sleep(BEAT_PERIOD_SECONDS)
        access = Access.of_this_pod()
    return Reporter(child, Api(access, child.beat)).run()


class Reporter:
    """Compares the offers with what was reported."""

    def __init__(self, child: Child, api: Api) -> None:
        self._child = child
        self._settings = child.settings
        self._api = api
        self._reported_file = child.settings.kubernetes_directory / "reported.pb"
        reported = spool.read_or_empty(self._reported_file, spool_pb2.Reported)
        self._reported = _reasons_in(reported)
        self._restart_at = reported.driver_restart_timestamp_seconds
        self._condition: Reasons | None = None
        """The reasons that the node's condition shows; None while unknown."""
        self._seen: object = None
        self._backoff = Backoff(1.0, 60.0, jitter=0.2)
        self._due_at = 0.0
        self._limit = RateLimit(burst=25, seconds=12.0)
        self._complaint = ""

    def run(self) -> int:
        """Look each second; returns the exit code once a new process is needed."""
        part = ConfigPart(
            self._settings.resolved_config_file, lambda config: config.kubernetes.node_condition, self._child.beat
        )
        while not part.has_changed() and not self._child.has_outgrown_its_sandbox():
            self._child.beat()
            seen = [identity_of(file) for file in (self._settings.offers_file, self._settings.driver_restart_file)]
            if seen != self._seen and time.monotonic() >= self._due_at:
                self._report(seen, has_condition=part.value)
            time.sleep(BEAT_PERIOD_SECONDS)
        return RENEW

    def _report(self, seen: object, *, has_condition: bool) -> None:
        herd = read_instance(self._settings)
        now = reasons_of(herd.resources)
        try:
            self._report_restart()
            if has_condition and now != self._condition:
                self._api.patch(f"/api/v1/nodes/{host_name()}/status", objects.condition(now, time.time()))
                self._condition = now
            for change in changes(self._reported, herd.resources, herd.verdicts):
                self._report_change(change, now)
        except ApiError as error:
            self._complain(error)
        except _LimitReachedError:
            self._due_at = time.monotonic() + self._limit.seconds
        else:
            # Drops devices that are not offered any more. A copy, because `_condition` refers to the same object.
            self._reported = {name: dict(devices) for name, devices in now.items()}
            self._keep()
            self._seen, self._complaint = seen, ""
            self._backoff.reset()

    def _report_restart(self) -> None:
        restart = spool.read_or_empty(self._settings.driver_restart_file, spool_pb2.DriverRestart)
        if restart.timestamp_seconds not in (0.0, self._restart_at):
            self._create(objects.restart_event(restart, host_name()))
            self._restart_at = restart.timestamp_seconds
            self._keep()

    def _report_change(self, change: Change, now: Reasons) -> None:
        """Create the Event of the node, record that, then create those of pods: a failure repeats no Event."""
        if not self._limit.allows():
            raise _LimitReachedError
        holders = self._holders(change)
        self._create(objects.node_event(change, host_name(), time.time()))
        reported = self._reported.setdefault(change.resource_name, {})
        for device in change.devices:
            reported[device] = now.get(change.resource_name, {}).get(device, [])
        self._keep()
        for (namespace, pod), devices in holders.items():
            if self._limit.allows():
                self._report_to_pod(change, namespace, pod, devices)

    def _report_to_pod(self, change: Change, namespace: str, name: str, devices: list[str]) -> None:
        try:
            pod = self._api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
            self._create(objects.pod_event(change, devices, pod, host_name(), time.time()))
        except ApiError as error:
            log.warning("cannot send an Event about pod %s/%s: %s", namespace, name, error)

    def _create(self, event: Json) -> None:
        self._api.create(f"/api/v1/namespaces/{event['metadata']['namespace']}/events", event)

    def _holders(self, change: Change) -> dict[tuple[str, str], list[str]]:
        """The devices of each pod that holds some, by namespace and name."""
        self._child.beat()
        found: dict[tuple[str, str], list[str]] = {}
        allocations = self._allocations()
        for device, ids in change.ids.items():
            holders = [holder for each in ids for holder in allocations.get((change.resource_name, each), [])]
            for pod in sorted({(holder["namespace"], holder["pod"]) for holder in holders}):
                found.setdefault(pod, []).append(device)
        return found

    def _allocations(self) -> Allocations:
        """The kubelet's allocations; empty while it does not answer."""
        try:
            return parse(asyncio.run(list_pods(self._settings.pod_resources_socket)))
        except grpc.aio.AioRpcError as error:
            log.warning("cannot ask the kubelet which pods hold devices: %s", error.details())
            return {}

    def _complain(self, error: ApiError) -> None:
        self._due_at = time.monotonic() + self._backoff.seconds()
        if str(error) != self._complaint:
            cure = _CURES.get(error.status, "trying again")
            log.warning("cannot report devices to the API server: %s; %s", error, cure)
        self._complaint = str(error)

    def _keep(self) -> None:
        message = spool_pb2.Reported(driver_restart_timestamp_seconds=self._restart_at)
        for resource_name, devices in self._reported.items():
            for device, reasons in devices.items():
                message.devices.add(resource_name=resource_name, device=device, reasons=reasons)
        with contextlib.suppress(OSError):  # at worst the next process reports it again
            self._reported_file.parent.mkdir(mode=0o700, exist_ok=True)
            spool.write(self._reported_file, message)


class _LimitReachedError(Exception):
    """The rate limit allows no further Event at present."""


def _reasons_in(reported: spool_pb2.Reported) -> Reasons:
    reasons: Reasons = {}
    for device in reported.devices:
        reasons.setdefault(device.resource_name, {})[device.device] = list(device.reasons)
    return reasons
