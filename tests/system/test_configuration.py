"""Who reads the configuration, when, and what stays in force while the file is bad."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
import pytest_asyncio
from outside import devherd, get, supervisorctl, until_ready

from devherd_sim.node.presets import preset
from devherd_sim.testbed import Testbed

A, B = ({"simulated": [{"name": name, "count": 1}]} for name in ("example.com/a", "example.com/b"))
NOT_FOR_THEM = {"pydantic", "pydantic_core", "yaml", "rich", "devherd.config.model"}
DELAYS_A_START = {"inspect", "ast", "dis", "lzma", "bz2", "xml.etree.ElementTree"} | {
    "google.protobuf.descriptor_database",
    "pickle",
    "platform",
    "subprocess",
    "supervisor.medusa.http_date",
    "tempfile",
    "textwrap",
}
NEVER_RUN = {
    "http.client",
    "xmlrpc.client",
    "importlib.metadata",
    "html.entities",
    "ssl",
    "_hashlib",
    "asyncio.sslproto",
    "tomllib",
}
OF_A_WEB_SERVER = {"http.server", "urllib.request", "socketserver", "wsgiref.simple_server", "email.message", "gzip"}
OF_ONE = {
    "exporter": {"prometheus_client", "devherd.exporter.main"},
    "page": {"devherd.exporter.status_page.page", "html"},
    "resource": set(),
    "scanner": {"devherd.scanner.loop", "devherd.health.policy"},
    "supervisor": set(),
}
"""What only one kind of process has, the exporter some of it after a scrape, some after a look at the page."""


@pytest_asyncio.fixture
async def shown(directory, monkeypatch):
    """A herd whose processes say on SIGURG what they have imported."""
    monkeypatch.setenv("MODULES_DIR", str(directory / "modules"))
    (directory / "modules").mkdir()
    testbed = Testbed(directory, preset("generic"), A)
    testbed.command = (sys.executable, str(Path(__file__).with_name("modules_shown.py")))
    async with testbed:
        yield testbed


async def running(testbed, resource="example.com_a"):
    """The process ids of the scanner, the exporter and the only resource child, once they are all the children."""
    names = {"scanner", "exporter", f"resource:{resource}"}
    await testbed.until(lambda: testbed.children().keys() == names and testbed.runs(), "every child runs")
    return {name: (await testbed.child(name)).pid for name in names}


async def imported(testbed, pid):
    """What a process has imported, by its own word."""
    answer = testbed.directory / "modules" / str(pid)
    answer.unlink(missing_ok=True)
    os.kill(pid, signal.SIGURG)
    await testbed.until(answer.exists, "the process answers")
    return set(answer.read_text().split("\n"))


async def test_the_loader_alone_imports_pydantic(shown):
    """A schema's library and a YAML parser are 10 MB in each process that has them; also after a reload."""
    await shown.kubelet.until_allocatable("example.com/a", 1)
    await running(shown)
    shown.configure(B)
    await supervisorctl(shown, "reload")
    await shown.kubelet.until_allocatable("example.com/b", 1)

    pids = {"supervisor": shown.herd.pid, **await running(shown, "example.com_b")}
    for name, pid in pids.items():
        modules = await imported(shown, pid)
        assert "devherd.settings" in modules
        assert modules & NOT_FOR_THEM == set(), name
        assert "pydantic" not in Path(f"/proc/{pid}/maps").read_text(), name


async def test_nobody_has_what_libraries_import_and_the_herd_never_runs(shown):
    """8 MB of a node, OpenSSL among them; the supervisor has some of it once supervisorctl has called."""
    await shown.kubelet.until_allocatable("example.com/a", 1)
    pids = {"supervisor": shown.herd.pid, **await running(shown)}
    assert (await get(shown, "/healthz"))[0] == 200
    assert await imported(shown, pids["exporter"]) & OF_ONE["exporter"] == {"devherd.exporter.main"}
    assert (await get(shown, "/metrics"))[0] == 200

    for name, pid in pids.items():
        modules = await imported(shown, pid)
        kind = name.partition(":")[0]
        others = set().union(*(of_one for other, of_one in OF_ONE.items() if other != kind))
        assert modules & (NEVER_RUN | OF_A_WEB_SERVER | others) == set(), name
        assert modules >= OF_ONE[kind] | {"devherd.settings"}, name
        assert "libcrypto" not in Path(f"/proc/{pid}/maps").read_text(), name


async def test_nothing_is_imported_before_the_first_registration_that_only_delays_it(shown):
    """A tenth of a second of the start: who reads words and source code is imported when there are some to read."""
    await shown.kubelet.until_allocatable("example.com/a", 1)

    pids = await running(shown)
    others = {name: pids[name] for name in ("resource:example.com_a", "scanner")}
    for name, pid in {"supervisor": shown.herd.pid, **others}.items():
        modules = await imported(shown, pid)
        assert "devherd.settings" in modules
        assert modules & (DELAYS_A_START | NOT_FOR_THEM) == set(), name


