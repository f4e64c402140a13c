"""Time from an event to the kubelet's list: each source that reports events, and 1 024 devices that fail at once.

Each GPU is a resource of its own, so that no list waits for the pause after the one before it. The floor is a plugin of
one process that sends another list at a signal.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence

import bare_plugin
from herds import TYPES, small_testbed
from measure import figure, headline, milliseconds, percentile, timing, use_byte_code

from devherd.health.cordon import Cordons
from devherd.inventory import DeviceKey, key_of
from devherd.proto import spool_pb2
from devherd.spool import read
from devherd_sim.node import faults
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.spec import NodeSpec
from devherd_sim.testbed import Testbed

GPUS = TYPES
ROUNDS = 9
"""Failures of each GPU: 216 events per source."""
PAUSE_SECONDS = 0.3
"""A resource child rests for a quarter of a second between two lists."""
HEALTH = {"poll": "250ms", "recover_after": 1, "flapping": False, "breaker": False}
MANY = [f"example.com/many-{number}" for number in range(4)]
OF_EACH = 256
"""1 024 devices in all: so many functions has the largest node."""
REPEATS = 7

Act = Callable[[Testbed, int], None]


def main() -> None:
    """Print the figures."""
    headline(f"from an event to the kubelet's list, {GPUS * ROUNDS} events of each kind")
    use_byte_code()
    asyncio.run(_one_by_one())
    asyncio.run(_at_once())


async def _one_by_one() -> None:
    async with small_testbed(NodeSpec(nvidia=NvidiaSpec(gpus=GPUS)), {}) as herd:
        addresses = herd.node.nvidia.addresses()
        rules = [{"match": {"pci_address": address}, "name": _name(at)} for at, address in enumerate(addresses)]
        herd.configure({"health": HEALTH, "resources": rules})
        floor = await _floor(herd)
        _print("floor: a bare plugin's list at a signal", floor, floor)
        await herd.start_herd()
        for at in range(GPUS):
            await herd.kubelet.until_allocatable(_name(at), 1, within=60)
        await _until_scanner_listens(herd)
        keys = _keys(herd)
        cordons = Cordons(herd.settings.findings_directory)

        def fault(name: str, *words: str) -> tuple[Act, Act]:
            return (
                lambda herd, at: faults.inject(herd.node, name, addresses[at], *words),
                lambda herd, at: faults.clear(herd.node, name, addresses[at], *words),
            )

        nodes = (
            lambda herd, at: faults.inject(herd.node, "node", f"nvidia{at}"),
            lambda herd, at: faults.clear(herd.node, "node", f"nvidia{at}"),
        )
        cordon = (
            lambda _, at: _cordon(cordons, [keys[_name(at)]]),
            lambda _, at: _uncordon(cordons, [keys[_name(at)]]),
        )
        for what, (fail, heal) in {
            "uevent (ERROR_EVENT)": fault("recovery"),
            "kernel log (Xid 79)": fault("xid"),
            "inotify (a node is removed)": nodes,
            "findings file (cordon)": cordon,
        }.items():
            _print(what, await _latencies(herd, fail, heal), floor)


def _print(what: str, seconds: Sequence[float], floor: Sequence[float]) -> None:
    p50, p99 = (percentile(seconds, share) for share in (0.5, 0.99))
    over = f"{p50 / percentile(floor, 0.5):.1f}x, {p99 / percentile(floor, 0.99):.1f}x the floor"
    figure(
        f"{what}: p50, p99", f"{milliseconds(p50)}, {milliseconds(p99)}", "" if seconds is floor else "<= 50 ms", over
    )


async def _floor(herd: Testbed) -> list[float]:
    events, name = herd.kubelet.events, "example.com/bare"
    mark = events.mark()
    with bare_plugin.started(herd.settings.kubelet_dir, name) as plugin:
        await events.wait("list", name, since=mark)
        found = []
        for _ in range(GPUS * ROUNDS):
            await asyncio.sleep(0.01)
            mark, began = events.mark(), time.monotonic()
            os.kill(plugin.pid, signal.SIGUSR1)
            found.append((await events.wait("list", name, since=mark)).at - began)
    return found


async def _latencies(herd: Testbed, fail: Act, heal: Act) -> list[float]:
    found = []
    for _ in range(ROUNDS):
        for at in range(GPUS):
            mark, began = herd.kubelet.events.mark(), time.monotonic()
            fail(herd, at)
            found.append((await herd.kubelet.events.wait("list", _name(at), since=mark)).at - began)
        await asyncio.sleep(PAUSE_SECONDS)
        for at in range(GPUS):
            heal(herd, at)
        for at in range(GPUS):
            await herd.kubelet.until_allocatable(_name(at), 1, within=30)
        await asyncio.sleep(PAUSE_SECONDS)
    return found


async def _at_once() -> None:
    config = {"health": HEALTH, "simulated": [{"name": name, "count": OF_EACH} for name in MANY]}
    async with small_testbed("generic", config) as herd:
        await herd.start_herd()
        for name in MANY:
            await herd.kubelet.until_allocatable(name, OF_EACH, within=60)
        await _until_scanner_listens(herd)
        keys = [key for offer in _offers(herd) for key in map(key_of, offer.devices)]
        cordons = Cordons(herd.settings.findings_directory)
        seconds, messages = [], []
        for _ in range(REPEATS):
            await asyncio.sleep(1)
            mark, began = herd.kubelet.events.mark(), time.monotonic()
            _cordon(cordons, keys)
            for name in MANY:
                await herd.kubelet.until_allocatable(name, 0, within=30)
            lists = herd.kubelet.events.since(mark, "list")
            seconds.append(max(event.at for event in lists) - began)
            await asyncio.sleep(1)
            messages.append(len(herd.kubelet.events.since(mark, "list")) / len(MANY))
            _uncordon(cordons, keys)
            for name in MANY:
                await herd.kubelet.until_allocatable(name, OF_EACH, within=30)
        timing(f"{len(keys)} devices fail at once, to the last of {len(MANY)} lists", seconds, "<= 100 ms")
        figure("  lists a resource", f"{max(messages):.2f}", "1")


async def _until_scanner_listens(herd: Testbed) -> None:
    """Wait for the scanner: the first scan does not listen for events."""
    await herd.child("scanner")
    await asyncio.sleep(2)


def _name(at: int) -> str:
    return f"example.com/gpu-{at}"


def _offers(herd: Testbed) -> list[spool_pb2.Offer]:
    return list(read(herd.settings.offers_file, spool_pb2.Offers).offers)


def _keys(herd: Testbed) -> dict[str, DeviceKey]:
    return {offer.name: key_of(offer.devices[0]) for offer in _offers(herd)}


def _cordon(cordons: Cordons, keys: Sequence[DeviceKey]) -> None:
    with cordons.changing() as changes:
        for key in keys:
            changes.cordon(key, "bench", "bench")


def _uncordon(cordons: Cordons, keys: Sequence[DeviceKey]) -> None:
    with cordons.changing() as changes:
        for key in keys:
            changes.uncordon(key)


if __name__ == "__main__":
    main()
