"""Process `kubernetes:events`: tells the API server when devices become Unhealthy, and when they are well again.

What could not be told is told later, as what it has come to by then: devices that flap while nothing can be told are
not told of. Nobody waits for this process.
"""

import asyncio
import contextlib
import json
import logging
import signal
import sys
import time
from pathlib import Path

import grpc.aio

from devherd import instance, spool
from devherd.backoff import Backoff
from devherd.child import BEAT_PERIOD_SECONDS, RENEW, Child
from devherd.instance import Allocations
from devherd.inventory_json import host_name
from devherd.kubelet.pod_resources import list_pods, parse
from devherd.kubernetes import objects
from devherd.kubernetes.access import Access
from devherd.kubernetes.api import Api, ApiError, Json
from devherd.kubernetes.changes import Change, Reasons, changes, reasons_of
from devherd.kubernetes.rate_limit import RateLimit
from devherd.kubernetes.request import REQUEST, Request, request_in
from devherd.spool.identity import identity_of

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
    """Compares what the spool says with what was told."""

    def __init__(self, child: Child, api: Api) -> None:
        self._child = child
        self._settings = child.settings
        self._api = api
        self._told_file = child.settings.told_directory / "told.json"
        self._told = _told_in(self._told_file)
        self._condition: Reasons | None = None
        """What the node's condition says; None while that is unknown."""
        self._request_file = child.settings.requests_directory / REQUEST
        self._seen: object = None
        self._backoff = Backoff(1.0, 60.0, jitter=0.2)
        self._due_at = 0.0
        self._limit = RateLimit(burst=25, seconds=12.0)
        self._complaint = ""

    def run(self) -> int:
        """Look each second; the exit code when another process is needed."""
        content = _content(self._request_file)
        request = request_in(content)
        while _content(self._request_file) in {content, b""} and not self._child.has_outgrown_its_sandbox():
            self._child.beat()
            seen = self._versions()
            if seen != self._seen and time.monotonic() >= self._due_at:
                self._tell(seen, request)
            time.sleep(BEAT_PERIOD_SECONDS)
        return RENEW

    def _versions(self) -> object:
        """Equal for as long as no list of devices changes."""
        directory = self._settings.resources_directory
        return {key: identity_of(spool.path_of(directory, key)) for key in spool.keys_in(directory)}

    def _tell(self, seen: object, request: Request) -> None:
        herd = instance.read(self._settings)
        now = reasons_of(herd.resources)
        try:
            if request.node_condition and now != self._condition:
                self._api.patch(f"/api/v1/nodes/{host_name()}/status", objects.condition(now, time.time()))
                self._condition = now
            for change in changes(self._told, herd.resources, herd.verdicts):
                self._tell_change(change, now)
        except ApiError as error:
            self._complain(error)
        except _LimitReachedError:
            self._due_at = time.monotonic() + self._limit.seconds
        else:
            # Forgets devices that are listed no longer. A copy: it changes as things are told, the condition must not.
            self._told = {name: dict(devices) for name, devices in now.items()}
            self._keep()
            self._seen, self._complaint = seen, ""
            self._backoff.reset()

    def _tell_change(self, change: Change, now: Reasons) -> None:
        """Tell it of the node, remember that, then tell it of the pods: what fails later is not told twice."""
        if not self._limit.allows():
            raise _LimitReachedError
        holders = self._holders(change)
        self._create(objects.node_event(change, host_name(), time.time()))
        told = self._told.setdefault(change.resource_name, {})
        for device in change.devices:
            told[device] = now.get(change.resource_name, {}).get(device, [])
        self._keep()
        for (namespace, pod), devices in holders.items():
            if self._limit.allows():
                self._tell_pod(change, namespace, pod, devices)

    def _tell_pod(self, change: Change, namespace: str, name: str, devices: list[str]) -> None:
        try:
            pod = self._api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
            self._create(objects.pod_event(change, devices, pod, host_name(), time.time()))
        except ApiError as error:
            log.warning("cannot tell of pod %s/%s: %s", namespace, name, error)

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
        """Empty while the kubelet cannot be asked."""
        try:
            return parse(asyncio.run(list_pods(self._settings.pod_resources_socket)))
        except grpc.aio.AioRpcError as error:
            log.warning("cannot ask the kubelet which pods hold devices: %s", error.details())
            return {}

    def _complain(self, error: ApiError) -> None:
        self._due_at = time.monotonic() + self._backoff.seconds()
        if str(error) != self._complaint:
            cure = _CURES.get(error.status, "it is tried again")
            log.warning("cannot tell the API server of devices: %s; %s", error, cure)
        self._complaint = str(error)

    def _keep(self) -> None:
        with contextlib.suppress(OSError):  # told again by the next process, at worst
            spool.update(self._told_file, json.dumps(self._told).encode())


class _LimitReachedError(Exception):
    """No more may be told at present."""


def _told_in(file: Path) -> Reasons:
    try:
        told: Reasons = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return told


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