@pytest.mark.on("generic", A)
async def test_a_bad_configuration_changes_nothing_also_over_restarts(testbed):
    """The last good one stays in force for a scanner that is started again, and the error has been said."""
    await testbed.kubelet.until_allocatable("example.com/a", 1)
    pids = await running(testbed)
    testbed.configure({"simulatde": []})
    await supervisorctl(testbed, "reload")
    await testbed.until(
        lambda: "configuration not reloaded, the old one stays: bad configuration in" in testbed.log, "it is said"
    )
    mark = testbed.kubelet.events.mark()

    for name in ("scanner", "exporter"):
        os.kill(pids[name], signal.SIGKILL)
    await testbed.until(
        lambda: all(testbed.children()[name].restarts["signal"] == 1 for name in ("scanner", "exporter")), "restarts"
    )
    scanned = testbed.settings.scan_file.stat().st_mtime_ns
    await testbed.until(lambda: testbed.settings.scan_file.stat().st_mtime_ns > scanned, "another scan")

    assert testbed.kubelet.events.since(mark, resource="example.com/a") == []
    assert testbed.log.count("simulatde: unknown key — did you mean `simulated`?") == 1


@pytest.mark.on("generic", A)
async def test_a_scanner_that_is_started_again_takes_the_configuration_as_it_is_now(testbed):
    """`supervisorctl restart scanner` after an edit; nobody has to reload as well."""
    await testbed.kubelet.until_allocatable("example.com/a", 1)
    await running(testbed)

    testbed.configure(B)
    await supervisorctl(testbed, "restart", "scanner")

    await testbed.kubelet.until_allocatable("example.com/b", 1)
    await testbed.until(lambda: "resource:example.com_a" not in testbed.children(), "a is gone")


@pytest.mark.on("generic", A)
async def test_a_resolved_configuration_that_is_removed_is_there_again(testbed):
    """Somebody swept the run directory: the next scanner has what the last one had."""
    await testbed.kubelet.until_allocatable("example.com/a", 1)
    await running(testbed)
    before = testbed.settings.resolved_config_file.read_bytes()
    mark = testbed.kubelet.events.mark()

    testbed.settings.resolved_config_file.unlink()
    await supervisorctl(testbed, "restart", "scanner")
    await testbed.until(testbed.settings.resolved_config_file.exists, "it is put back")
    await running(testbed)

    assert testbed.settings.resolved_config_file.read_bytes() == before
    assert testbed.kubelet.events.since(mark, resource="example.com/a") == []


@pytest.mark.on("generic", A)
async def test_the_command_reload_waits_and_fails_when_the_configuration_is_refused(testbed):
    """`systemctl reload` and a script were told that all is well while the old one stayed."""
    await testbed.kubelet.until_allocatable("example.com/a", 1)
    words = ("reload", "--run-dir", str(testbed.settings.run_dir), "--config", str(testbed.settings.config_path))
    testbed.configure({"simulatde": []})
    refused = await asyncio.to_thread(devherd, *words)
    testbed.configure(B)
    taken = await asyncio.to_thread(devherd, *words)
    await testbed.kubelet.until_allocatable("example.com/b", 1)
    both = await asyncio.gather(*(asyncio.to_thread(devherd, *words) for _ in range(2)))

    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("devherd: configuration not reloaded, the old one stays — bad configuration in ")
    assert "simulatde: unknown key — did you mean `simulated`? — correct it, and reload again\n" in refused.stderr
    for each in (taken, *both):
        assert (each.returncode, each.stderr) == (0, "")
        assert each.stdout.startswith("configuration reloaded from /")


@pytest.mark.on("generic", A)
async def test_reloads_in_a_row_end_with_the_last_configuration(testbed):
    """One that is asked for while the loader reads is made afterwards."""
    await testbed.kubelet.until_allocatable("example.com/a", 1)
    await running(testbed)

    for config in (A, B, {"simulatde": []}, A, B):
        testbed.configure(config)
        os.kill(testbed.herd.pid, signal.SIGHUP)

    await testbed.kubelet.until_allocatable("example.com/b", 1)
    await testbed.until(lambda: "resource:example.com_a" not in testbed.children(), "a is gone")
    assert testbed.children()["scanner"].restarts == {}


@pytest.mark.on("generic", A)
async def test_without_an_address_there_is_no_exporter_and_a_reload_brings_and_ends_it(testbed):
    """`listen: ""`: nothing runs for nothing, and nobody calls that a fault."""
    await testbed.stop_herd()
    settings = testbed.settings
    where = [f"--run-dir={settings.run_dir}", f"--kubelet-dir={settings.kubelet_dir}"]
    more = [f"--config={settings.config_path}", f"--host-root={settings.host_root}"]
    testbed.configure({**A, "listen": ""})
    await testbed.start_herd(listens=False)
    await testbed.kubelet.until_allocatable("example.com/a", 1)
    await testbed.until(lambda: testbed.runs("scanner"), "it runs")
    assert "no HTTP" in testbed.log

    async def no_fault_without():
        await testbed.until(lambda: "exporter" not in testbed.children(), "no exporter")
        assert "exporter" not in await supervisorctl(testbed, "status")
        status = await asyncio.to_thread(devherd, "status", *where)
        assert "; no HTTP" in status.stdout
        assert "not serving" not in status.stdout
        doctor = await asyncio.to_thread(devherd, "doctor", *where, *more)
        assert "an instance runs in" in doctor.stdout
        assert "exporter" not in doctor.stdout

    await no_fault_without()
    testbed.configure({**A, "listen": settings.listen})
    await supervisorctl(testbed, "reload")
    await until_ready(testbed)
    status = await asyncio.to_thread(devherd, "status", *where)
    assert f"HTTP on {settings.listen}" in status.stdout

    testbed.configure({**A, "listen": ""})
    await supervisorctl(testbed, "reload")
    await no_fault_without()
    assert await get(testbed, "/readyz") == (0, "")
