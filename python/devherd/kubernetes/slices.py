"""Publishes this node's devices: keeps its ResourceSlices as the scanner's files have the devices.

A driver is published once the kubelet has registered it: a pod that came earlier would wait for the driver. Nothing is
removed when this process ends; the kubelet removes the slices of a driver that nobody serves any more.

Old API servers drop taints. There a device that needs one is withdrawn.
"""

import http
import time
from collections.abc import Mapping, Sequence

from devherd import spool
from devherd.api_server import NO_ACCESS, Api, ApiError, Json, RateLimit
from devherd.backoff import Backoff
from devherd.dra.objects import slices_of
from devherd.dra.pool_files import PoolFiles
from devherd.dra.pools import Pools
from devherd.dra.registrations import LETTERS
from devherd.dra.slice_plan import dropped
from devherd.kubernetes.driver_slices import DriverSlices, SliceServer, with_name
from devherd.kubernetes.problems import Problems
from devherd.kubernetes.slice_watch import SLICES, SliceWatch
from devherd.proto import spool_pb2
from devherd.settings import Settings
from devherd.spool import identity_of

WRITES, WRITE_SECONDS = 10, 0.1
"""Writes at once, and the time until one more is allowed: ten a second against a second writer."""
RULES = (
    "apiGroups: [resource.k8s.io], resources: [resourceslices], verbs: [list, watch, create, update, delete],"
    ' and apiGroups: [""], resources: [nodes], verbs: [get]'
)
"""The rights, as rules of a role."""
CURES: Mapping[int, str] = {
    http.HTTPStatus.UNAUTHORIZED: "neither its token nor its certificate is accepted: give it another",
    http.HTTPStatus.FORBIDDEN: "set NODE_NAME if that is not the node's name, or give the account a role with the rules"
    f" {RULES}",
    http.HTTPStatus.NOT_FOUND: "the API server has no resource.k8s.io/v1: use Kubernetes 1.34 or newer, or"
    " `front_end: device_plugin`",
}
_NO_ACCESS_CURE = "name one, such as `kubeconfig: /etc/kubernetes/kubelet.conf`"
_OF_THE_SERVER = {0, http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.TOO_MANY_REQUESTS}
"""The statuses after which no other driver is tried."""
_NO_NODE_SECONDS = 2.0
_EARLY_SECONDS = 30.0
"""For so long slices stay as they are while a device of theirs is read anew."""
_TAINTS = "taints"
_GATES = {
    _TAINTS: "DRADeviceTaints",
    "allowMultipleAllocations": "DRAConsumableCapacity",
    "requestPolicy": "DRAConsumableCapacity",
}
"""<https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates/>"""


