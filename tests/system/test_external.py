"""`health.external` whole: what a program or file of the operator's says reaches the kubelet, and is taken back."""

import asyncio
import json
import signal
from pathlib import Path

import pytest_asyncio
from outside import devherd, until_explained

from devherd import spool
from devherd_sim.node.presets import preset
from devherd_sim.testbed import Testbed

RESOURCE = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
OTHER = "fpga.intel.com/af-695.f7d.aVKNtusxV3qMNmj5-qCB9vffQFy9es9yIvFEsLk6zRg"
PORT = "intel-fpga-port.0"


@pytest_asyncio.fixture
async def testbed(directory):
    """Two FPGA cards, the first of which a program and a file may speak of."""
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


async def asked(testbed, *words: str) -> str:
    done = await asyncio.to_thread(devherd, *words, "--run-dir", str(testbed.settings.run_dir))
    return " ".join(done.stdout.split())


async def test_what_an_operators_file_says_is_held_against_the_devices_it_may_speak_of(testbed):
    """Of no other; each such program and file is a process in supervisorctl, and what it no longer says is over."""
    await settled(testbed, 1)
    await testbed.child("source:external-bench")
    await testbed.child("source:external-report")
    report = testbed.directory / "report.jsonl"

    spool.replace(report, b'{"device": {"vendor": "intel-fpga"}, "reason": "burnt", "detail": "smells"}\n')
    await settled(testbed, 0)
    told = await until_explained(testbed, RESOURCE, PORT, lambda told: told["reasons"])
    spool.replace(report, b'{"alive": true}\n')
    await settled(testbed, 1)

    [finding] = told["findings"]
    assert testbed.kubelet.allocatable(OTHER) == 1
    assert told["reasons"] == ["external"]
    assert (finding["source"], finding["detail"], finding["value"]) == ("external-report", "smells", "burnt")
    assert finding["file"] == f"{report}#burnt"


async def test_what_a_program_said_stands_when_it_fails_and_goes_with_its_line_of_the_configuration(testbed):
    """A source that cannot check changes no device; one that is not there any more holds nothing."""
    await settled(testbed, 1)
    (testbed.directory / "lines").write_text('{"reason": "burnt"}\n')
    await settled(testbed, 0)
    told = await until_explained(testbed, RESOURCE, PORT, lambda told: told["failed_sources"])

    testbed.configure({"health": {"poll": "100ms"}, "scan": {"period": "300ms"}})
    testbed.herd.send_signal(signal.SIGHUP)
    await settled(testbed, 1)
    await testbed.until(lambda: "source:external-bench" not in testbed.children(), "its process is gone")

    assert told["findings"][0]["source"] == "external-bench"
    assert told["failed_sources"]["external-bench"].startswith("it ended, exit status 0")


async def test_what_a_program_has_started_in_a_session_of_its_own_ends_with_it(testbed):
    """In the sandbox, too: a daemon for each start of the program was left, also after devherd's end."""
    await settled(testbed, 1)
    script, lines = testbed.directory / "daemons", testbed.directory / "lines"
    script.write_text(f"#!/bin/sh\nsetsid tail -f {lines} &\necho '{{\"alive\": true}}'\nexec sleep 600\n")
    script.chmod(0o755)
    external = {"name": "bench", "command": [str(script)], "match": {"id": PORT}}
    testbed.configure({"health": {"poll": "100ms", "external": [external]}, "scan": {"period": "300ms"}})
    testbed.herd.send_signal(signal.SIGHUP)

    def daemons() -> list[str]:
        wanted = f"tail\0-f\0{lines}\0"
        return [place.parent.name for place in Path("/proc").glob("[0-9]*/cmdline") if text_of(place) == wanted]

    await testbed.until(daemons, "the daemon runs")
    testbed.configure({"health": {"poll": "100ms"}, "scan": {"period": "300ms"}})
    testbed.herd.send_signal(signal.SIGHUP)

    await testbed.until(lambda: not daemons(), "the daemon has ended")


def text_of(place: Path) -> str:
    try:
        return place.read_text(errors="replace")
    except OSError:  # it has ended
        return ""


async def test_a_source_that_cannot_look_is_a_line_of_status_and_doctor_and_an_event(testbed):
    """Also one whose finding names no device; no device is Unhealthy for it, and its end is an event as well."""
    await settled(testbed, 1)
    missing, report = testbed.directory / "not-there", testbed.directory / "report.jsonl"
    externals = [
        {"name": "fans", "command": [str(missing)], "match": {"id": PORT}},
        {"name": "report", "file": str(report), "match": {"id": PORT}, "max_age": "1h"},
    ]
    report.write_text('{"device": {"card": "card0"}, "reason": "burnt"}\n')
    testbed.configure({"health": {"poll": "100ms", "external": externals}, "scan": {"period": "300ms"}})
    testbed.herd.send_signal(signal.SIGHUP)
    cannot = f"{missing} cannot be started: No such file or directory; next start in"
    nameless = "1 finding names no device of `match`, first: card card0: burnt"

    await testbed.until(lambda: "external-fans: it cannot check devices" in testbed.log, "it is logged")
    await testbed.until(lambda: "external-report: 1 finding names" in testbed.log, "it is logged")
    status, doctor = await asked(testbed, "status"), await asked(testbed, "doctor")
    told = json.loads(await asked(testbed, "status", "--output", "json"))
    explanation = await until_explained(testbed, RESOURCE, PORT)
    missing.write_text("#!/bin/sh\necho '{\"alive\": true}'\nexec sleep 600\n")
    missing.chmod(0o755)
    spool.replace(report, b'{"alive": true}\n')
    await testbed.until(lambda: "external-fans: it checks devices again" in testbed.log, "it is logged", timeout=120)
    await testbed.until(lambda: "external-report: nothing is wrong" in testbed.log, "it is logged")
    last = ("external-fans: it checks devices again", "external-report: nothing")
    events = ""
    async with asyncio.timeout(60):
        while not all(words in events for words in last):
            events = await asked(testbed, "events", "--kind", "problem")

    for shown in (status, doctor):
        assert f"source external-fans cannot check devices: {cannot}" in shown
        assert f"source external-report: {nameless}" in shown
    assert "devherd ctl tail source:external-fans" in doctor
    states = {source["name"]: source for source in told["sources"]}
    assert states["external-fans"]["failed"].startswith(cannot)
    assert states["external-report"]["report_errors"] == [nameless]
    assert explanation["health"] == "Healthy"
    assert explanation["report_errors"] == {"external-report": [nameless]}
    assert [
        events.count(f"source {part}")
        for part in ("external-fans: it cannot check devices", "external-fans: it checks devices again")
    ] == [1, 1]
    assert events.count(f"source external-report: {nameless}") == events.count("source external-report: nothing") == 1
    assert testbed.kubelet.allocatable(RESOURCE) == 1
