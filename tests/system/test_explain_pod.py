"""`devherd explain` of pods, of resources and of everything, against a running instance and its kubelet."""

import asyncio
import json
import os
import signal
from functools import partial
from typing import Any

import pytest
from outside import devherd

from devherd import history, spool
from devherd.proto import spool_pb2
from devherd_sim.kubelet.pod import AdmissionError
from devherd_sim.node import faults

GPU = "nvidia.com/gpu"
QUICK = {"health": {"poll": "100ms"}, "scan": {"period": "300ms"}}


async def explained(testbed, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of the command."""
    options = ("--run-dir", str(testbed.settings.run_dir), "--output", "json")
    done = await asyncio.to_thread(devherd, "explain", *options, *words)
    return done.returncode, json.loads(done.stdout) if done.stdout else {"error": done.stderr}


async def text_and_code(testbed, *words: str) -> tuple[int, list[str]]:
    done = await asyncio.to_thread(devherd, "explain", "--run-dir", str(testbed.settings.run_dir), *words)
    return done.returncode, done.stdout.splitlines()


async def until_event(testbed, words: str, kind: str = "allocation") -> history.HistoryEvent:
    """The latest event of this kind whose message has these words."""

    def found() -> list[history.HistoryEvent]:
        events = history.events(testbed.settings.run_dir, kinds=[kind])
        return [event for event in events if words in event.message]

    return (await testbed.until(found, words))[-1]


@pytest.mark.on("nvidia-8", QUICK)
async def test_a_pods_killer_is_named_after_the_pod_has_gone(testbed):
    """Defect: allocation events named no pod, so nobody could say afterwards which device a pod had."""
    await testbed.kubelet.until_allocatable(GPU, 8, within=30)
    allocation = await testbed.kubelet.allocate(GPU, 1, pod="train")
    [device] = allocation.device_ids
    given = await until_event(testbed, "held by pod default/train, container main")
    holding_code, holding = await explained(testbed, "default/train")

    faults.inject(testbed.node, "xid", holding["devices"][0]["pci_address"])
    await until_event(testbed, "Unhealthy (xid) while held by pod default/train, container main")
    await until_event(testbed, "GPU has fallen off the bus", "verdict")
    ill_code, ill = await explained(testbed, "default/train")
    testbed.kubelet.free("train")
    gone_code, gone = await explained(testbed, "default/train")
    _, shown = await text_and_code(testbed, "default/train")

    assert (given.resource_name, given.device_id) == (GPU, device)
    assert (holding_code, [one["health"] for one in holding["devices"]]) == (0, ["Healthy"])
    [held] = ill["devices"]
    assert (ill_code, held["container"], held["device"], held["reasons"]) == (1, "main", device, ["xid"])
    assert "GPU has fallen off the bus" in held["findings"][0]["detail"]
    assert (gone_code, gone["is_listed"], gone["devices"]) == (1, False, [])
    verdicts = [event for event in gone["events"] if event["kind"] == "verdict"]
    assert "GPU has fallen off the bus" in verdicts[0]["message"]
    assert shown[0] == "pod default/train holds no device any more: the kubelet does not list it"


@pytest.mark.on("nvidia-8", QUICK)
async def test_a_resource_and_a_pod_say_why_there_is_no_device_and_nothing_says_whether_all_is_well(testbed):
    """Three questions of somebody on call, each with its exit code."""
    await testbed.kubelet.until_allocatable(GPU, 8, within=30)
    served = partial(spool.read_or_empty, testbed.settings.served_file, spool_pb2.Addresses)
    await testbed.until(lambda: served().addresses and not served().addresses[0].refusal, "the exporter serves")
    await testbed.until(lambda: testbed.runs("scanner", "exporter"), "every process runs")
    well_code, well = await text_and_code(testbed)
    await testbed.kubelet.allocate(GPU, 8, pod="greedy")
    with pytest.raises(AdmissionError):
        await testbed.kubelet.allocate(GPU, 1, pod="late")
    await until_event(testbed, "held by pod default/greedy")
    full_code, full = await explained(testbed, GPU)
    faults.inject(testbed.node, "xid", (await explained(testbed, full["holders"][0]["device"]))[1]["pci_address"])
    await until_event(testbed, "while held by pod default/greedy")
    await until_event(testbed, "GPU has fallen off the bus", "verdict")
    ill_code, ill = await explained(testbed, GPU)
    worst_code, worst = await text_and_code(testbed)
    unknown_code, unknown = await explained(testbed, "default/later")
    other_code, other = await explained(testbed, "nvidia.com/mig-1g.10gb")

    assert (well_code, well) == (0, ["all is well: 8 devices of 1 resource, all Healthy and registered"])
    assert (full_code, full["capacity"], full["allocatable"], full["held"], full["free"]) == (0, 8, 8, 8, 0)
    assert full["obstacle"] == "all 8 are held; held by default/greedy"
    assert (ill_code, ill["allocatable"]) == (1, 7)
    assert ill["obstacle"] == "all 7 are held, 1 Unhealthy; held by default/greedy"
    assert (worst_code, worst[0]) == (1, f"{GPU} {full['holders'][0]['device']} is Unhealthy: xid")
    assert worst[1].strip().startswith("do:")
    assert any("GPU has fallen off the bus" in line for line in worst)
    assert "  held by: default/greedy (main)" in worst
    assert unknown_code == other_code == 2
    assert "no pod of this node is called `default/later`" in unknown["error"]
    assert "`nvidia.com/mig-1g.10gb` not found" in other["error"]


@pytest.mark.on("nvidia-8", QUICK)
async def test_allocations_name_their_pods_also_in_the_process_that_replaces_one(testbed):
    """It notes an allocation after the plugin's answer; also in the child that replaces one which was killed."""
    await testbed.kubelet.until_allocatable(GPU, 8, within=30)
    await testbed.kubelet.allocate(GPU, 2, pod="train", container="one")
    both = await until_event(testbed, "held by pod default/train, container one")
    os.kill((await testbed.child_of(GPU)).pid, signal.SIGKILL)
    await testbed.until(lambda: "terminated by SIGKILL" in testbed.log, "its end")
    await testbed.kubelet.until_allocatable(GPU, 8, within=30)
    await testbed.kubelet.allocate(GPU, 1, pod="train", container="two", namespace="team")
    one = await until_event(testbed, "held by pod team/train, container two")

    assert (both.device_id, len(history.devices_of(both))) == ("", 2)
    assert (one.device_id, history.pod_of(one)) == (history.devices_of(one)[0], "team/train")
