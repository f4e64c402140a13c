"""Preferred allocation, as Python calls the scan core, against the vendors' own policies in Rust, at every size.

The vendors' programs are not at hand: their policies are restated (rust/tests/allocation/peers), without what else a
call of them does (NVIDIA's reads all topology through NVML each time). The sums of distances are compared as well.
"""

import json
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from measure import figure, headline, milliseconds

from devherd._native import Preference
from devherd.device_plugin.snapshot import preference
from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd.proto import spool_pb2

REPEATS = 20
CHECKOUT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Host:
    """Devices by their cards, and how far two devices are from each other, by card."""

    name: str
    policy: str
    cards: Sequence[int]
    distance: Callable[[int, int], int]
    peer_sizes: Sequence[int]

    def resource(self) -> spool_pb2.Resource:
        """The resource as the scanner writes it to the spool."""
        resource = spool_pb2.Resource(name="example.com/gpu", preferred=spool_pb2.ALIGNED)
        for number, card in enumerate(self.cards):
            distances = {str(other): self.distance(card, other) for other in set(self.cards)}
            resource.devices.add(id=f"gpu{number}", card=str(card), distances=distances)
        return resource

    def for_peers(self) -> str:
        """The host as rust/benches/vendor_policies.rs reads it."""
        distances = [[self.distance(one, other) for other in self.cards] for one in self.cards]
        return json.dumps([self.policy, list(self.cards), distances, list(self.peer_sizes)])


def main() -> None:
    """Print the figures."""
    headline("preferred allocation, aligned")
    hosts = list(_hosts())
    for host, theirs in zip(hosts, _peers(hosts), strict=True):
        ours, sums = _ours(host)
        all_calls = [seconds for times in ours.values() for seconds in times]
        size, slowest = max(
            ((size, statistics.median(times)) for size, times in ours.items()), key=lambda each: each[1]
        )
        worse = [size for size, (_, least) in theirs.items() if sums[size] > least]
        verdict = f"worse sums at sizes {worse}" if worse else "no sum is worse"
        figure(f"{host.name}: p50 of {len(all_calls)} calls", milliseconds(statistics.median(all_calls)))
        figure(f"{host.name}: longest call", milliseconds(max(all_calls)))
        figure(
            f"{host.name}: slowest size, {size}",
            milliseconds(slowest),
            "<= 1 ms",
            f"vendor's policy {_slowest(theirs, slowest)}; {verdict}",
        )


def _hosts() -> list[Host]:
    eight, sixteen, partitions = range(8), range(16), [number // 8 for number in range(63)]
    return [
        Host("8 NVIDIA GPUs, switches and NVLinks", "nvidia", eight, _linked, range(1, 9)),
        Host("16 NVIDIA GPUs, switches", "nvidia", sixteen, _switched, range(1, 17)),
        Host("16 GPUs, random distances", "nvidia", sixteen, _scattered, range(1, 17)),
        Host("8 AMD GPUs, two hives", "amd", eight, _hives, range(1, 9)),
        Host("63 AMD partitions, one hive", "amd", partitions, _one_hive, range(1, 64)),
        Host("63 AMD partitions, random distances", "amd", partitions, _scattered, range(1, 64)),
        Host("63 AMD partitions, two hives", "amd", partitions, _hives, range(1, 64)),
    ]


def _switched(one: int, other: int) -> int:
    """Two GPUs a switch, two switches a host bridge, two host bridges a socket: nvidia.md 3.8."""
    for share, score in ((2, 50), (4, 40), (8, 20)):
        if one // share == other // share:
            return 1860 - score
    return 1850


def _linked(one: int, other: int) -> int:
    """NVLinks along the edges of a cube, two of them within a half: DGX-1."""
    linked = (one ^ other).bit_count() == 1
    return _switched(one, other) - (100 if linked else 0) * (2 if one // 4 == other // 4 else 1)


def _one_hive(one: int, other: int) -> int:
    """All by XGMI, four GPUs a socket: amd.md 2.1."""
    return 10 + (10 if one == other else 20) + (10 if one // 4 == other // 4 else 20)


def _hives(one: int, other: int) -> int:
    """Two hives, with PCIe between them."""
    return _one_hive(one, other) + (0 if one // 4 == other // 4 else 30)


def _scattered(one: int, other: int) -> int:
    """Random distances, as on no host; cards are closest to themselves."""
    return 30 if one == other else random.Random(100 * min(one, other) + max(one, other)).randint(31, 1850)


def _ours(host: Host) -> tuple[dict[int, list[float]], dict[int, int]]:
    """Times of all calls, and the sum of distances, by size."""
    ready = preference(host.resource())
    ids = [f"gpu{number}" for number in range(len(host.cards))]
    times, sums = {}, {}
    for size in range(1, len(ids) + 1):
        request = api.ContainerPreferredAllocationRequest(available_deviceIDs=ids, allocation_size=size)
        times[size] = [_time(ready, request) for _ in range(REPEATS)]
        chosen = ready.choose(ids, [], size)
        cards = [host.cards[int(device_id.removeprefix("gpu"))] for device_id in chosen]
        sums[size] = sum(host.distance(one, other) for place, one in enumerate(cards) for other in cards[:place])
    return times, sums


def _time(ready: Preference, request: api.ContainerPreferredAllocationRequest) -> float:
    """As the resource child calls it, without gRPC."""
    began = time.perf_counter()
    ready.choose(request.available_deviceIDs, request.must_include_deviceIDs, request.allocation_size)
    return time.perf_counter() - began


def _peers(hosts: list[Host]) -> list[dict[int, tuple[float, int]]]:
    """By host and size: seconds, and the sum of distances."""
    command = ["cargo", "bench", "--quiet", "--no-default-features", "--bench", "vendor_policies"]
    questions = "".join(f"{host.for_peers()}\n" for host in hosts)
    done = subprocess.run(command, cwd=CHECKOUT, input=questions, stdout=subprocess.PIPE, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return [dict(zip(host.peer_sizes, answer, strict=True)) for host, answer in zip(hosts, answers, strict=True)]


def _slowest(theirs: dict[int, tuple[float, int]], ours: float) -> str:
    """The slowest size of the peer, and how many times ours that is."""
    size, (seconds, _) = max(theirs.items(), key=lambda answer: answer[1][0])
    times = seconds / ours
    return f"{milliseconds(seconds)} (size {size}), {times:.{0 if times > 10 else 1}f}x"


if __name__ == "__main__":
    main()
