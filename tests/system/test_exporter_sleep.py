"""The exporter runs while somebody connects: it binds and ends, and answers the next who connects."""

import asyncio
import http.client
import shutil
import socket
import ssl
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest
from certificates import Authority
from outside import devherd, get, supervisorctl, until_ready

from devherd import spool
from devherd.proto import spool_pb2

NAME = "example.com/a"
CONFIG = {"simulated": [{"name": NAME, "count": 2}], "exporter": {"sleep_after": "1s"}}
SLEEPS = "exporter sleeps until the next connection"
asleep_soon = pytest.mark.on("generic", CONFIG)


def child(testbed):
    """What the supervisor says of the exporter."""
    return testbed.children().get("exporter", spool_pb2.Child())


def exporters(testbed):
    """The supervisor's children that are exporters."""
    pids = Path(f"/proc/{testbed.herd.pid}/task/{testbed.herd.pid}/children").read_text().split()
    found = []
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):  # it ends just now
            if b"devherd: exporter" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


async def asleep(testbed):
    """Wait until it sleeps; one that has just been woken may be called asleep still."""
    await testbed.kubelet.until_allocatable(NAME, 2)
    await testbed.until(lambda: child(testbed).asleep and not exporters(testbed), "the exporter sleeps")


@asleep_soon
async def test_an_exporter_that_nobody_asks_ends_and_answers_the_next_scrape(testbed):
    """The first answer is whole, and the process is the only thing that went."""
    await asleep(testbed)
    assert exporters(testbed) == []

    for number in range(1, 4):
        status, metrics = await get(testbed, "/metrics")
        assert status == 200
        assert f'devherd_devices{{health="Healthy",resource_name="{NAME}"}} 2.0' in metrics
        assert 'devherd_child_up{child="exporter"} 1.0' in metrics
        await testbed.until(lambda: testbed.log.count(SLEEPS) == number + 1, "it sleeps again")  # noqa: B023
        await asleep(testbed)
        assert not child(testbed).restarts
        assert not child(testbed).last_exit


@pytest.mark.on("generic", {"simulated": [{"name": NAME, "count": 2}]})
async def test_an_exporter_binds_at_the_start_and_sleeps_until_somebody_connects(testbed):
    """It says where it serves, nobody asks, and it takes no memory; whoever asks has it for ten minutes."""
    await asleep(testbed)
    assert exporters(testbed) == []
    assert f"serving http://{testbed.settings.listen}" in testbed.log
    [address] = spool.read(testbed.settings.served_file, spool_pb2.Addresses).addresses
    assert (address.address, address.refusal) == (testbed.settings.listen, "")

    await until_ready(testbed)
    await asyncio.sleep(2.5)
    assert len(exporters(testbed)) == 1
    assert not child(testbed).asleep
    assert not child(testbed).restarts


@asleep_soon
async def test_what_a_sleeping_exporter_has_said_of_its_addresses_is_written_again_if_it_is_removed(testbed):
    """`devherd status` reads it, also after somebody has cleared the run directory."""
    await asleep(testbed)
    shutil.rmtree(testbed.settings.http_directory)
    await testbed.until(testbed.settings.served_file.exists, "it is there again")
    await asleep(testbed)
    assert not child(testbed).restarts


@asleep_soon
async def test_doctor_and_page_find_no_fault_in_a_sleeping_exporter(testbed):
    """Neither is a port that only the supervisor has open another program's."""
    await asleep(testbed)
    settings = testbed.settings
    where = (f"--run-dir={settings.run_dir}", f"--kubelet-dir={settings.kubelet_dir}", f"--listen={settings.listen}")
    done = await asyncio.to_thread(devherd, "doctor", *where, "--host-root", str(settings.host_root))
    assert "an instance runs in" in done.stdout
    assert "exporter" not in done.stdout
    assert settings.listen not in done.stdout
    assert child(testbed).asleep, "doctor does not wake it"

    status, page = await get(testbed, "/")
    assert status == 200
    assert "3 of 3 running" in page


@asleep_soon
async def test_a_sleeping_exporter_serves_tls_with_the_files_of_the_moment_in_which_it_wakes(testbed, tool):
    """They may have been renewed while nobody watched them; until they are right again, nothing is served."""
    await testbed.kubelet.until_allocatable(NAME, 2)
    await testbed.stop_herd()
    authority = Authority(tool("openssl"), testbed.directory / "certificates")
    certificate, key = authority.sign("server", "IP:127.0.0.1")
    web = testbed.directory / "web.yaml"
    web.write_text(f"tls_server_config: {{cert_file: {certificate}, key_file: {key}}}\n")
    await testbed.start_herd(f"--web-config={web}")
    await asleep(testbed)

    def shown():
        host, port = testbed.settings.listen.split(":")
        trusting = ssl.create_default_context(cafile=authority.certificate)
        with closing(http.client.HTTPSConnection(host, int(port), timeout=20, context=trusting)) as connection:
            connection.request("GET", "/healthz")
            assert connection.getresponse().read() == b"ok\n"
            return connection.sock.getpeercert()["serialNumber"]

    first = await asyncio.to_thread(shown)
    await asleep(testbed)
    authority.sign("server", "IP:127.0.0.1")
    assert await asyncio.to_thread(shown) != first
    await asleep(testbed)

    good = key.read_bytes()
    key.write_text("nothing")
    with pytest.raises((http.client.HTTPException, ConnectionError, ssl.SSLError)):
        await asyncio.to_thread(shown)
    await testbed.until(lambda: "cannot use the certificates" in testbed.log, "it says so")
    assert not child(testbed).asleep
    key.write_bytes(good)
    await testbed.until(lambda: testbed.log.count("serving https") > 3, "it serves again")
    assert await asyncio.to_thread(shown)


