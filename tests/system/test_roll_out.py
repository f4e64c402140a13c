"""A roll-out on one node: the new devherd stands by beside the old one, and takes over when that ends."""

import asyncio
import json
import re
import signal
import sys
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from devherd.instance.read import read_instance
from devherd.text import version
from devherd_sim.testbed import free_port

FPGA = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
FIRST, SECOND = "example.com/first", "example.com/second"


async def standing_by(testbed):
    """Start the new one, with an address of its own as a pod has it; the old one's process."""
    old = testbed.herd
    testbed.settings = replace(testbed.settings, listen=f"127.0.0.1:{free_port()}")
    await testbed.start_herd("--take-over")
    await testbed.until(lambda: f"standby: serving http://{testbed.settings.listen}" in testbed.log, "it answers")
    return old


async def end(herd, number=signal.SIGTERM):
    """Have the old one end."""
    herd.send_signal(number)
    return await asyncio.wait_for(herd.wait(), 20)


async def page(testbed, path):
    """What the new one says over HTTP."""

    def ask():
        with urllib.request.urlopen(f"http://{testbed.settings.listen}{path}", timeout=10) as answer:
            return answer.read().decode()

    return await asyncio.to_thread(ask)


async def test_the_new_one_is_ready_before_the_old_one_ends_and_serves_after_it(testbed):
    """Pods keep their devices, and the kubelet always has devices: the new one registers before the old one ends."""
    await testbed.kubelet.until_allocatable(FPGA, 1)
    await testbed.kubelet.allocate(FPGA, 1, pod="train")
    old = await standing_by(testbed)
    assert await page(testbed, "/healthz") == "ok\n"
    ready = await page(testbed, "/readyz")
    assert re.fullmatch(rf"standing by: another instance runs here, process {old.pid}\n", ready)
    shown = read_instance(testbed.settings).standby
    assert shown is not None
    assert shown.version == version()
    assert re.search(r"^devherd_build_info\{.*\} 1", await page(testbed, "/metrics"), re.MULTILINE)
    mark = testbed.kubelet.events.mark()

    assert await end(old) == 0
    await testbed.kubelet.until_registered(FPGA, since=mark)
    await testbed.kubelet.until_allocatable(FPGA, 1)

    await testbed.until(lambda: "took over from the server before, without a gap" in testbed.log, "it has taken over")
    kinds = [event.kind for event in testbed.kubelet.events.since(mark, resource=FPGA)]
    assert kinds.index("registered") < kinds.index("register-refused") < kinds.index("stream-ended")
    assert kinds.count("stream-ended") == 1
    assert [each.container.pod for each in testbed.kubelet.allocations()] == ["train"]
    await testbed.until(lambda: f"exporter: serving http://{testbed.settings.listen}" in testbed.log, "it serves")
    assert await page(testbed, "/readyz") == "ok\n"
    assert "taking over after " in testbed.log
    assert read_instance(testbed.settings).standby is None


@pytest.mark.on("generic", {"simulated": [{"name": FIRST, "count": 2}]})
async def test_the_new_one_serves_by_its_own_configuration(testbed):
    """A resource that it does not have is gone with the old one, and one that is new comes with it."""
    await testbed.kubelet.until_allocatable(FIRST, 2)
    config = testbed.directory / "second.yaml"
    config.write_text(json.dumps({"simulated": [{"name": SECOND, "count": 3}]}))
    testbed.settings = replace(testbed.settings, config_path=config)
    old = await standing_by(testbed)
    assert testbed.kubelet.devices(SECOND) == {}
    mark = testbed.kubelet.events.mark()

    assert await end(old) == 0
    await testbed.kubelet.until_allocatable(SECOND, 3)

    assert testbed.kubelet.events.since(mark, "register-called", FIRST) == []
    assert testbed.kubelet.allocatable(FIRST) == 0


