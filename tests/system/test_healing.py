"""devherd whole: whatever is killed, stopped, removed or restarted comes back by itself."""

import asyncio
import os
import signal
import time
from http import HTTPStatus
from pathlib import Path

import pytest
from outside import devherd, get

from devherd.instance.read import read_instance
from devherd_sim.node import faults

CRYPTO = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
CODEC = "fpga.intel.com/af-695.f7d.aVKNtusxV3qMNmj5-qCB9vffQFy9es9yIvFEsLk6zRg"


async def both_registered(testbed, since: int = 0) -> None:
    for name in (CRYPTO, CODEC):
        await testbed.kubelet.until_registered(name, since=since, within=30)
        await testbed.kubelet.until_allocatable(name, 1, within=30)
    # Scanner and exporter follow the resource children. Signals to the process 0 would go to the tests themselves.
    await testbed.until(testbed.runs, "every child runs")


async def test_every_resource_is_registered_and_its_devices_are_allocated(testbed):
    """The main job: what is on the node reaches a container, under the vendor plugin's names."""
    await both_registered(testbed)

    allocation = await testbed.kubelet.allocate(CODEC, 1, pod="train")

    assert allocation.device_ids == ("intel-fpga-port.1",)
    assert allocation.answer() == {
        "devices": [
            {
                "host_path": "/dev/intel-fpga-port.1",
                "container_path": "/dev/intel-fpga-port.1",
                "permissions": "rw",
            }
        ],
        "mounts": [],
        "envs": {},
        "annotations": {},
        "cdi_devices": [],
    }


async def test_a_kubelet_restart_is_survived_with_allocations(testbed):
    """The kubelet cleans the directory and forgets its plugins; each registers again on a fresh socket."""
    await both_registered(testbed)
    await testbed.kubelet.allocate(CRYPTO, 1)
    for _ in range(3):
        mark = testbed.kubelet.events.mark()
        await testbed.kubelet.restart()
        await both_registered(testbed, mark)

    assert testbed.kubelet.in_use(CRYPTO) == {"intel-fpga-port.0"}
    assert not any(child.restarts for child in testbed.children().values())


async def test_a_kubelet_that_comes_late_is_waited_for(testbed):
    """Down for a while, then there: no restart of devherd is needed."""
    await both_registered(testbed)
    await testbed.kubelet.stop()
    await testbed.until(lambda: "the kubelet is away" in testbed.log, "the children wait")

    mark = testbed.kubelet.events.mark()
    await testbed.kubelet.start()

    await both_registered(testbed, mark)


async def test_a_removed_socket_is_replaced(testbed):
    """Somebody cleans the plugin directory under a running plugin."""
    await both_registered(testbed)
    mark = testbed.kubelet.events.mark()

    for path in testbed.settings.plugin_directory.glob("devherd-*.sock"):
        path.unlink()

    await both_registered(testbed, mark)


async def test_a_plugin_directory_that_is_removed_and_made_again_is_used_again(testbed):
    """As when a node is reset under devherd."""
    await both_registered(testbed)
    await testbed.kubelet.stop(clean=True)
    for path in testbed.settings.plugin_directory.iterdir():
        path.unlink(missing_ok=True)  # the children remove their own at the same time
    testbed.settings.plugin_directory.rmdir()

    mark = testbed.kubelet.events.mark()
    await testbed.kubelet.start()

    await both_registered(testbed, mark)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
async def test_a_killed_resource_child_registers_again_and_the_other_is_not_disturbed(testbed, number):
    """One process per resource type: a crash costs only its own."""
    await both_registered(testbed)
    other = (await testbed.child_of(CODEC)).pid
    killed = await testbed.child_of(CRYPTO)
    mark = testbed.kubelet.events.mark()

    os.kill(killed.pid, number)

    await testbed.kubelet.until_registered(CRYPTO, since=mark)
    await testbed.kubelet.until_allocatable(CRYPTO, 1)
    assert (await testbed.child_of(CODEC)).pid == other
    assert testbed.kubelet.events.since(mark, resource=CODEC) == []
    await testbed.until(lambda: testbed.children()[killed.name].restarts["signal"] == 1, "the restart is counted")