@asleep_soon
async def test_many_who_connect_at_once_to_a_sleeping_exporter_are_all_answered(testbed):
    """They wait in the kernel until the process is there."""
    await asleep(testbed)
    states = partial(spool.read_all, testbed.settings.state_directory, spool_pb2.ResourceState)
    await testbed.until(lambda: [state.registered for _, state in states()] == [True], "/readyz can say so")
    answers = await asyncio.gather(*(get(testbed, path) for path in ("/healthz", "/readyz", "/metrics") * 10))
    assert [status for status, _ in answers] == [200] * 30


@asleep_soon
async def test_a_connection_that_stays_keeps_the_exporter_up(testbed):
    """As a scraper's does, and a probe each ten seconds."""
    await testbed.until(lambda: "serving http" in testbed.log, "it listens")
    host, port = testbed.settings.listen.split(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=20)) as connection:
        for _ in range(2):
            await asyncio.to_thread(connection.request, "GET", "/healthz")
            assert (await asyncio.to_thread(lambda: connection.getresponse().read())) == b"ok\n"
            await asyncio.sleep(2.5)
        assert len(exporters(testbed)) == 1
    await asleep(testbed)


@asleep_soon
async def test_status_and_supervisorctl_call_a_sleeping_exporter_no_fault(testbed):
    """It is as it should be, also for scripts that look at exit codes."""
    await asleep(testbed)
    settings = testbed.settings
    where = (f"--run-dir={settings.run_dir}", f"--kubelet-dir={settings.kubelet_dir}")
    done = await asyncio.to_thread(devherd, "status", *where)
    assert "asleep" in done.stdout
    assert "silent" not in done.stdout
    said = await supervisorctl(testbed, "status", "exporter")
    assert said.split() == ["exporter", "RUNNING", "asleep", "until", "the", "next", "connection"]
    assert child(testbed).asleep


@asleep_soon
async def test_a_sleeping_exporter_that_is_stopped_gives_its_address_free(testbed):
    """And serves again when it is started."""
    await asleep(testbed)
    assert "exporter: stopped" in await supervisorctl(testbed, "stop", "exporter")
    assert await get(testbed, "/healthz") == (0, "")
    host, port = testbed.settings.listen.split(":")
    with socket.create_server((host, int(port))):
        pass
    assert "exporter: started" in await supervisorctl(testbed, "start", "exporter")
    await testbed.child("exporter")
    await testbed.until(lambda: "serving http" in testbed.log.rpartition("exporter stopped")[2], "it listens")
    assert await get(testbed, "/healthz") == (200, "ok\n")


@asleep_soon
async def test_a_reload_wakes_a_sleeping_exporter_which_takes_the_new_configuration(testbed):
    """Here that it never sleeps from now on."""
    await asleep(testbed)
    testbed.configure({**CONFIG, "exporter": {"sleep_after": 0}})
    await supervisorctl(testbed, "reload")
    await testbed.until(lambda: len(exporters(testbed)) == 1, "it runs")
    await asyncio.sleep(2.5)
    assert not child(testbed).asleep


@asleep_soon
async def test_a_unix_socket_stays_while_the_exporter_sleeps_and_goes_with_the_instance(testbed):
    """A second start finds its place free."""
    await testbed.kubelet.until_allocatable(NAME, 2)
    await testbed.stop_herd()
    path = testbed.directory / "http.sock"
    await testbed.start_herd(f"--listen=unix:{path},{testbed.settings.listen}")
    await asleep(testbed)
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(path))
        client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        received = await asyncio.to_thread(client.recv, 1000)
    assert received.startswith(b"HTTP/1.1 200 OK")
    await asleep(testbed)
    assert (await get(testbed, "/healthz"))[0] == 200
    await asleep(testbed)
    assert path.is_socket()
    assert await testbed.stop_herd() == 0
    assert not path.exists()


