"""devherd whole with `front_end: dra`: two processes serve each driver, and no pod notices the end of either.

What a pod needs of a driver is played by a call of the embedded kubelet each 100 ms. Claims are prepared by a stand-in.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from devherd import spool
from devherd.proto import dra_v1_pb2, spool_pb2
from devherd_sim.kubelet import plugin_watcher
from devherd_sim.kubelet.connections import PluginError
from devherd_sim.testbed import free_port

AMD, OTHER = "gpu.amd.com", "simulated.devherd.io"
CONFIG = {"front_end": "dra", "simulated": [{"name": "example.com/thing", "count": 2}]}

pytestmark = pytest.mark.on("amd-8", CONFIG)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """The kubelet's seconds are twentieths here."""
    monkeypatch.setattr(plugin_watcher, "PERIOD_SECONDS", 0.05)


class Pods:
    """A pod each 100 ms: what became of its claim."""

    def __init__(self, kubelet, driver=AMD):
        self.kubelet = kubelet
        self.driver = driver
        self.failed = []
        """What the kubelet said, and when the call began and ended, in monotonic seconds."""
        self.served = 0
        self._number = 0

    async def start_one(self):
        """One claim for one device."""
        self._number += 1
        began = time.monotonic()
        claim = dra_v1_pb2.Claim(namespace="default", name="gpu-0-128", uid=f"uid-{self._number}")
        try:
            answer = (await self.kubelet.dra.prepare(self.driver, [claim]))[claim.uid]
            assert answer.error == ""
            assert answer.devices[0].device_name == claim.name
        except PluginError as error:
            self.failed.append((str(error), began, time.monotonic()))
        else:
            self.served += 1

    @contextlib.asynccontextmanager
    async def coming(self):
        """They come meanwhile, however long each takes."""
        pods = []

        async def come():
            while True:
                pods.append(asyncio.create_task(self.start_one()))
                await asyncio.sleep(0.1)

        coming = asyncio.create_task(come())
        try:
            yield self
        finally:
            coming.cancel()
            await asyncio.gather(*pods)


def states(testbed):
    """By process: what it says of its drivers."""
    found = spool.read_all(testbed.settings.dra_directory, spool_pb2.DraState)
    return {letter: {driver.name: driver for driver in state.drivers} for letter, state in found}


def sockets(testbed):
    """All sockets of drivers, below the kubelet's directory."""
    directory = testbed.settings.kubelet_dir
    return sorted(str(path.relative_to(directory)) for path in directory.glob("plugins*/**/*.sock"))


def endpoints(testbed, driver):
    """Where the kubelet knows the driver's plugins."""
    return sorted(each.endpoint for each in testbed.kubelet.dra.plugins(driver) if each.is_connected)


async def both_registered(testbed, *drivers):
    """Until the kubelet is connected to both processes for each driver, and both say so."""
    for driver in drivers or (AMD, OTHER):
        own = [str(testbed.settings.plugins_directory / driver / f"dra-{letter}.sock") for letter in "ab"]
        await testbed.until(lambda own=own, driver=driver: endpoints(testbed, driver) == own, f"both serve {driver}")
        await testbed.until(
            lambda driver=driver: [s[driver].registered for s in states(testbed).values()] == [True, True],
            "both say so",
        )


def is_replaced(testbed, child):
    """Whether the supervisor has started another process of this name."""
    return testbed.children()[child.name].pid not in (0, child.pid)


def called(testbed, driver=AMD):
    """The letter of the process that the kubelet calls, and that of the other one."""
    letter = testbed.kubelet.dra.chosen(driver).endpoint.removesuffix(".sock")[-1]
    return letter, "ab".replace(letter, "")


async def test_the_process_that_publishes_is_started_with_those_that_serve(testbed):
    """Pods wait for slices; the kubelet takes a second to find the drivers, and it is ready by then."""
    await testbed.until(testbed.runs, "every child runs")
    started = [name for name in ("dra:a", "dra:b", "kubernetes", "scanner") if f"{name} started" in testbed.log]
    assert max(started, key=lambda name: testbed.log.index(f"{name} started")) == "scanner"
    assert len(started) == 4


