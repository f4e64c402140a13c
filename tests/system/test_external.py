"""`health.external` whole: what a program or file of the operator's says reaches the kubelet, and is taken back."""

import asyncio
import json
import signal

import pytest_asyncio
import scratch
from outside import devherd

from devherd import spool
from devherd_sim.node.presets import preset
from devherd_sim.testbed import Testbed

RESOURCE = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
OTHER = "fpga.intel.com/af-695.f7d.aVKNtusxV3qMNmj5-qCB9vffQFy9es9yIvFEsLk6zRg"
PORT = "intel-fpga-port.0"


@pytest_asyncio.fixture
async def testbed():
    """Two FPGA cards, the first of which a program and a file may speak of."""
    directory = scratch.directory()
    script = directory / "check"
    script.write_text(f"#!/bin/sh\necho '{{\"alive\": true}}'\nexec cat {directory}/lines\n")
    script.chmod(0o755)
    (directory / "lines").write_text("")
    (directory / "report.jsonl").write_text("")
    spoken_of = {"id": PORT}
    externals = [
        {"name": "bench", "command": [str(script)], "match": spoken_of},
        {"name": "report", "file": str(directory / "report.jsonl"), "match": spoken_of, "max_age": "1h"},
    ]
    config = {"health": {"poll": "100ms", "external": externals}, "scan": {"period": "300ms"}}
    async with Testbed(directory, preset("fpga-opae-2"), config) as testbed:
        yield testbed
    assert "Traceback" not in testbed.log, testbed.log


async def settled(testbed, count: int) -> None:
    await testbed.kubelet.until_allocatable(RESOURCE, count, within=30)


async def explained(testbed) -> dict:
    options = ("--run-dir", str(testbed.settings.run_dir), "--output", "json")
    return json.loads((await asyncio.to_thread(devherd, "explain", *options, RESOURCE, PORT)).stdout)


async def test_what_an_operators_file_says_is_held_against_the_devices_it_may_speak_of(testbed):
    """Of no other; each such program and file is a process in supervisorctl, and what it no longer says is over."""
    await settled(testbed, 1)
    await testbed.child("source:external-bench")
    await testbed.child("source:external-report")
    report = testbed.directory / "report.jsonl"

    spool.replace(report, b'{"device": {"vendor": "intel-fpga"}, "reason": "burnt", "detail": "smells"}\n')
    await settled(testbed, 0)
    told = await explained(testbed)
    spool.replace(report, b'{"alive": true}\n')
    await settled(testbed, 1)

    [finding] = told["findings"]
    assert testbed.kubelet.allocatable(OTHER) == 1
    assert told["reasons"] == ["external"]
    assert (finding["source"], finding["detail"], finding["value"]) == ("external-report", "smells", "burnt")
    assert finding["file"] == f"{report}#burnt"


async def test_what_a_program_said_stands_when_it_fails_and_goes_with_its_line_of_the_configuration(testbed):
    """A source that cannot look changes no device; one that is not there any more holds nothing."""
    await settled(testbed, 1)
    (testbed.directory / "lines").write_text('{"reason": "burnt"}\n')
    await settled(testbed, 0)
    told = await explained(testbed)

    testbed.configure({"health": {"poll": "100ms"}, "scan": {"period": "300ms"}})
    testbed.herd.send_signal(signal.SIGHUP)
    await settled(testbed, 1)
    await testbed.until(lambda: "source:external-bench" not in testbed.children(), "its process is gone")

    assert told["findings"][0]["source"] == "external-bench"
    assert told["failed_sources"]["external-bench"].startswith("it ended, exit status 0")
