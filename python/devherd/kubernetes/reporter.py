"""Reports by Events when devices become Unhealthy and when they are Healthy again.

If the API server cannot be reached, or the limit of Events is exceeded, changes are reported later: a device that is
back in its old state by then is not reported. The next Event about it has the number of its changes.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial

import grpc.aio

from devherd import history, spool
from devherd.api_server import Api, ApiError, Json
from devherd.backoff import Backoff
from devherd.instance.files import read_standby
from devherd.instance.inventory_json import host_name
from devherd.instance.read import InstanceState, read_instance, second_instance
from devherd.inventory import Allocations, inventory_of
from devherd.kubelet.pod_resources import list_pods, parse
from devherd.kubernetes import objects
from devherd.kubernetes.event_series import EventSeries
from devherd.kubernetes.objects import Change, Reasons, changes, reasons_of
from devherd.log import Once
from devherd.proto import devices_pb2, spool_pb2
from devherd.settings import Settings
from devherd.spool import identity_of

log = logging.getLogger(__name__)

SCANNER = "scanner"
"""The process whose history has the Xids of applications."""
FIRST_NEWS_SECONDS = 60.0
"""Maximum age of an event that the first process reports: the scanner may have read an Xid before it started."""
SECOND_INSTANCE_SECONDS = 60.0
"""Time between two looks for an instance that stands by."""
_CURES = {
    401: "the token is not accepted",
    403: "add the component deploy/kubernetes/components/events",
}


class Reporter:
    """Reports the differences between the offers and the last report."""

    def __init__(self, settings: Settings, api: Api, events: EventSeries, beat: Callable[[], None]) -> None:
        self._settings = settings
        self._api = api
        self._events = events
        self._beat = beat
        self._reported_file = settings.kubernetes_directory / "reported.pb"
        reported = spool.read_or_empty(self._reported_file, spool_pb2.Reported)
        self._reported = _reasons_in(reported)
        self._observed = _copied(self._reported)
        """The reasons at the last look, reported or not."""
        self._times: dict[tuple[str, str, bool], int] = {}
        """By resource, device and whether it became Unhealthy: how often, since it was reported."""
        self._reported_at: dict[str, float] = {}
        """By resource, when it was reported last: the one that has waited longest comes first."""
        self._restart_at = reported.driver_restart_timestamp_seconds
        self._seen: object = None
        self._herd: InstanceState | None = None
        """The state to report; None once all of it is reported."""
        self._backoff = Backoff(1.0, 60.0, jitter=0.2)
        self._due_at = 0.0
        self._second_due_at = self._second_since = 0.0
        self._complaint = Once(log.warning)
        self._history_at = (reported.history_inode, reported.history_bytes) if reported.history_inode else None
        """The position in the history up to which events are handled."""
        since = time.time() - FIRST_NEWS_SECONDS
        self._history = history.Follower(settings.run_dir, SCANNER, since, self._history_at)
        self._history_file = settings.history_directory / SCANNER / history.CURRENT
        self._history_seen: object = None
        self._news: list[history.HistoryEvent] = []
        """Events that were read from the history and are not handled yet."""
        self._lost = list(history.parsed(reported.lost, SCANNER))
        """Changes of lost devices that are still to be reported, if need be by the next process."""

    def tend(self) -> None:
        """Report what has changed, as far as limit and server allow."""
        seen = [identity_of(file) for file in (self._settings.offers_file, self._settings.driver_restart_file)]
        if seen != self._seen:
            self._look()
            self._seen = seen
        if (history_seen := identity_of(self._history_file)) != self._history_seen:
            self._news += self._history.news()
            self._history_seen = history_seen
        self._report_news()
        self._report_lost()
        if self._herd is not None and time.monotonic() >= self._due_at:
            self._report(self._herd)
        if time.monotonic() >= self._second_due_at:
            self._second_due_at = time.monotonic() + SECOND_INSTANCE_SECONDS
            self._report_second_instance()

    def _look(self) -> None:
        self._herd = read_instance(self._settings)
        if not self._settings.offers_file.exists():
            return  # the run directory was emptied, or nothing has been scanned yet
        for change in changes(self._observed, self._herd.resources, self._herd.verdicts):
            for device in change.devices:
                key = change.resource_name, device, change.is_unhealthy
                self._times[key] = self._times.get(key, 0) + 1
        self._observed = reasons_of(self._herd.resources)

    def _report(self, herd: InstanceState) -> None:
        now = reasons_of(herd.resources)
        found = changes(self._reported, herd.resources, herd.verdicts)
        found.sort(key=lambda change: self._reported_at.get(change.resource_name, 0.0))
        try:
            self._report_restart()
            for change in found:
                self._report_change(change, now)
        except ApiError as error:
            self._complain(error)
        except _LimitReachedError as reached:
            self._due_at = time.monotonic() + reached.seconds
        else:
            self._herd = None
            if self._settings.offers_file.exists():
                self._forget_what_is_not_offered(herd)
            self._complaint.over()
            self._backoff.reset()

    def _forget_what_is_not_offered(self, herd: InstanceState) -> None:
        self._reported = reasons_of(herd.resources)
        offered = {(resource.name, device.id) for resource in herd.resources for device in resource.devices}
        self._times = {key: times for key, times in self._times.items() if key[:2] in offered}
        self._keep()

    def _report_restart(self) -> None:
        restart = spool.read_or_empty(self._settings.driver_restart_file, spool_pb2.DriverRestart)
        if restart.timestamp_seconds not in (0.0, self._restart_at):
            self._send(objects.restart_event(restart, host_name()), restart.timestamp_seconds, 1)
            self._restart_at = restart.timestamp_seconds
            self._keep()

    def _report_second_instance(self) -> None:
        """Report an instance that stands by for longer than a roll-out takes, once."""
        standby = read_standby(self._settings.standby_file)
        what = second_instance(standby)
        if standby is None or what is None or standby.since == self._second_since:
            return
        event = objects.second_instance_event(what, standby, host_name(), time.time())
        with contextlib.suppress(ApiError):  # tried again a minute later
            if self._events.send(event, standby.since, 1):
                self._second_since = standby.since

    def _report_change(self, change: Change, now: Reasons) -> None:
        """Send the Event about the node, record it, then send the Events about pods: a failure repeats no Event."""
        if (seconds := self._events.wait_seconds(objects.node_event(change, host_name(), time.time()))) > 0:
            raise _LimitReachedError(seconds)
        holders = self._holders(change)
        ticket = objects.ticket_of(change, self._facts(change), ["/".join(pod) for pod in holders])
        event = objects.node_event(change, host_name(), time.time(), ticket)
        reasons = now.get(change.resource_name, {})
        self._send(event, _same(change, list(change.devices), reasons), self._taken_times(change, list(change.devices)))
        reported = self._reported.setdefault(change.resource_name, {})
        times = {device: self._taken_times(change, [device]) for device in change.devices}
        for device in change.devices:
            reported[device] = reasons.get(device, [])
            self._times.pop((change.resource_name, device, change.is_unhealthy), None)
        self._reported_at[change.resource_name] = time.monotonic()
        self._keep()
        for pod, devices in holders.items():
            made = partial(objects.pod_event, change, devices)
            self._send_to_pod(pod, _same(change, devices, reasons), max(times[device] for device in devices), made)

    def _report_news(self) -> None:
        if not self._news:
            return
        self._report_applications([each for each in self._news if each.kind == "application"])
        self._lost += [each for each in self._news if each.kind == "lost"]
        self._history_at, self._news = self._history.position(SCANNER), []
        self._keep()

    def _report_applications(self, found: Sequence[history.HistoryEvent]) -> None:
        """Send Events about Xids of applications to the pods that hold the device: once, as nothing needs repair."""
        ids = self._ids_by_device() if found else {}
        allocations = self._allocations() if found else {}
        for event in found:
            held = [allocations.get((event.resource_name, one), []) for one in ids.get(_device_of(event), ())]
            for pod in sorted({(holder["namespace"], holder["pod"]) for holders in held for holder in holders}):
                same = (event.device_id, event.details.get("xid"), event.details.get("pid"))
                self._send_to_pod(pod, same, 1, partial(objects.application_event, event))

    def _report_lost(self) -> None:
        """Report which devices left the kubelet's list because they are lost, and which of those are back."""
        try:
            while self._lost and time.monotonic() >= self._due_at:
                event = objects.lost_event(self._lost[0], host_name())
                if not self._events.send(event, (_device_of(self._lost[0]), self._lost[0].message), 1):
                    return
                del self._lost[0]
                self._keep()
        except ApiError as error:
            self._complain(error)

    def _ids_by_device(self) -> dict[tuple[str, str], set[str]]:
        """The ids that the kubelet knows each device by, by resource and device."""
        offers = spool.read_or_empty(self._settings.offers_file, spool_pb2.Offers).offers
        return {
            (offer.name, device.id): {device.id, *spool.ids_of(device.id, device.replicas, device.shares)}
            for offer in offers
            for device in offer.devices
        }

    def _facts(self, change: Change) -> dict[str, str]:
        """The facts of the only device; empty for several, and for one that is not known any more."""
        if len(change.devices) != 1:
            return {}
        [key] = change.keys.values()
        inventory = inventory_of(spool.read_or_empty(self._settings.devices_file, devices_pb2.Inventory))
        entry = inventory.entries.get(key)
        return {name: fact.text for name, fact in entry.device.facts.items()} if entry else {}

    def _taken_times(self, change: Change, devices: list[str]) -> int:
        """The highest number of such changes of one of these devices since the last report."""
        return max(self._times.get((change.resource_name, device, change.is_unhealthy), 1) for device in devices)

    def _send(self, event: Json, what: Hashable, times: int) -> None:
        if not self._events.send(event, what, times):
            raise _LimitReachedError(self._events.wait_seconds(event))

    def _send_to_pod(
        self, holder: tuple[str, str], same: Hashable, times: int, made: Callable[[Json, str, float], Json]
    ) -> None:
        """`made` makes the Event of the pod, the node's name and the time. A failure is only logged."""
        namespace, name = holder
        try:
            pod = self._api.get(f"/api/v1/namespaces/{namespace}/pods/{name}", metadata_alone=True)
            self._events.send(made(pod, host_name(), time.time()), same, times)
        except ApiError as error:
            log.warning("cannot send an Event about pod %s/%s: %s", namespace, name, error)

    def _holders(self, change: Change) -> dict[tuple[str, str], list[str]]:
        """The devices of each pod that holds some, by namespace and name."""
        self._beat()
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
        cure = _CURES.get(error.status, "trying again")
        self._complaint.complain("cannot report devices to the API server: %s; %s", error, cure)

    def _keep(self) -> None:
        message = spool_pb2.Reported(
            driver_restart_timestamp_seconds=self._restart_at, lost=map(history.line, self._lost)
        )
        if self._history_at is not None:
            message.history_inode, message.history_bytes = self._history_at
        for resource_name, devices in self._reported.items():
            for device, reasons in devices.items():
                message.devices.add(resource_name=resource_name, device=device, reasons=reasons)
        with contextlib.suppress(OSError):  # at worst the next process reports it again
            self._reported_file.parent.mkdir(mode=0o700, exist_ok=True)
            spool.write(self._reported_file, message)


class _LimitReachedError(Exception):
    """The limit allows no further Event about the node for some seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


def _same(change: Change, devices: list[str], reasons: Mapping[str, list[str]]) -> Hashable:
    """The key by which Events count as repeated: their evidence, such as a count, may differ."""
    return (change.resource_name, *((device, *reasons.get(device, [])) for device in devices))


def _device_of(event: history.HistoryEvent) -> tuple[str, str]:
    return event.resource_name, event.device_id


def _copied(reasons: Reasons) -> Reasons:
    return {name: dict(devices) for name, devices in reasons.items()}


def _reasons_in(reported: spool_pb2.Reported) -> Reasons:
    reasons: Reasons = {}
    for device in reported.devices:
        reasons.setdefault(device.resource_name, {})[device.device] = list(device.reasons)
    return reasons
