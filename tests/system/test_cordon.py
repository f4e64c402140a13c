"""`devherd cordon` against a running instance: the kubelet hears it, and nothing but `devherd uncordon` ends it."""

import asyncio
import json

import pytest
from outside import devherd, get

from devherd import spool
from devherd_sim.node.presets import preset

RESOURCE = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
PORT = "intel-fpga-port.0"
QUICK = {"health": {"poll": "100ms", "forget_after": "1s"}, "scan": {"period": "300ms"}}


async def command(testbed, *words: str) -> str:
    """What a command prints."""
    options = ("--run-dir", str(testbed.settings.run_dir))
    done = await asyncio.to_thread(devherd, words[0], *options, *words[1:])
    assert done.returncode == 0, done.stderr
    return done.stdout


async def settled(testbed, count: int) -> None:
    await testbed.kubelet.until_allocatable(RESOURCE, count, within=30)


@pytest.mark.on("fpga-opae-2", QUICK)
async def test_a_cordoned_device_is_unhealthy_until_it_is_uncordoned_and_says_why_everywhere(testbed):
    """Pods that hold it keep it, and a restart of the scanner changes nothing."""
    await settled(testbed, 1)
    await testbed.kubelet.allocate(RESOURCE, 1, pod="train")

    await command(testbed, "cordon", RESOURCE, PORT, "--reason", "ticket 4711")
    await settled(testbed, 0)
    await command(testbed, "ctl", "restart", "scanner")
    told = json.loads(await command(testbed, "explain", RESOURCE, PORT, "--output", "json"))
    status = await command(testbed, "status", "--output", "json")
    _, metrics = await get(testbed, "/metrics")

    [finding] = told["findings"]
    assert (told["reasons"], [holder["pod"] for holder in told["allocated"]]) == (["cordoned"], ["train"])
    assert (finding["source"], finding["detail"], finding["action"]) == ("cordon", "ticket 4711", "unhealthy")
    assert testbed.kubelet.devices(RESOURCE) == {PORT: "Unhealthy"}
    assert '"cordoned"' in status
    assert 'reason="cordoned"' in metrics

    await command(testbed, "uncordon", RESOURCE, PORT)
    await settled(testbed, 1)


@pytest.mark.on("fpga-opae-2", QUICK)
async def test_a_cordoned_device_that_was_gone_comes_back_cordoned(testbed):
    """Somebody takes a card out to look at it: putting it back is not yet giving it to pods."""
    await settled(testbed, 1)
    await command(testbed, "cordon", RESOURCE, PORT)
    await settled(testbed, 0)
    listed = testbed.kubelet.devices(RESOURCE)

    testbed.node.remove_card(PORT)
    await testbed.until(lambda: f"resource:{spool.key_of(RESOURCE)}" not in testbed.children(), "it is forgotten")
    testbed.node.repair(preset("fpga-opae-2"))
    await testbed.child_of(RESOURCE)
    await testbed.until(lambda: testbed.kubelet.devices(RESOURCE) == listed, "it is back, and Unhealthy")

    await command(testbed, "uncordon", RESOURCE, PORT)
    await settled(testbed, 1)
