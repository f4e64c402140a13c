"""devherd whole: whatever is killed, stopped, removed or restarted comes back by itself."""

import os
import signal
from pathlib import Path

import pytest

CRYPTO = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
CODEC = "fpga.intel.com/af-695.f7d.aVKNtusxV3qMNmj5-qCB9vffQFy9es9yIvFEsLk6zRg"


async def both_registered(stage, since: int = 0) -> None:
    for name in (CRYPTO, CODEC):
        await stage.kubelet.until_registered(name, since=since, within=30)
        await stage.kubelet.until_allocatable(name, 1, within=30)
    # Scanner and exporter follow the resource children. Signals to the process 0 would go to the tests themselves.
    await stage.until(lambda: all(child.pid for child in stage.children().values()), "every child runs")


async def test_every_resource_is_registered_and_its_devices_are_allocated(stage):
    """The main job: what is on the node reaches a container, under the vendor plugin's names."""
    await both_registered(stage)

    allocation = await stage.kubelet.allocate(CODEC, 1, pod="train")

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


async def test_a_kubelet_restart_is_survived_with_allocations(stage):
    """The kubelet cleans the directory and forgets its plugins; each registers again on a fresh socket."""
    await both_registered(stage)
    await stage.kubelet.allocate(CRYPTO, 1)
    for _ in range(3):
        mark = stage.kubelet.events.mark()
        await stage.kubelet.restart()
        await both_registered(stage, mark)

    assert stage.kubelet.in_use(CRYPTO) == {"intel-fpga-port.0"}
    assert not any(child.restarts for child in stage.children().values())


async def test_a_kubelet_that_comes_late_is_waited_for(stage):
    """Down for a while, then there: no restart of devherd is needed."""
    await both_registered(stage)
    await stage.kubelet.stop()
    await stage.until(lambda: stage.log.count("waiting for the kubelet") >= 2, "both children wait")

    mark = stage.kubelet.events.mark()
    await stage.kubelet.start()

    await both_registered(stage, mark)


async def test_a_removed_socket_is_replaced(stage):
    """Somebody cleans the plugin directory under a running plugin."""
    await both_registered(stage)
    mark = stage.kubelet.events.mark()

    for path in stage.settings.plugin_directory.glob("devherd-*.sock"):
        path.unlink()

    await both_registered(stage, mark)


async def test_a_plugin_directory_that_is_removed_and_made_again_is_used_again(stage):
    """As when a node is reset under devherd."""
    await both_registered(stage)
    await stage.kubelet.stop(clean=True)
    for path in stage.settings.plugin_directory.iterdir():
        path.unlink()
    stage.settings.plugin_directory.rmdir()

    mark = stage.kubelet.events.mark()
    await stage.kubelet.start()

    await both_registered(stage, mark)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
async def test_a_killed_resource_child_registers_again_and_the_other_is_not_disturbed(stage, number):
    """One process per resource type: a crash costs only its own."""
    await both_registered(stage)
    other = stage.child_of(CODEC).pid
    mark = stage.kubelet.events.mark()

    os.kill(stage.child_of(CRYPTO).pid, number)

    await stage.kubelet.until_registered(CRYPTO, since=mark)
    await stage.kubelet.until_allocatable(CRYPTO, 1)
    assert stage.child_of(CODEC).pid == other
    assert stage.kubelet.events.since(mark, resource=CODEC) == []
    await stage.until(lambda: stage.child_of(CRYPTO).restarts["signal"] == 1, "the restart is counted")


@pytest.mark.parametrize("name", ["scanner", "exporter", "resource"])
async def test_a_stopped_child_is_replaced(stage, name):
    """A child without heartbeat is as good as dead: SIGSTOP, a deadlock, an endless loop."""
    await both_registered(stage)
    child = stage.child_of(CRYPTO) if name == "resource" else stage.children()[name]

    os.kill(child.pid, signal.SIGSTOP)

    await stage.until(lambda: stage.children()[child.name].pid not in (0, child.pid), "a new process", timeout=40)
    assert stage.children()[child.name].restarts["heartbeat"] == 1
    await stage.kubelet.until_allocatable(CRYPTO, 1)


async def test_a_killed_scanner_costs_nothing_and_sees_devices_again(stage):
    """Resource children serve their last snapshot meanwhile."""
    await both_registered(stage)
    mark = stage.kubelet.events.mark()
    before = stage.children()["scanner"].pid

    os.kill(before, signal.SIGKILL)
    await stage.until(lambda: stage.children()["scanner"].pid not in (0, before), "a new scanner")
    assert await stage.kubelet.allocate(CRYPTO, 1) is not None
    stage.node.remove_node("intel-fpga-port.1")

    await stage.kubelet.until_allocatable(CODEC, 0)
    assert stage.kubelet.events.since(mark, "register-called") == []


async def test_children_end_with_a_killed_supervisor_and_the_next_start_is_clean(stage):
    """However the supervisor dies, nobody serves without it."""
    await both_registered(stage)
    pids = [child.pid for child in stage.children().values()]

    await stage.stop_herd(signal.SIGKILL)
    await stage.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "no child is left")
    mark = stage.kubelet.events.mark()
    await stage.start_herd()

    await both_registered(stage, mark)


async def test_sigterm_ends_everything_and_leaves_nothing_in_the_plugin_directory(stage):
    """Own sockets are unlinked, nobody else's."""
    await both_registered(stage)
    (stage.settings.plugin_directory / "foreign.sock").touch()
    pids = [child.pid for child in stage.children().values()]

    assert await stage.stop_herd() == 0

    left = sorted(path.name for path in stage.settings.plugin_directory.iterdir())
    assert left == ["foreign.sock", "kubelet.sock", "kubelet_internal_checkpoint"]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
