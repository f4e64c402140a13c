"""4 096 devices on a node: the scan, the spool, and what it takes until the kubelet knows that one came or went.

The kubelet is one in Go. CPU time is that of the whole change: of the looks that see a node gone, of the scan after it,
and of all publications.
"""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from herds import DEVICES, GoKubelet, beside_go_kubelet, directory
from measure import figure, headline, median_seconds, megabytes, milliseconds, timing, use_byte_code
from polled import polled
from processes import cpu_seconds

from devherd import spool
from devherd._native import Scanner
from devherd.config.loader import load, resolve
from devherd.device_plugin.snapshot import Snapshot
from devherd.offers.device_plugin import resource_of
from devherd.proto import spool_pb2
from devherd.scanner.once import scan_once
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.testbed import Testbed

NAME = "example.com/many"
REPEATS = 7
SIMULATED: dict[str, Any] = {"simulated": [{"name": NAME, "count": DEVICES, "numa_nodes": 2}]}
GENERIC: dict[str, Any] = {"generic": [{"name": NAME, "groups": [{"paths": [{"path": "/dev/many/*"}]}]}]}


def main() -> None:
    """Print the figures."""
    headline(f"{DEVICES} devices of one resource")
    use_byte_code()
    with directory() as path:
        _make_nodes(SimulatedNode.create(path / "node", preset("generic")).root)
        for kind, config in (("simulated", SIMULATED), ("generic, a file each", GENERIC)):
            _scan(path, kind, config)
        _spool(path, _resource(path))
    asyncio.run(_changes())


def _make_nodes(root: Path) -> None:
    (root / "dev/many").mkdir()
    for number in range(DEVICES):
        (root / f"dev/many/d{number}").touch()


def _scan(path: Path, kind: str, options: dict[str, Any]) -> None:
    config = _config(path, options)
    scanner = Scanner(str(path / "node"), config.native_json())
    assert len(scanner.scan().devices) == DEVICES
    figure(f"scan, {kind}", milliseconds(median_seconds(scanner.scan, REPEATS)), "<= 300 ms", _floor(path, kind))
    poller, _ = polled(path / "node", config.native_json())
    figure(f"  health poll, {kind}", milliseconds(median_seconds(poller.poll, REPEATS)))
    figure("  scan to offers, in Python", milliseconds(median_seconds(lambda: scan_once(config), REPEATS)))


def _floor(path: Path, kind: str) -> str:
    if kind == "simulated":
        return ""
    nodes = path / "node/dev/many"
    took = median_seconds(lambda: [node.stat() for node in nodes.iterdir()], REPEATS)
    return f"listing and stat in Python take {milliseconds(took)}"


def _config(path: Path, options: dict[str, Any]) -> Any:
    file = path / "config.yaml"
    file.write_text(json.dumps(options))
    return resolve(load({"config": str(file), "host_root": str(path / "node")}, {}))


def _resource(path: Path) -> spool_pb2.Resource:
    return resource_of(scan_once(_config(path, GENERIC)).offers[0])


def _spool(path: Path, resource: spool_pb2.Resource) -> None:
    file = path / "many.pb"

    def write() -> None:
        file.unlink(missing_ok=True)
        spool.write(file, resource)

    figure("spool file written", milliseconds(median_seconds(write, REPEATS)), "", megabytes(file.stat().st_size))
    figure("spool file read", milliseconds(median_seconds(lambda: spool.read(file, spool_pb2.Resource), REPEATS)))
    made = median_seconds(lambda: Snapshot(resource).device_list, REPEATS)
    size = Snapshot(resource).device_list.ByteSize()
    figure("list for the kubelet made", milliseconds(made), "", f"{megabytes(size)} of the 4.2 MB that it takes")


async def _changes() -> None:
    async with beside_go_kubelet("generic", GENERIC) as (herd, kubelet):
        _make_nodes(herd.settings.host_root)
        began = await herd.start_herd()
        await kubelet.next_list(DEVICES)
        started = time.monotonic() - began
        await kubelet.rest(3)
        figure("start of `devherd run` to the list at the kubelet", milliseconds(started), "<= 1 s")
        nodes = herd.settings.host_root / "dev/many"
        floor = median_seconds(lambda: [node.stat() for node in nodes.iterdir()], REPEATS)
        for what, change in (("removed", Path.unlink), ("that is new", Path.touch)):
            names = (f"d{number}" if change is Path.unlink else f"e{number}" for number in range(REPEATS))
            before = _cpu_seconds(herd)
            changes = [await _change(kubelet, change, nodes / name) for name in names]
            timing(f"node {what} to the new list at the kubelet", changes, "<= 100 ms" if change is Path.unlink else "")
            for process, seconds in _cpu_seconds(herd).items():
                each = (seconds - before[process]) / REPEATS
                ratio = f"{each / floor:.1f}x listing and stat in Python, {milliseconds(floor)}"
                figure(f"  CPU time of {process} for it", milliseconds(each), "", ratio)


async def _change(kubelet: GoKubelet, change: Callable[[Path], object], node: Path) -> float:
    began = time.monotonic()
    change(node)
    await kubelet.next_list()
    took = time.monotonic() - began
    await kubelet.rest(1.5)
    return took


def _cpu_seconds(herd: Testbed) -> dict[str, float]:
    """Of the scanner and of the resource's child."""
    children = spool.read(herd.settings.children_file, spool_pb2.Children).children
    pids = {child.name: child.pid for child in children}
    return {name: cpu_seconds(pids[name]) for name in ("scanner", f"resource:{spool.key_of(NAME)}")}


if __name__ == "__main__":
    main()