async def test_a_new_one_that_ends_while_it_stands_by_disturbs_nobody(testbed):
    """The roll-out was taken back; the kubelet has heard nothing of it."""
    await testbed.kubelet.until_allocatable(FPGA, 1)
    mark = testbed.kubelet.events.mark()
    old = await standing_by(testbed)

    assert await end(testbed.herd) == 0
    testbed.herd = old

    assert testbed.kubelet.events.since(mark, resource=FPGA) == []
    assert testbed.kubelet.allocatable(FPGA) == 1


async def test_one_whose_rehearsal_takes_long_is_alive_and_not_ready_before_its_end(testbed):
    """Defect: after half a minute it was ready, and the DaemonSet's controller ended the old one for it.

    With `maxSurge` that controller ends a pod when the other one on its node is Ready.
    """
    await testbed.kubelet.until_allocatable(FPGA, 1)
    old, mark = testbed.herd, testbed.kubelet.events.mark()
    goes_on = testbed.directory / "goes-on"
    goes_on.touch()
    testbed.settings = replace(testbed.settings, listen=f"127.0.0.1:{free_port()}")
    testbed.command = (sys.executable, str(Path(__file__).with_name("slow_rehearsal.py")), str(goes_on))
    await testbed.start_herd("--take-over")
    serving = f"standby: serving http://{testbed.settings.listen}"
    await testbed.until(lambda: serving in testbed.log, "it answers")
    assert await page(testbed, "/healthz") == "ok\n"
    with pytest.raises(urllib.error.HTTPError) as caught:
        await page(testbed, "/readyz")
    said = f"not ready to take over: the rehearsal is not done; another instance runs here, process {old.pid}\n"
    assert (caught.value.code, caught.value.read().decode()) == (503, said)
    assert read_instance(testbed.settings).standby is None

    goes_on.unlink()
    await testbed.until(lambda: testbed.log.count(serving) == 2, "it answers anew")
    assert await page(testbed, "/readyz") == f"standing by: another instance runs here, process {old.pid}\n"
    assert testbed.kubelet.events.since(mark, resource=FPGA) == []
    assert await end(old) == 0
    await testbed.kubelet.until_registered(FPGA, since=mark)


async def test_one_that_could_not_serve_the_kubelet_never_takes_over(testbed):
    """Defect: it was ready, the old one ended, and only then it met what kept it from serving."""
    await testbed.kubelet.until_allocatable(FPGA, 1)
    old, mark = testbed.herd, testbed.kubelet.events.mark()
    elsewhere = testbed.directory / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "device-plugins").symlink_to("/proc")  # nobody may make sockets there
    testbed.settings = replace(testbed.settings, kubelet_dir=elsewhere)
    await testbed.start_herd("--take-over")

    assert await asyncio.wait_for(testbed.herd.wait(), 60) == 1
    testbed.herd = old

    assert f"devherd: the kubelet cannot be served in {elsewhere}/device-plugins — " in testbed.log
    assert "devherd: this instance cannot take over — its rehearsal failed, as logged above — " in testbed.log
    assert testbed.kubelet.events.since(mark, resource=FPGA) == []
    assert testbed.kubelet.allocatable(FPGA) == 1


async def test_one_that_can_not_take_over_says_so_and_leaves_the_old_one_alone(testbed):
    """A configuration that is wrong: the new pod is never ready, and the roll-out stays where it is."""
    await testbed.kubelet.until_allocatable(FPGA, 1)
    old, mark = testbed.herd, testbed.kubelet.events.mark()
    config = testbed.directory / "wrong.yaml"
    config.write_text('{"simulatde": []}')
    testbed.settings = replace(testbed.settings, config_path=config)
    await testbed.start_herd("--take-over")

    assert await asyncio.wait_for(testbed.herd.wait(), 30) == 2
    testbed.herd = old

    assert "simulatde: unknown key" in testbed.log
    assert testbed.kubelet.events.since(mark, resource=FPGA) == []