@pytest.mark.on("fpga-opae-2", {}, silence=4.0)
@pytest.mark.parametrize("name", ["scanner", "exporter", "resource"])
async def test_a_stopped_child_is_replaced(testbed, name):
    """A child without heartbeat is as good as dead: SIGSTOP, a deadlock, an endless loop."""
    await both_registered(testbed)
    child = await (testbed.child_of(CRYPTO) if name == "resource" else testbed.child(name))

    os.kill(child.pid, signal.SIGSTOP)

    await testbed.until(lambda: testbed.children()[child.name].pid not in (0, child.pid), "a new process", timeout=40)
    assert testbed.children()[child.name].restarts["heartbeat"] == 1
    await testbed.kubelet.until_allocatable(CRYPTO, 1)


async def test_a_killed_scanner_costs_nothing_and_sees_devices_again(testbed):
    """Resource children serve their last snapshot meanwhile."""
    await both_registered(testbed)
    mark = testbed.kubelet.events.mark()
    before = (await testbed.child("scanner")).pid

    os.kill(before, signal.SIGKILL)
    await testbed.until(lambda: testbed.children()["scanner"].pid not in (0, before), "a new scanner")
    assert await testbed.kubelet.allocate(CRYPTO, 1) is not None
    faults.inject(testbed.node, "node", "intel-fpga-port.1")

    await testbed.kubelet.until_allocatable(CODEC, 0)
    assert testbed.kubelet.events.since(mark, "register-called") == []


async def test_children_end_with_a_killed_supervisor_and_the_next_start_is_clean(testbed):
    """However the supervisor dies, nobody serves without it."""
    await both_registered(testbed)
    pids = [child.pid for child in testbed.children().values()]

    await testbed.stop_herd(signal.SIGKILL)
    await testbed.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "no child is left")
    mark = testbed.kubelet.events.mark()
    await testbed.start_herd()

    await both_registered(testbed, mark)


async def test_sigterm_ends_everything_and_leaves_nothing_in_the_plugin_directory(testbed):
    """Own sockets are unlinked, nobody else's."""
    await both_registered(testbed)
    (testbed.settings.plugin_directory / "foreign.sock").touch()
    pids = [child.pid for child in testbed.children().values()]

    assert await testbed.stop_herd() == 0

    left = sorted(path.name for path in testbed.settings.plugin_directory.iterdir())
    assert left == ["foreign.sock", "kubelet.sock", "kubelet_internal_checkpoint"]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


async def test_a_supervisor_that_hangs_is_noticed_by_whoever_asks(testbed):
    """It replaces no child any more: probes, page, metrics and commands must not go on showing what was."""
    await both_registered(testbed)
    child = await testbed.child_of(CRYPTO)
    supervisor = testbed.herd.pid
    try:
        os.kill(supervisor, signal.SIGSTOP)
        os.kill(child.pid, signal.SIGKILL)
        since = time.monotonic()

        async def is_noticed() -> bool:
            return (await get(testbed, "/healthz"))[0] == HTTPStatus.SERVICE_UNAVAILABLE

        while not await is_noticed():
            assert time.monotonic() - since < 60
            await asyncio.sleep(0.1)
        await testbed.until(lambda: child.name in read_instance(testbed.settings).silent, "its child is silent, too")

        assert (await get(testbed, "/healthz"))[1].startswith("supervisor: no heartbeat for more than 10 s")
        assert (await get(testbed, "/readyz"))[1] == f"{CRYPTO}: its process gives no sign of life\n"
        shown = devherd("status", "--fail-on-problem", f"--run-dir={testbed.settings.run_dir}")
        assert shown.returncode == 1
        assert f"the supervisor, process {supervisor}, hangs" in shown.stdout
    finally:
        os.kill(supervisor, signal.SIGCONT)
    await both_registered(testbed)
    await testbed.until(lambda: not read_instance(testbed.settings).silent, "nothing is silent any more")
