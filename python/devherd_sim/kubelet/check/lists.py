"""Lists of ListAndWatch: what has been seen of them, and what is wrong with one."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd_sim.kubelet.check.finding import Check

LATE_SECONDS = 1.0
MOST_REPEATED = 3
"""Lists in a row that say what the one before said; a plugin may repeat itself when something has happened."""
_HEALTH = ("Healthy", "Unhealthy")

Problem = tuple[Check, str]


@dataclass(slots=True)
class ListsSeen:
    """Of one plugin since it was connected; `connected_at` is on the monotonic clock."""

    connected_at: float
    first_after: float | None = None
    """Seconds from the connection to the first list."""
    last: Sequence[api.Device] = field(default_factory=list)
    repeated: int = 0
    """How many in a row said nothing new."""
    most_repeated: int = 0

    def take(self, devices: Sequence[api.Device], now: float) -> None:
        """Another one has come."""
        if self.first_after is None:
            self.first_after = now - self.connected_at
        else:
            self.repeated = self.repeated + 1 if list(devices) == list(self.last) else 0
            self.most_repeated = max(self.most_repeated, self.repeated)
        self.last = list(devices)

    def problems(self, now: float, numa_nodes: int) -> Iterator[Problem]:
        """What is amiss by now."""
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


def problems(devices: Sequence[api.Device], numa_nodes: int) -> Iterator[Problem]:
    """What is wrong with a list, on a machine with so many NUMA nodes; 1, the default, is any number."""
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