async def test_two_processes_serve_every_driver_and_leave_nothing(testbed):
    """No resource process runs beside them."""
    await both_registered(testbed)
    await testbed.until(testbed.runs, "every child runs")
    assert {name for name in testbed.children() if ":" in name} == {"dra:a", "dra:b"}
    assert sockets(testbed) == sorted(
        name
        for driver in (AMD, OTHER)
        for letter in "ab"
        for name in (f"plugins_registry/{driver}-{letter}-reg.sock", f"plugins/{driver}/dra-{letter}.sock")
    )
    pods = Pods(testbed.kubelet)
    await pods.start_one()
    assert (pods.served, pods.failed) == (1, [])
    status = [sys.executable, "-m", "supervisor.supervisorctl", "-c", str(testbed.settings.supervisord_conf), "status"]
    shown = await asyncio.to_thread(subprocess.run, status, capture_output=True, text=True, check=False)
    assert [line.split()[:2] for line in shown.stdout.splitlines() if line.startswith("dra:")] == [
        ["dra:a", "RUNNING"],
        ["dra:b", "RUNNING"],
    ]
    assert await testbed.stop_herd() == 0
    assert sockets(testbed) == []


@pytest.mark.parametrize("is_called", [True, False], ids=["called", "other"])
async def test_no_pod_waits_when_one_process_is_killed(testbed, is_called):
    """Of a call that it was answering, the kubelet hears an error; the next one is answered by the twin."""
    await both_registered(testbed)
    kills = []
    async with Pods(testbed.kubelet).coming() as pods:
        for _ in range(3):
            letter = called(testbed)[not is_called]
            child = await testbed.child(f"dra:{letter}")
            served = pods.served
            killed_at = time.monotonic()
            os.kill(child.pid, signal.SIGKILL)
            await testbed.until(lambda letter=letter: called(testbed)[0] != letter, "the kubelet knows")
            kills.append((killed_at, time.monotonic()))
            await testbed.until(lambda served=served: pods.served > served + 3, "others are served")
            await testbed.until(lambda child=child: is_replaced(testbed, child), "another")
            await both_registered(testbed, AMD)
    for what, began, ended in pods.failed:
        assert is_called, what
        assert any(began <= known_at and killed_at <= ended for killed_at, known_at in kills), what


@pytest.mark.on("amd-8", CONFIG, silence=2.5)
async def test_the_twin_serves_when_a_process_hangs(testbed):
    """The supervisor kills it as any other; that of the two which the kubelet does not call costs nothing."""
    await both_registered(testbed)
    for letter in called(testbed)[::-1]:
        async with Pods(testbed.kubelet).coming() as pods:
            child = await testbed.child(f"dra:{letter}")
            is_called = called(testbed)[0] == letter
            os.kill(child.pid, signal.SIGSTOP)
            await testbed.until(lambda child=child: is_replaced(testbed, child), "killed")
            failed, served = len(pods.failed), pods.served
            await testbed.until(lambda served=served: pods.served > served + 3, "the twin serves")
            await both_registered(testbed, AMD)
            if not is_called:
                assert (failed, pods.failed) == (0, [])


async def test_a_restart_by_supervisorctl_costs_no_pod(testbed):
    """It answers what it was asked, and goes."""
    await both_registered(testbed)
    async with Pods(testbed.kubelet).coming() as pods:
        for letter in "abab":
            child = await testbed.child(f"dra:{letter}")
            os.kill(child.pid, signal.SIGTERM)
            await testbed.until(lambda child=child: is_replaced(testbed, child), "another")
            await both_registered(testbed, AMD)
    assert pods.failed == []


@pytest.mark.parametrize("second", [1.0, 0.05], ids=["usual kubelet", "quick kubelet"])
async def test_no_pod_is_refused_during_a_roll_out(testbed, second, monkeypatch):
    """The new processes come in the places of the old ones, first of that which the kubelet does not call."""
    monkeypatch.setattr(plugin_watcher, "PERIOD_SECONDS", second)
    await both_registered(testbed)
    for _ in range(2):
        async with Pods(testbed.kubelet).coming() as pods:
            old = testbed.herd
            before = {name: child.pid for name, child in testbed.children().items()}
            testbed.settings = replace(testbed.settings, listen=f"127.0.0.1:{free_port()}")
            await testbed.start_herd("--take-over")
            serving = f"standby: serving http://{testbed.settings.listen}"
            await testbed.until(lambda serving=serving: serving in testbed.log, "it stands by")
            old.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(old.wait(), 30) == 0
            await testbed.until(
                lambda before=before: (
                    testbed.runs("dra:a", "dra:b")
                    and all(testbed.children()[name].pid != before[name] for name in ("dra:a", "dra:b"))
                ),
                "the new ones run",
            )
            await both_registered(testbed)
            assert pods.served > 3
        assert pods.failed == []
    assert "has not taken over" not in testbed.log


