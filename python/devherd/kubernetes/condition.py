"""The condition `DevicesUnhealthy` of the node.

Its times work as in node-problem-detector (pkg/exporters/k8sexporter/condition/manager.go): the heartbeat time changes
with each write, at least every five minutes; the transition time changes with the status.
"""

import random
import time
from datetime import datetime

from devherd.api_server import NO_ACCESS, Api, ApiError, Json, RateLimit
from devherd.backoff import Backoff
from devherd.instance.inventory_json import host_name
from devherd.instance.read import read_instance
from devherd.kubernetes.event_series import moment
from devherd.kubernetes.node_watch import NodeWatch, SeenNode
from devherd.kubernetes.objects import Reasons, reasons_of, with_lost
from devherd.kubernetes.problems import Problems
from devherd.reasons.registry import CORDONED
from devherd.settings import Settings
from devherd.spool import Identity, identity_of

CONDITION = "DevicesUnhealthy"
"""True is a problem, as for the conditions of node-problem-detector."""
BURST, REFILL_SECONDS = 5, 10.0
"""Writes allowed at once, and the time until one more is allowed: limits the writes for a flapping device."""
_ECHO_SECONDS = 2.0
"""Time until the watch shows a write: until then it may show an older condition."""
_NAMED = 10
_CURES = {
    401: "the token is not accepted",
    403: "add the component deploy/kubernetes/components/node-condition",
}


class NodeCondition:
    """Keeps the condition up to date; `api` and `watch` are None without access to an API server."""

    def __init__(self, settings: Settings, api: Api | None, watch: NodeWatch | None, problems: Problems) -> None:
        self._settings = settings
        self._beat_seconds = settings.waits.condition_beat
        self._api = api
        self._watch = watch
        self._problems = problems
        self._backoff = Backoff(1.0, 60.0, jitter=0.2)
        self._limit = RateLimit(BURST, REFILL_SECONDS)
        self._due_at = 0.0
        self._beat_at: float | None = None
        """Monotonic second of the next heartbeat; None before the node was seen."""
        self._sent: Json | None = None
        """The condition that was written last, while the watch may show an older one."""
        self._sent_at = 0.0
        self._seen_then: SeenNode | None = None
        self._offers: tuple[Identity | None, Identity | None] | None = None
        self._reasons: Reasons | None = None
        """None before the first offers."""

    def tend(self) -> None:
        """Write the condition if it differs, is missing, or its heartbeat is due."""
        offers = identity_of(self._settings.offers_file), identity_of(self._settings.lost_file)
        if offers[0] is not None and offers != self._offers:
            herd = read_instance(self._settings)
            self._offers, self._reasons = offers, with_lost(reasons_of(herd.resources), herd.lost)
        if self._api is None or self._watch is None:
            self._report(NO_ACCESS)
        elif (seen := self._watch.seen) is None or seen.node is None:
            if self._watch.error is not None:
                self._report(self._watch.error)
        elif self._reasons is not None and time.monotonic() >= self._due_at:
            self._keep(self._api, seen, condition(self._reasons))

    def _keep(self, api: Api, seen: SeenNode, wanted: Json) -> None:
        there = self._there(seen)
        is_equal = there is not None and all(there.get(key) == value for key, value in wanted.items())
        if self._beat_at is None:
            self._beat_at = time.monotonic() + (self._beat_seconds - _age(there, self._beat_seconds) if there else 0)
        if (is_equal and time.monotonic() < self._beat_at) or not self._limit.allows():
            return
        now = moment(time.time())
        turned = there.get("lastTransitionTime") if there and there.get("status") == wanted["status"] else None
        times = {"lastHeartbeatTime": now, "lastTransitionTime": turned or now}
        try:
            api.patch(f"/api/v1/nodes/{host_name()}/status", {"status": {"conditions": [wanted | times]}})
        except ApiError as error:
            self._due_at = time.monotonic() + self._backoff.seconds()
            self._report(error)
            return
        self._sent, self._sent_at, self._seen_then = wanted | times, time.monotonic(), seen
        self._beat_at = self._sent_at + self._beat_seconds * random.uniform(1.0, 1.1)  # noqa: S311 - chance, not secrecy
        self._backoff.reset()
        self._problems.solve()

    def _there(self, seen: SeenNode) -> Json | None:
        """The condition that the node has; None if it has none."""
        if self._sent and (seen is self._seen_then or time.monotonic() < self._sent_at + _ECHO_SECONDS):
            return self._sent
        return condition_of(seen)

    def _report(self, error: ApiError) -> None:
        cure = _CURES.get(error.status, "trying again")
        self._problems.report(f"node {host_name()}", f"the condition {CONDITION} cannot be written: {error}: {cure}")


def condition(reasons: Reasons) -> Json:
    """The condition for these reasons, without its times. A device that is only cordoned is well."""
    ill = [
        f"{name} {device}"
        for name, devices in sorted(reasons.items())
        for device, words in sorted(devices.items())
        if words != [CORDONED]
    ]
    others = f" and {len(ill) - _NAMED} more" if len(ill) > _NAMED else ""
    return {
        "type": CONDITION,
        "status": "True" if ill else "False",
        "reason": "DevicesUnhealthy" if ill else "DevicesHealthy",
        "message": ", ".join(ill[:_NAMED]) + others if ill else "every device is Healthy",
    }


def condition_of(seen: SeenNode) -> Json | None:
    """The condition that the node has; None if it has none."""
    conditions = (seen.node or {}).get("status", {}).get("conditions") or []
    return next((each for each in conditions if each.get("type") == CONDITION), None)


def no_condition() -> Json:
    """The patch of the node's status that removes the condition."""
    return {"status": {"conditions": [{"type": CONDITION, "$patch": "delete"}]}}


def _age(there: Json, most: float) -> float:
    """Seconds since the last heartbeat, between 0 and `most`: clocks may differ."""
    try:
        age = time.time() - datetime.fromisoformat(there["lastHeartbeatTime"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return most
    return min(max(age, 0.0), most)