@asleep_soon
async def test_an_exporter_whose_address_is_in_use_stays_awake_until_it_has_it(testbed):
    """It says why, as ever, and tries again."""
    await testbed.kubelet.until_allocatable(NAME, 2)
    await testbed.stop_herd()
    host, port = testbed.settings.listen.split(":")
    with socket.create_server((host, int(port))):
        await testbed.start_herd()
        await testbed.until(lambda: "trying again" in testbed.log, "it says so")
        await asyncio.sleep(2.5)
        assert len(exporters(testbed)) == 1
    await asleep(testbed)


@asleep_soon
async def test_the_next_instance_gets_the_address_of_an_exporter_that_sleeps(testbed):
    """A roll-out on the node's own network: the address is free once the old instance has ended."""
    await asleep(testbed)
    old = testbed.herd
    await testbed.start_herd("--take-over")
    await testbed.until(lambda: "another instance runs here" in testbed.log, "the new one stands by")
    mark = testbed.kubelet.events.mark()

    old.terminate()
    assert await asyncio.wait_for(old.wait(), 20) == 0
    await testbed.kubelet.until_registered(NAME, since=mark)

    serving = f"exporter: serving http://{testbed.settings.listen}"
    await testbed.until(lambda: serving in testbed.log.partition("taking over after ")[2], "it serves")
    await until_ready(testbed)


@pytest.mark.on("generic", {"simulated": [{"name": NAME, "count": 2}]})
async def test_without_an_address_there_is_no_exporter_and_a_reload_brings_and_ends_it(testbed):
    """`listen: ""`: nothing runs for nothing, and nobody calls that a fault."""
    await testbed.stop_herd()
    settings = testbed.settings
    config = {"simulated": [{"name": NAME, "count": 2}]}
    where = [f"--run-dir={settings.run_dir}", f"--kubelet-dir={settings.kubelet_dir}"]
    more = [f"--config={settings.config_path}", f"--host-root={settings.host_root}"]
    testbed.configure({**config, "listen": ""})
    await testbed.start_herd(listens=False)
    await testbed.kubelet.until_allocatable(NAME, 2)
    await testbed.until(lambda: testbed.runs("scanner"), "it runs")
    assert "no HTTP" in testbed.log

    async def no_fault_without():
        await testbed.until(lambda: "exporter" not in testbed.children(), "no exporter")
        assert exporters(testbed) == []
        assert "exporter" not in await supervisorctl(testbed, "status")
        status = await asyncio.to_thread(devherd, "status", *where)
        assert "; no HTTP" in status.stdout
        assert "not serving" not in status.stdout
        doctor = await asyncio.to_thread(devherd, "doctor", *where, *more)
        assert "an instance runs in" in doctor.stdout
        assert "exporter" not in doctor.stdout

    await no_fault_without()
    testbed.configure({**config, "listen": settings.listen})
    await supervisorctl(testbed, "reload")
    await asleep(testbed)
    await until_ready(testbed)
    status = await asyncio.to_thread(devherd, "status", *where)
    assert f"HTTP on {settings.listen}" in status.stdout

    testbed.configure({**config, "listen": ""})
    await supervisorctl(testbed, "reload")
    await no_fault_without()
    assert await get(testbed, "/readyz") == (0, "")


@asleep_soon
async def test_a_unix_socket_that_the_configuration_has_no_more_is_removed_though_the_exporter_sleeps(testbed):
    """An exporter that runs removes it; the next process of one that sleeps may not write in the directory."""
    await testbed.kubelet.until_allocatable(NAME, 2)
    await testbed.stop_herd()
    old, new = testbed.directory / "old/http.sock", testbed.directory / "new/http.sock"
    for path in (old, new):
        path.parent.mkdir()
    testbed.configure({**CONFIG, "listen": f"unix:{old}"})
    await testbed.start_herd(listens=False)
    await testbed.until(lambda: old.is_socket() and child(testbed).asleep, "it sleeps")

    testbed.configure({**CONFIG, "listen": f"unix:{new}"})
    await supervisorctl(testbed, "reload")
    await testbed.until(lambda: new.is_socket() and child(testbed).asleep, "it sleeps elsewhere")
    assert not old.exists()


@pytest.mark.on("generic", {"simulated": [{"name": NAME, "count": 2}]})
async def test_nobody_who_connects_is_refused_while_the_exporter_is_replaced_in_a_fresh_sandbox(testbed):
    """Defect: from its end until the next process had bound again, probes and scrapes were refused."""
    await asleep(testbed)
    assert (await get(testbed, "/healthz")) == (200, "ok\n")
    [before] = exporters(testbed)
    shutil.rmtree(testbed.settings.http_directory)

    answers = []

    def is_replaced():
        now = child(testbed)
        return now.pid and str(now.pid) != before and now.state == "RUNNING"

    while not is_replaced():
        answers.append(await get(testbed, "/healthz"))
    answers.append(await get(testbed, "/healthz"))
    assert {*answers} == {(200, "ok\n")}, testbed.log
    assert "exporter: ended for a fresh sandbox" in testbed.log
