"""From a fault of a device to the receiver of an alert, and from its end to the end of the alert."""

import asyncio
import shlex
import subprocess
import sys
import time

import pytest
from monitoring import NODE

GPU = "nvidia.com/gpu"
HEARING = {"health": {"poll": "60s"}, "scan": {"period": "5s"}}


async def devherd(testbed, *words):
    """A command for the instance, run to its end while the kubelet goes on in this loop."""
    options = [f"--run-dir={testbed.settings.run_dir}", f"--host-root={testbed.settings.host_root}"]
    name, *others = words
    command = [sys.executable, "-m", "devherd", name, *(() if name == "sim" else options), *others]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done
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
    address = min(path.name for path in (testbed.node.root / "proc/driver/nvidia/gpus").iterdir())
    monitoring = monitor()
    await monitoring.until(lambda: monitoring.query("devherd_registered == 1"), "devherd is scraped")
    fault = ("sim", "fault", str(testbed.node.root), "xid", address)

    for metric in ("resident_memory_bytes", "cpu_seconds_total", "open_fds"):
        used = await monitoring.query(f"devherd_child_{metric}")
        assert {labels["child"] for labels, _ in used} == {"supervisor", *testbed.children()}

    await devherd(testbed, *fault)
    failed = time.monotonic()
    arrived, alert = await monitoring.notified("DeviceUnhealthy", "firing")

    device = alert["labels"]["device"]
    assert alert["labels"] == {
        "alertname": "DeviceUnhealthy",
        "severity": "warning",
        "node": NODE,
        "resource_name": GPU,
        "device": device,
    }
    assert testbed.kubelet.devices(GPU)[device] == "Unhealthy"
    assert "Reasons: xid." in alert["annotations"]["description"]
    program, *words = shlex.split(alert["annotations"]["command"])
    assert program == "devherd"
    assert "79" in await devherd(testbed, *words)

    await devherd(testbed, *fault, "--clear")
    healed = time.monotonic()
    resolved, _ = await monitoring.notified("DeviceUnhealthy", "resolved", since=arrived)

    await monitoring.until(nothing_fires(monitoring), "every alert has ended")
    of_devices = [alert["labels"] for _, alert in monitoring.receiver.received if "device" in alert["labels"]]
    assert {labels["alertname"] for labels in of_devices} == {"DeviceUnhealthy"}
    print(f"from fault to receiver {arrived - failed:.1f} s, from recovery to receiver {resolved - healed:.1f} s")


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
