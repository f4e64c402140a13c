"""From the device plugin to DRA and back, with devherd whole: refused while a pod holds a device, and then clean."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import urllib.request
from dataclasses import replace

import pytest

from devherd import spool
from devherd.instance.read import read_instance
from devherd.proto import spool_pb2
from devherd_sim.testbed import free_port

GPU, DRIVER = "amd.com/gpu", "gpu.amd.com"
PLUGIN, DRA = {"front_end": "device_plugin"}, {"front_end": "dra"}


def states(testbed):
    """The drivers that are registered, by process."""
    found = spool.read_all(testbed.settings.dra_directory, spool_pb2.DraState)
    return {letter: [driver.name for driver in state.drivers if driver.registered] for letter, state in found}


def offers(testbed):
    """The front ends of all offers, and the files of resource children."""
    found = spool.read_or_empty(testbed.settings.offers_file, spool_pb2.Offers).offers
    return {offer.front_end for offer in found}, spool.keys_in(testbed.settings.resources_directory)


async def by_dra(testbed):
    """Until the kubelet has the driver from both processes."""
    await testbed.until(lambda: states(testbed) == {"a": [DRIVER], "b": [DRIVER]}, "both have registered")


async def page(testbed, path):
    """What it says over HTTP."""

    def ask():
        with urllib.request.urlopen(f"http://{testbed.settings.listen}{path}", timeout=10) as answer:
            return answer.read().decode()

    return await asyncio.to_thread(ask)


async def devherd(testbed, *words):
    """A command of a user; its exit code, stdout and stderr."""
    command = [sys.executable, "-m", "devherd", *words, "--run-dir", str(testbed.settings.run_dir)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


async def refused(testbed, *words):
    """The exit code of a start that is refused, as a user has it."""
    kept, testbed.command = testbed.command, (sys.executable, "-m", "devherd")
    await testbed.start_herd(*words)
    testbed.command = kept
    return await asyncio.wait_for(testbed.herd.wait(), 30)


@pytest.mark.on("amd-1", PLUGIN)
async def test_a_reload_to_dra_is_refused_with_the_pods_and_nothing_changes(testbed):
    """Log, status, page, metric and exit code say so; end, and start it with the other one, is the cure."""
    await testbed.kubelet.until_allocatable(GPU, 1)
    await testbed.kubelet.allocate(GPU, 1, pod="train")
    before = (await testbed.child_of(GPU)).pid
    testbed.configure(DRA)
    code, _, stderr = await devherd(testbed, "reload", "--config", str(testbed.settings.config_path))
    why = (
        "`front_end` stays `device_plugin` while devherd runs — it has 1 device here, held by default/train"
        f" ({GPU}) — end these pods, end devherd, and start it with `front_end: dra`"
    )
    assert code == 1
    assert why in stderr
    assert f"configuration not reloaded, the old one stays: {why}" in testbed.log
    await testbed.until(lambda: read_instance(testbed.settings).configuration.refusal == why, "status says so")
    assert "devherd_config_reload_failures_total 1.0" in await page(testbed, "/metrics")
    assert "front_end" in await page(testbed, "/")
    assert (await testbed.child_of(GPU)).pid == before
    assert offers(testbed) == ({"device-plugin"}, {"amd.com_gpu"})
    assert not any(name.startswith("dra:") for name in testbed.children())


@pytest.mark.on("amd-1", PLUGIN)
async def test_a_start_with_dra_waits_for_the_pods_of_the_device_plugin_to_end(testbed):
    """It ends with the reason, and a service manager starts it again; the first start without such a pod serves."""
    await testbed.kubelet.until_allocatable(GPU, 1)
    await testbed.kubelet.allocate(GPU, 1, pod="train")
    await testbed.stop_herd()
    testbed.configure(DRA)
    assert (await refused(testbed), await refused(testbed)) == (1, 1)
    assert testbed.log.count("`front_end: dra` cannot serve this node yet") == 2
    assert f"default/train ({GPU})" in testbed.log
    assert states(testbed) == {}
    testbed.kubelet.free("train")
    await testbed.start_herd()
    await by_dra(testbed)
    assert offers(testbed) == ({"dra"}, set())
    assert not any(name.startswith("resource:") for name in testbed.children())
    await testbed.until(lambda: testbed.runs("exporter"), "it answers")
    assert await page(testbed, "/readyz") == "ok\n"
    told = json.loads(await page(testbed, "/api/v1/inventory"))
    assert [(one["name"], one["registered"]) for one in told["drivers"]] == [(DRIVER, True)]
    assert [(one["name"], one["registered"], one["child"]) for one in told["resources"]] == [(GPU, None, None)]


@pytest.mark.on("amd-1", PLUGIN)
async def test_the_old_one_serves_on_while_one_with_dra_may_not_take_over(testbed):
    """The rehearsal finds the pod: the new one is never ready, so that a roll-out stops there."""
    await testbed.kubelet.until_allocatable(GPU, 1)
    await testbed.kubelet.allocate(GPU, 1, pod="train")
    old = testbed.herd
    before = (await testbed.child_of(GPU)).pid
    testbed.configure(DRA)
    address = testbed.settings.listen
    testbed.settings = replace(testbed.settings, listen=f"127.0.0.1:{free_port()}")
    assert await refused(testbed, "--take-over") == 1
    assert "`front_end: dra` cannot serve this node yet" in testbed.log
    testbed.settings, testbed.herd = replace(testbed.settings, listen=address), old
    assert (await testbed.child_of(GPU)).pid == before
    assert offers(testbed) == ({"device-plugin"}, {"amd.com_gpu"})
    testbed.configure(PLUGIN)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(PLUGIN, DRA, marks=pytest.mark.on("amd-1", PLUGIN), id="to DRA"),
        pytest.param(DRA, PLUGIN, marks=pytest.mark.on("amd-1", DRA), id="back"),
    ],
)
async def test_a_roll_out_to_the_other_front_end_hands_nothing_over(testbed, first, second):
    """Without pods that hold devices it may; the old one's processes are gone before the new one's are there."""
    await (by_dra(testbed) if first is DRA else testbed.kubelet.until_allocatable(GPU, 1))
    old = testbed.herd
    testbed.settings = replace(testbed.settings, listen=f"127.0.0.1:{free_port()}")
    testbed.configure(second)
    await testbed.start_herd("--take-over")
    await testbed.until(lambda: f"standby: serving http://{testbed.settings.listen}" in testbed.log, "it answers")
    assert read_instance(testbed.settings).standby.front_end == second["front_end"]
    old.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(old.wait(), 20) == 0
    assert "handing over" not in testbed.log
    if second is DRA:
        await by_dra(testbed)
        assert offers(testbed) == ({"dra"}, set())
        assert testbed.kubelet.allocatable(GPU) == 0
    else:
        await testbed.kubelet.until_allocatable(GPU, 1)
        assert offers(testbed) == ({"device-plugin"}, {"amd.com_gpu"})
        assert not [*testbed.settings.kubelet_dir.glob("plugins*/**/*.sock")]
        assert states(testbed) == {}


@pytest.mark.on("amd-1", DRA)
async def test_status_shows_drivers_and_devices_with_dra(testbed):
    """Health, too; nothing of resources that no process serves."""
    await by_dra(testbed)
    await testbed.until(lambda: len(testbed.children()) > 3 and testbed.runs(), "every child runs")
    code, shown, _ = await devherd(testbed, "status")
    assert code == 0, shown
    assert re.search(rf"^\W*{GPU}\s+1\s+1\s+unknown\s+by DRA", shown, re.MULTILINE), shown
    assert re.search(rf"^\W*{DRIVER}\s+registered\s+registered", shown, re.MULTILINE), shown
    _, devices, _ = await devherd(testbed, "status", "--devices")
    assert re.search(r"Healthy\s+unknown", devices), devices
    assert (await devherd(testbed, "explain", GPU))[0] == 0
    await testbed.until(
        lambda: spool.keys_in(testbed.settings.kubernetes_problems_directory), "no API server is a problem"
    )
    assert (await devherd(testbed, "explain"))[0] == 1
    assert "no ResourceSlices are published: there is no API server" in (await devherd(testbed, "status"))[1]