class SlicePublisher:
    """Keeps the slices of a node; `api` and `watch` are None without access to an API server.

    `effect` is that of the taints of Unhealthy devices.
    """

    def __init__(
        self,
        settings: Settings,
        problems: Problems,
        api: Api | None,
        watch: SliceWatch | None,
        *,
        node: str,
        effect: str,
    ) -> None:
        self._settings = settings
        self._node = node
        self._effect = effect
        self._server = SliceServer(api, watch, RateLimit(WRITES, WRITE_SECONDS)) if api and watch else None
        self._problems = problems
        self._files = PoolFiles(settings)
        self._pools_seen = 0
        self._drivers: dict[str, DriverSlices] = {}
        """Those that were registered once."""
        self._node_uid = ""
        self._keeps_taints: bool | None = None
        """Whether the server does; None before it was asked."""
        self._early_until: dict[str, float] = {}
        """By driver: until when its slices stay as they are, while a device of theirs is read anew."""
        self._told: set[str] = set()
        """The dropped fields that were told."""
        self._backoff = Backoff(1.0, 60.0, jitter=0.2)
        self._error = ""
        """Why nothing can be published at present; empty if it can."""
        self._due_at = 0.0
        self._seen: object = None
        """What the last attempt began with."""
        self._reads = 0
        self._states_seen: object = None
        self._config_seen: object = None

    def tend(self) -> None:
        """Write what differs, as far as limit and server allow."""
        if self._server is None:
            self._problems.report(
                f"node {self._node}", f"no ResourceSlices are published: {NO_ACCESS}: {_NO_ACCESS_CURE}"
            )
            return
        self._look()
        watch, now = self._server.watch, time.monotonic()
        seen = self._pools_seen, watch.changes, len(self._drivers), self._keeps_taints
        is_due = now >= self._due_at or (seen != self._seen and not self._error)
        if self._drivers and self._files.pools is not None and watch.reads and is_due:
            self._seen = seen
            self._try_to_publish(self._server, self._files.pools, now)
        self._tell(watch.error)

    def _look(self) -> None:
        self._pools_seen += self._files.look()
        files = [spool.path_of(self._settings.dra_directory, name) for name in LETTERS]
        if self._server and (seen := [*map(identity_of, files)]) != self._states_seen:
            drivers = [each for file in files for each in spool.read_or_empty(file, spool_pb2.DraState).drivers]
            for name in sorted(each.name for each in drivers if each.registered_timestamp_seconds):
                self._drivers.setdefault(name, DriverSlices(name, self._server))
            self._states_seen = seen
        if (config := identity_of(self._settings.resolved_config_file)) != self._config_seen:
            for driver in self._drivers.values():  # after a reload
                driver.begin_again()
            self._config_seen, self._seen = config, None

    def _try_to_publish(self, server: SliceServer, pools: Pools, now: float) -> None:
        if server.watch.reads != self._reads:
            self._reads, self._keeps_taints = server.watch.reads, None
            for driver in self._drivers.values():
                driver.forget_answers()
        try:
            self._publish(server, pools, now)
        except ApiError as error:
            self._error = f"{error}: {CURES.get(error.status, 'trying again')}"
            self._due_at = now + max(self._backoff.seconds(), error.retry_after_seconds or 0.0)
        except _NoNodeError as error:
            self._error, self._due_at = str(error), now + _NO_NODE_SECONDS
        else:
            waits = [until for until in self._early_until.values() if now < until]
            self._error, self._due_at = "", min([*waits, *(each.due_at for each in self._drivers.values())])
            self._backoff.reset()

    def _publish(self, server: SliceServer, pools: Pools, now: float) -> None:
        """Raises ApiError and _NoNodeError, after what can be done without."""
        wanted = self._wanted(server, pools)
        plans = {name: driver.plan(wanted.get(name, ())) for name, driver in self._drivers.items()}
        if not self._node_uid or any(plan.creates for plan in plans.values()):
            uid = self._uid_of_the_node(server)  # slices of a Node that was made anew are removed
            if uid != self._node_uid:
                self._node_uid = uid
                wanted = self._wanted(server, pools)
                plans = {name: driver.plan(wanted.get(name, ())) for name, driver in self._drivers.items()}
        failure: ApiError | None = None
        for name, driver in sorted(self._drivers.items(), key=lambda each: each[1].wrote_at):  # no one takes all turns
            if self._is_early(server, pools, name, now):
                continue
            try:
                driver.bring(plans[name], now)
            except ApiError as error:
                failure = failure or error
                if error.status in _OF_THE_SERVER:
                    break
            self._note_dropped(driver.dropped)
        if failure:
            raise failure

    def _is_early(self, server: SliceServer, pools: Pools, name: str, now: float) -> bool:
        """Whether a device that is published is only read anew, as after a start: it would be away for a second."""
        shown = {one["name"] for each in server.watch.of(name) for one in each["spec"].get("devices") or ()}
        waiting = [one for one in pools.unpublished.values() if one.driver == name and one.is_awaited]
        if not any(one.name is None or one.name in shown for one in waiting) or not shown:
            self._early_until.pop(name, None)
            return False
        return now < self._early_until.setdefault(name, now + _EARLY_SECONDS)

    def _wanted(self, server: SliceServer, pools: Pools) -> dict[str, list[Json]]:
        """The slices by driver. Raises ApiError."""
        tainted = [one for name in self._drivers for one in pools.devices.get(name, ()) if one.taints]
        if tainted and self._keeps_taints is None:
            self._keeps_taints = self._ask_for_taints(server, Pools({tainted[0].type.driver: tainted[:1]}))
        if tainted and not self._keeps_taints:
            pools = Pools({name: [one for one in devices if not one.taints] for name, devices in pools.devices.items()})
        made: dict[str, list[Json]] = {}
        for each in slices_of(pools, self._node, self._node_uid, self._effect):
            made.setdefault(each["spec"]["driver"], []).append(each)
        return made

    def _ask_for_taints(self, server: SliceServer, pools: Pools) -> bool:
        """Whether the server keeps taints, by a write that it only tries: an ill device is never there without one.

        No attribute is tried: a device that the server refuses costs its own driver alone. Raises ApiError.
        """
        [tried] = slices_of(pools, self._node, effect=self._effect)
        tried["spec"]["devices"] = [{key: one[key] for key in ("name", _TAINTS)} for one in tried["spec"]["devices"]]
        answer = server.api.create(f"{SLICES}?dryRun=All", with_name(tried))
        found = dropped(tried["spec"], answer.get("spec"))
        self._note_dropped(found)
        return _TAINTS not in found

    def _note_dropped(self, fields: set[str]) -> None:
        """Tell each dropped field once."""
        for name in sorted(fields - self._told):
            gate = f", as feature gate {_GATES[name]} is off" if name in _GATES else ""
            then = "devices that need one are withdrawn instead" if name == _TAINTS else "devices are there without it"
            self._problems.notice(f"node {self._node}", f"the API server drops `{name}` of devices{gate}: {then}")
        self._told |= fields
        if _TAINTS in fields:
            self._keeps_taints = False

    def _uid_of_the_node(self, server: SliceServer) -> str:
        """Raises ApiError and _NoNodeError."""
        try:
            found = server.api.get(f"/api/v1/nodes/{self._node}", metadata_alone=True)
        except ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                raise _NoNodeError(f"{error}: set NODE_NAME if that is not the node's name") from error
            raise
        return str(found["metadata"].get("uid", ""))

    def _tell(self, of_watch: ApiError | None) -> None:
        """Report what is wrong, as one problem, or that nothing is."""
        watching = f"{of_watch}: {CURES.get(of_watch.status, 'trying again')}" if of_watch else ""
        errors: Sequence[str] = [self._error or watching, *(driver.error for driver in self._drivers.values())]
        if wrong := [error for error in errors if error]:
            self._problems.report(f"node {self._node}", f"ResourceSlices are not up to date: {'; '.join(wrong)}")
        else:
            self._problems.solve()


class _NoNodeError(Exception):
    """The Node does not exist."""
