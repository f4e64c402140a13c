"""The history of a whole instance: what an operator asks about afterwards has left an event."""

import asyncio
import json
import os
import signal

import pytest
from outside import devherd

from devherd import history
from devherd_sim.node import faults

RESOURCE = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
PORT = "intel-fpga-port.0"
QUICK = {"health": {"poll": "100ms"}, "scan": {"period": "300ms"}}
ANOTHER = "example.com/another"


@pytest.mark.on("fpga-opae-2", QUICK)
async def test_verdicts_registrations_allocations_reloads_processes_and_cordons_are_there_afterwards(testbed):
    """Each says what it is about, and the head of `status` which instance it was."""

    async def until(kind: str, words: str) -> history.HistoryEvent:
        def found() -> list[history.HistoryEvent]:
            events = history.events(testbed.settings.run_dir, kinds=[kind])
            return [event for event in events if words in event.message]

        await testbed.until(found, f"{kind}: {words}")
        return found()[-1]

    options = ("--run-dir", str(testbed.settings.run_dir))
    await testbed.kubelet.until_allocatable(RESOURCE, 1, within=30)
    await until("registered", "registered with the kubelet: 1 device (")
    await testbed.kubelet.allocate(RESOURCE, 1, pod="train")
    allocated = await until("allocation", "allocated")
    faults.inject(testbed.node, "fpga-errors", PORT, "0x20")
    ill = await until("verdict", "Unhealthy: port-error")
    faults.clear(testbed.node, "fpga-errors", PORT)
    await until("verdict", "Healthy")
    await asyncio.to_thread(devherd, "cordon", *options, RESOURCE, PORT, "--reason", "ticket 4711")
    await until("cordon", "ticket 4711")
    testbed.configure({**QUICK, "simulated": [{"name": ANOTHER, "count": 2}]})
    testbed.herd.send_signal(signal.SIGHUP)
    await until("reload", f"+ {ANOTHER} (2 devices)")
    testbed.configure({"scann": {}})
    testbed.herd.send_signal(signal.SIGHUP)
    await until("reload", "the old one stays: ")
    os.kill((await testbed.child_of(RESOURCE)).pid, signal.SIGKILL)
    await until("process", f"resource:fpga.intel.com_{RESOURCE.partition('/')[2]}: terminated by SIGKILL")

    told = await asyncio.to_thread(devherd, "events", *options, "--output", "json", "--limit", "0")
    status = await asyncio.to_thread(devherd, "status", *options, "--output", "json")
    times = [json.loads(line)["time"] for line in told.stdout.splitlines()]
    instance = json.loads(status.stdout)["instance"]
    assert times == sorted(times)
    assert (allocated.resource_name, allocated.device_id) == (RESOURCE, PORT)
    assert (ill.resource_name, ill.device_id, ill.reasons) == (RESOURCE, PORT, ("port-error",))
    assert (ill.details["value"], ill.process) == ("0x20", "scanner")
    assert (instance["pid"], instance["kubelet_dir"]) == (testbed.herd.pid, str(testbed.settings.kubelet_dir))
    assert (instance["config"], instance["listen"]) == (str(testbed.settings.config_path), testbed.settings.listen)
