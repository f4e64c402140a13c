"""Problems of plugins, a remedy for each, and the checks of device lists."""

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from devherd.errors import UsageError
from devherd.proto import deviceplugin_v1beta1_pb2 as api

Check = Literal[
    "register-refused",
    "endpoint-with-a-slash",
    "same-socket-again",
    "two-plugins",
    "duplicate-id",
    "empty-id",
    "unknown-health",
    "no-devices",
    "bad-numa-node",
    "late-list",
    "repeated-list",
    "slow-answer",
    "allocate-fails",
    "empty-answer",
    "wrong-number-of-answers",
    "bad-device",
    "bad-mount",
    "bad-cdi-name",
    "unknown-id-accepted",
    "bad-preference",
    "pre-start-fails",
    "not-registered-again",
    "gone",
]

CURES: dict[Check, str] = {
    "register-refused": "correct the request to Register: version v1beta1, a resource name like example.com/gpu, a"
    " socket that answers before Register is called",
    "endpoint-with-a-slash": "register with the name of the socket in device-plugins, not with its path",
    "same-socket-again": "end ListAndWatch, or serve on another socket, before Register is called again: Kubernetes"
    " 1.36 then reads both streams, 1.37 refuses the call and does not notice that plugin's end",
    "two-plugins": "end the older plugin when the newer one has registered: in Kubernetes 1.36 the end of either one"
    " sets the resource to 0, and only the latest list counts",
    "duplicate-id": "list each device once: the kubelet counts a repeated id once",
    "empty-id": "give each device an id",
    "unknown-health": "write `Healthy` or `Unhealthy`: the kubelet treats any other word as Unhealthy",
    "no-devices": "list the devices, or do not register: the node reports a capacity of 0",
    "bad-numa-node": "list NUMA nodes that the machine has, or omit topology",
    "late-list": "send the list as soon as ListAndWatch is called: until then no pod gets a device",
    "repeated-list": "send a list only when it has changed: the kubelet writes its checkpoint for each",
    "slow-answer": "answer from memory: the kubelet has no deadline and admits pods one by one",
    "allocate-fails": "answer Allocate for each Healthy device: a pod that was assigned it is rejected permanently",
    "empty-answer": "answer with nodes, mounts, variables, annotations or CDI devices: a container gets nothing else",
    "wrong-number-of-answers": "answer each container_request with one container_response",
    "bad-device": "use absolute paths, and permissions of `r`, `w` and `m`",
    "bad-mount": "use absolute paths: the runtime refuses the container otherwise",
    "bad-cdi-name": "use qualified names, like vendor.com/class=name",
    "unknown-id-accepted": "refuse ids that are not in the list, with INVALID_ARGUMENT",
    "bad-preference": "prefer exactly the requested number of available devices, including the required ones",
    "pre-start-fails": "answer PreStartContainer within 30 s, or do not request it in the options",
    "not-registered-again": "watch device-plugins/kubelet.sock, and serve and register again when it is recreated:"
    " the kubelet has removed the plugin's socket",
    "gone": "keep ListAndWatch open: the kubelet sets the resource to 0 when it ends",
}


def require_check(name: str) -> Check:
    """The check with this name. Raises UsageError if there is none."""
    for check in CURES:
        if check == name:
            return check
    close = difflib.get_close_matches(name, CURES, n=1)
    cure = f"did you mean `{close[0]}`?" if close else f"those are {', '.join(CURES)}"
    raise UsageError(f"`{name}` is no finding", "`check` has none of that name", cure)


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem of a plugin."""

    resource: str
    check: Check
    problem: str

    @property
    def cure(self) -> str:
        """The remedy."""
        return CURES[self.check]

    def as_json(self) -> dict[str, str]:
        """The problem as JSON."""
        return {"resource": self.resource, "check": self.check, "problem": self.problem, "cure": self.cure}


LATE_SECONDS = 1.0
MOST_REPEATED = 3
"""From this number on, repetitions of a list in a row are a problem; a plugin may repeat a list after an event."""
_HEALTH = ("Healthy", "Unhealthy")

Problem = tuple[Check, str]


@dataclass(slots=True)
class ListsSeen:
    """The lists of a plugin since its connection. `connected_at`: monotonic time in seconds."""

    connected_at: float
    first_after: float | None = None
    """Seconds from the connection to the first list."""
    last: Sequence[api.Device] = field(default_factory=list)
    repeated: int = 0
    """Number of times that the last list was repeated."""
    most_repeated: int = 0

    def take(self, devices: Sequence[api.Device], now: float) -> None:
        """Record a list that was received at monotonic time `now`."""
        if self.first_after is None:
            self.first_after = now - self.connected_at
        else:
            self.repeated = self.repeated + 1 if _sorted(devices) == _sorted(self.last) else 0
            self.most_repeated = max(self.most_repeated, self.repeated)
        self.last = list(devices)

    def problems(self, now: float, numa_nodes: int) -> Iterator[Problem]:
        """Yields the problems of the lists so far."""
        if self.first_after is None:
            if now - self.connected_at > LATE_SECONDS:
                yield "late-list", f"no list of devices {now - self.connected_at:.1f} s after it was connected"
            return
        if self.first_after > LATE_SECONDS:
            yield "late-list", f"the first list came {self.first_after:.1f} s after it was connected"
        if self.most_repeated >= MOST_REPEATED:
            yield "repeated-list", f"the same list came {self.most_repeated + 1} times in a row"
        if not self.last:
            yield "no-devices", "its list is empty"
        yield from problems(self.last, numa_nodes)


def _sorted(devices: Sequence[api.Device]) -> list[bytes]:
    """The devices in a fixed order: plugins in Go send maps in any order."""
    return sorted(device.SerializeToString(deterministic=True) for device in devices)


def problems(devices: Sequence[api.Device], numa_nodes: int) -> Iterator[Problem]:
    """Yields the problems of a list. With `numa_nodes` of 1, the default, NUMA nodes have no upper limit."""
    for device_id, times in Counter(device.ID for device in devices).items():
        if times > 1:
            yield "duplicate-id", f"id `{device_id}` is listed {times} times"
        if not device_id:
            yield "empty-id", "a device has an empty id"
    for health in sorted({device.health for device in devices} - set(_HEALTH)):
        ids = [device.ID for device in devices if device.health == health]
        yield "unknown-health", f"health `{health}` of {_named(ids)}"
    for node in sorted({node.ID for device in devices for node in device.topology.nodes}):
        if node < 0 or node >= numa_nodes > 1:
            ids = [device.ID for device in devices if node in {each.ID for each in device.topology.nodes}]
            there = f", where there are 0 to {numa_nodes - 1}" if numa_nodes > 1 else ""
            yield "bad-numa-node", f"NUMA node {node} of {_named(ids)}{there}"


def _named(ids: Sequence[str]) -> str:
    others = len(ids) - 1
    return f"`{ids[0]}`" + (f" and {others} other{'s' * (others > 1)}" if others else "")