async def test_a_driver_that_is_new_costs_no_pod_of_another(testbed):
    """Both processes need a new sandbox for it: one after the other."""
    testbed.configure({"front_end": "dra"})
    await both_registered(testbed, AMD)
    testbed.configure(
        CONFIG | {"generic": [{"name": "example.com/null", "groups": [{"paths": [{"path": "/dev/kvm"}]}]}]}
    )
    (testbed.node.root / "dev/kvm").touch()
    async with Pods(testbed.kubelet).coming() as pods:
        testbed.herd.send_signal(signal.SIGHUP)
        await both_registered(testbed, AMD, "generic.devherd.io")
    assert pods.failed == []
    assert testbed.log.count("a new sandbox has the directories of generic.devherd.io") == 2


async def test_a_kubelet_that_comes_late_finds_every_driver(testbed):
    """Its directories are awaited."""
    await both_registered(testbed)
    assert await testbed.stop_herd() == 0
    await testbed.kubelet.stop(clean=True)
    for directory in (testbed.settings.plugins_registry, testbed.settings.plugins_directory):
        shutil.rmtree(directory)
    await testbed.start_herd()
    await testbed.until(lambda: "does not exist" in states(testbed)["a"][AMD].detail, "it says so")
    assert not testbed.settings.plugins_directory.exists()
    await testbed.kubelet.start()
    await both_registered(testbed)


async def test_removed_sockets_come_back(testbed):
    """Also with their directories; one of a pair costs no pod."""
    await both_registered(testbed)
    registry, plugins = testbed.settings.plugins_registry, testbed.settings.plugins_directory
    async with Pods(testbed.kubelet).coming() as pods:
        letter, other = called(testbed)
        for path in (registry / f"{AMD}-{other}-reg.sock", plugins / AMD / f"dra-{letter}.sock"):
            path.unlink()
            await testbed.until(path.exists, "it is there again")
            await both_registered(testbed)
    assert pods.failed == []
    for path in list(registry.iterdir()):
        path.unlink()
    await testbed.until(lambda: len(list(registry.glob("*.sock"))) == 4, "all are there again")
    for letter in "ab":
        (plugins / AMD / f"dra-{letter}.sock").unlink(missing_ok=True)
    (plugins / AMD).rmdir()
    await both_registered(testbed)


async def test_the_kubelet_finds_both_again_after_its_restart(testbed):
    """At the same sockets, and calls at once."""
    await both_registered(testbed)
    times = {letter: drivers[AMD].registered_timestamp_seconds for letter, drivers in states(testbed).items()}
    inodes = {name: (testbed.settings.kubelet_dir / name).stat().st_ino for name in sockets(testbed)}
    await testbed.kubelet.restart(down=0.5)
    await testbed.until(
        lambda: all(states(testbed)[each][AMD].registered_timestamp_seconds > times[each] for each in "ab"), "again"
    )
    await both_registered(testbed)
    pods = Pods(testbed.kubelet)
    await pods.start_one()
    assert (pods.served, pods.failed) == (1, [])
    assert {name: (testbed.settings.kubelet_dir / name).stat().st_ino for name in sockets(testbed)} == inodes


async def test_the_health_of_all_devices_is_there_again_at_once_when_a_process_ends(testbed):
    """The kubelet forgets it with the stream; the twin sends the next list before it is due."""
    await both_registered(testbed)
    await testbed.until(lambda: len(testbed.kubelet.dra.health.get(AMD, {})) == 8, "all are known")
    assert set(testbed.kubelet.dra.health[AMD].values()) == {("HEALTHY", "")}
    for letter in "ab":
        child, events = await testbed.child(f"dra:{letter}"), testbed.kubelet.events
        mark = events.mark()
        os.kill(child.pid, signal.SIGKILL)
        await events.wait("health-forgotten", AMD, since=mark)
        mark += [each.kind for each in events.since(mark)].index("health-forgotten")
        known = await events.wait("health", AMD, since=mark)
        assert known.detail["devices"] == 8
        await both_registered(testbed, AMD)


async def test_a_directory_in_the_place_of_a_socket_costs_no_other_driver(testbed):
    """It is said, and tried again."""
    await both_registered(testbed)
    await testbed.stop_herd()
    path = testbed.settings.plugins_registry / f"{AMD}-a-reg.sock"
    path.mkdir()
    await testbed.start_herd()
    await both_registered(testbed, OTHER)
    await testbed.until(lambda: states(testbed)["b"][AMD].registered, "the twin serves it")
    await testbed.until(lambda: "is a directory" in states(testbed)["a"][AMD].detail, "it is said")
    path.rmdir()
    await both_registered(testbed)
