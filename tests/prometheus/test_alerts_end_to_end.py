"""From a fault of a device to the receiver of an alert, and from its end to the end of the alert.

The first test prints when each on the way knew it; with DEVHERD_ALERT_ROUNDS=8 of eight GPUs, one after the other.
"""

import asyncio
import os
import shlex
import subprocess
import sys
import time

import pytest
from monitoring import NODE, SCRAPE_SECONDS
from seeds import random_of
from way_of_an_alert import Way, table

from devherd_sim.node import faults

GPU = "nvidia.com/gpu"
ROUNDS = int(os.environ.get("DEVHERD_ALERT_ROUNDS", "1"))
HEARING = {"health": {"poll": "60s"}, "scan": {"period": "5s"}}


async def devherd(testbed, *words):
    """A command for the instance, run to its end while the kubelet goes on in this loop."""
    options = [f"--run-dir={testbed.settings.run_dir}", f"--host-root={testbed.settings.host_root}"]
    name, *others = words
    command = [sys.executable, "-m", "devherd", name, *(() if name == "sim" else options), *others]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == (name == "explain"), done  # of a device that is ill
    return done.stdout


def nothing_fires(monitoring):
    """Whether all is well for Prometheus. On a busy machine an alert about devherd itself may come and go."""

    async def look():
        return not await monitoring.query('ALERTS{alertstate="firing"}')

    return look


@pytest.mark.on("nvidia-8", HEARING)
async def test_an_alert_arrives_when_a_device_fails_and_is_resolved_when_it_recovers(testbed, monitor):
    """Through exporter, Prometheus with the rules as shipped, and Alertmanager; its command shows the evidence."""
    await testbed.kubelet.until_allocatable(GPU, 8, within=30)
    addresses = sorted(path.name for path in (testbed.node.root / "proc/driver/nvidia/gpus").iterdir())
    monitoring = monitor()
    await monitoring.until(lambda: monitoring.query("devherd_registered == 1"), "devherd is scraped")
    for metric in ("resident_memory_bytes", "cpu_seconds_total", "open_fds"):
        used = await monitoring.query(f"devherd_child_{metric}")
        assert {labels["child"] for labels, _ in used} == {"supervisor", *testbed.children()}

    ways = [await one_device_fails_and_recovers(testbed, monitoring, address) for address in addresses[:ROUNDS]]

    await monitoring.until(nothing_fires(monitoring), "every alert has ended")
    of_devices = [alert["labels"] for _, alert in monitoring.receiver.received if "device" in alert["labels"]]
    assert {labels["alertname"] for labels in of_devices} == {"DeviceUnhealthy"}
    print(table(ways))


async def one_device_fails_and_recovers(testbed, monitoring, address):
    """Its alert arrives with everything in it, and ends; when each on the way knew."""
    moment = random_of(address)
    known = {alert["labels"].get("device") for _, alert in monitoring.receiver.received}
    await asyncio.sleep(moment.uniform(0, SCRAPE_SECONDS))  # at any moment between two scrapes, not just after one
    way = Way(testbed, monitoring)
    began = time.monotonic()
    await asyncio.to_thread(faults.inject, testbed.node, "xid", address)
    arrived, alert = await way.followed("DeviceUnhealthy", since=began)

    device = alert["labels"]["device"]
    assert alert["labels"] == {
        "alertname": "DeviceUnhealthy",
        "severity": "warning",
        "node": NODE,
        "resource_name": GPU,
        "device": device,
    }
    assert device not in known
    assert testbed.kubelet.devices(GPU)[device] == "Unhealthy"
    assert "Reasons: xid." in alert["annotations"]["description"]
    program, *words = shlex.split(alert["annotations"]["command"])
    assert program == "devherd"
    assert "79" in await devherd(testbed, *words)

    healed = time.monotonic()
    await asyncio.to_thread(faults.clear, testbed.node, "xid", address)
    resolved, _ = await monitoring.notified("DeviceUnhealthy", "resolved", since=arrived, device=device)
    return way.times | {"recovery to the receiver": resolved - healed}


@pytest.mark.on("nvidia-8", {"simulated": [{"name": "example.com/other", "count": 1}]})
async def test_a_kubelet_that_is_away_is_one_alert_and_not_one_for_each_resource(testbed, monitor):
    """The exporter sees it in its own sandbox; it ends when the kubelet is back."""
    await testbed.kubelet.until_allocatable(GPU, 8, within=30)
    monitoring = monitor()
    await monitoring.until(lambda: monitoring.query("count(devherd_registered == 1) == 2"), "devherd is scraped")

    await testbed.kubelet.stop()
    arrived, alert = await monitoring.notified("DevicePluginKubeletAway", "firing")
    assert (alert["labels"]["severity"], alert["labels"]["node"]) == ("critical", NODE)
    assert await monitoring.query('ALERTS{alertname="DevicePluginNotRegistered"}') == []

    await testbed.kubelet.start()
    await monitoring.notified("DevicePluginKubeletAway", "resolved", since=arrived)
    await monitoring.until(lambda: monitoring.query("count(devherd_registered == 1) == 2"), "all is registered again")


@pytest.mark.on("nvidia-8", {})
async def test_an_exporter_that_does_not_answer_is_an_alert_until_it_does(testbed, monitor):
    """Nothing else that the rules ask would be there to tell."""
    monitoring = monitor()
    await monitoring.until(lambda: monitoring.query("devherd_build_info"), "devherd is scraped")

    await devherd(testbed, "ctl", "stop", "exporter")
    arrived, alert = await monitoring.notified("DevicePluginUnreachable", "firing")
    assert (alert["labels"]["severity"], alert["labels"]["node"]) == ("critical", NODE)
    assert "exporter" in await devherd(testbed, *shlex.split(alert["annotations"]["command"])[1:])

    await devherd(testbed, "ctl", "start", "exporter")
    await monitoring.notified("DevicePluginUnreachable", "resolved", since=arrived)
