"""One driver in one process, before the embedded kubelet: registration, calls, health, and the order of a hand-over."""

import asyncio
import contextlib
import logging

import pytest
import pytest_asyncio
from standing_in import StandIn

from devherd import spool
from devherd.dra import driver as driver_module
from devherd.dra import health as health_module
from devherd.dra import service as service_module
from devherd.dra.driver import Driver
from devherd.dra.health import DriverHealth
from devherd.dra.pools import Pools
from devherd.dra.registrations import Registrations
from devherd.dra.service import ClaimCalls
from devherd.dra.sockets import registration_socket, service_socket
from devherd.health.policy import Verdict
from devherd.history import History
from devherd.kubelet.registration import Broadcast
from devherd.proto import dra_health_v1_pb2, dra_v1_pb2, spool_pb2
from devherd.settings import Settings
from devherd_sim.kubelet import dra_plugins, plugin_watcher
from devherd_sim.kubelet.manager import EmbeddedKubelet

NAME = "gpu.example.com"
NODE = "node-1"


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Seconds of kubelet and driver are twentieths here."""
    for name in ("PERIOD_SECONDS", "FIRST_BACKOFF_SECONDS"):
        monkeypatch.setattr(plugin_watcher, name, 0.05)
    monkeypatch.setattr(dra_plugins, "HEALTH_AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(driver_module, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(driver_module, "LATE_SECONDS", 0.05)
    monkeypatch.setattr(service_module, "SETTLED_SECONDS", 0.025)


class OneDevice:
    """A device as far as health looks at it."""

    def __init__(self, name, *reasons):
        self.name = name
        self.key = ("example", "", name)
        self.subject = self
        self.verdict = Verdict(reasons)


class SmallPools:
    """In place of PoolFiles."""

    def __init__(self):
        self.pools = None

    def put(self, *devices, withheld=()):
        """New content."""
        self.pools = Pools({NAME: list(devices)}, dict(withheld))

    def device(self, _driver, name):
        """The device with this name."""
        return next((device for device in self.pools.devices[NAME] if device.name == name), None)


class Host:
    """A kubelet's directory and a run directory, and what runs on them."""

    def __init__(self, directory):
        self.settings = Settings(kubelet_dir=directory / "k", run_dir=directory / "r")
        self.settings.run_dir.mkdir()
        self.kubelet = EmbeddedKubelet(self.settings.kubelet_dir)
        self.pools = SmallPools()
        self.changed = Broadcast()
        self.preparation = StandIn(self.settings, None, NODE, self.pools)
        self._running = []

    def make(self, letter="a"):
        """Driver and state of one process, of which nothing runs yet."""
        history = History(self.settings.history_directory, f"dra:{letter}")
        states = Registrations(self.settings.dra_directory, letter, history)
        self.settings.dra_directory.mkdir(exist_ok=True)
        states.begins(NAME)
        calls = ClaimCalls(NAME, self.preparation)
        health = DriverHealth(NAME, NODE, self.pools, self.changed)
        return Driver(NAME, letter, self.settings, states, calls=calls, health=health), states

    @contextlib.asynccontextmanager
    async def serving(self, letter="a"):
        """One that runs; it has ended afterwards."""
        driver, states = self.make(letter)
        task = asyncio.create_task(driver.run())
        try:
            yield driver, states, task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await driver.end()
            for server in filter(None, (driver._service, driver._registration)):
                await server.close(0)  # as the end of the process does

    def state(self, letter="a"):
        """What the process says of the driver."""
        path = spool.path_of(self.settings.dra_directory, letter)
        return next(iter(spool.read_or_empty(path, spool_pb2.DraState).drivers), spool_pb2.DraDriver())


@pytest_asyncio.fixture
async def host(directory):
    """A host whose kubelet does not run yet."""
    host = Host(directory)
    yield host
    await host.kubelet.stop()


async def until(condition, what="it becomes true"):
    """Wait for a condition."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - of anything
            await asyncio.sleep(0.005)
    assert condition(), what


def claim(name, uid=None, namespace="default"):
    """A claim as the kubelet names it."""
    return dra_v1_pb2.Claim(namespace=namespace, name=name, uid=uid or f"uid-of-{name}")


async def test_the_kubelet_is_told_all_services_and_where_they_are(host):
    """The best first: it takes the first that it knows."""
    await host.kubelet.start()
    async with host.serving():
        await until(lambda: host.state().registered)
        (plugin,) = host.kubelet.dra.plugins(NAME)
        assert plugin.endpoint == str(service_socket(host.settings, NAME, "a"))
        assert driver_module.SERVICES == [
            "v1.DRAPlugin",
            "v1beta1.DRAPlugin",
            "v1.DRAResourceHealth",
            "v1alpha1.DRAResourceHealth",
        ]
    await until(lambda: host.kubelet.dra.plugins(NAME) == [])


@pytest.mark.parametrize(
    "services", [["v1.DRAPlugin", "v1.DRAResourceHealth"], ["v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth"]]
)
async def test_a_kubelet_of_either_version_gets_the_same_answers(host, services, monkeypatch):
    """Only the share of a device is known to one of them alone."""
    monkeypatch.setattr(driver_module, "SERVICES", services)
    host.pools.put(OneDevice("gpu-0"))
    await host.kubelet.start()
    async with host.serving():
        await until(lambda: host.state().registered)
        answer = await host.kubelet.dra.prepare(NAME, [claim("gpu-0", namespace="share-1")])
        (device,) = answer["uid-of-gpu-0"].devices
        assert (list(device.request_names), device.pool_name, device.device_name) == (["main"], NODE, "gpu-0")
        assert list(device.cdi_device_ids) == [f"{NAME}/device=gpu-0"]
        assert getattr(device, "share_id", "") == ("share-1" if services[0] == "v1.DRAPlugin" else "")
        assert (await host.kubelet.dra.unprepare(NAME, [claim("gpu-0")]))["uid-of-gpu-0"].error == ""
        await until(lambda: host.kubelet.dra.health.get(NAME) == {(NODE, "gpu-0"): ("HEALTHY", "")})


async def test_each_claim_of_a_call_has_its_own_error_and_costs_no_other(host):
    """Each uid is answered, and no other; claims that come twice are prepared once."""
    await host.kubelet.start()
    async with host.serving():
        await until(lambda: host.state().registered)
        asked = [claim("gpu-0"), claim("gpu-0"), claim("refused"), claim("broken"), claim("gpu-1")]
        answer = await host.kubelet.dra.prepare(NAME, asked)
        assert {uid: one.error for uid, one in answer.items()} == {
            "uid-of-gpu-0": "",
            "uid-of-gpu-1": "",
            "uid-of-refused": "devherd: example: the claim is refused — as it asks for — ask for another",
            "uid-of-broken": "devherd: the claim cannot be prepared — RuntimeError('as ordered') — this is a defect;"
            " see devherd's log",
        }
        assert len(host.preparation.called) == 4
        answer = await host.kubelet.dra.unprepare(NAME, [claim("x", "refused"), claim("y", "fine")])
        errors = {uid: one.error for uid, one in answer.items()}
        assert errors == {"refused": "devherd: example: it is still in use", "fine": ""}
        assert await host.kubelet.dra.prepare(NAME, []) == {}


async def test_claims_that_wait_hold_up_neither_others_of_the_call_nor_other_calls(host):
    """A claim may wait for the API server for most of a minute."""
    await host.kubelet.start()
    async with host.serving():
        await until(lambda: host.state().registered)
        waiting = asyncio.create_task(host.kubelet.dra.prepare(NAME, [claim("endless"), claim("gpu-0")]))
        await until(lambda: len(host.preparation.called) == 2, "both are prepared at once")
        assert (await host.kubelet.dra.prepare(NAME, [claim("gpu-1")]))["uid-of-gpu-1"].error == ""
        host.preparation.lets_go.set()
        assert {uid: one.error for uid, one in (await waiting).items()} == {"uid-of-endless": "", "uid-of-gpu-0": ""}


@pytest.mark.parametrize("by", ["own limit", "caller"])
async def test_an_answer_comes_before_the_kubelet_gives_up(host, by, monkeypatch):
    """With an error for the claim that is late, and the devices of the others."""
    if by == "own limit":
        monkeypatch.setattr(service_module, "LONGEST_SECONDS", 0.2)
    await host.kubelet.start()
    async with host.serving():
        await until(lambda: host.state().registered)
        seconds = 45.0 if by == "own limit" else 1.3
        answer = await host.kubelet.dra.prepare(NAME, [claim("endless"), claim("gpu-0")], seconds)
        assert answer["uid-of-gpu-0"].error == ""
        assert "was not prepared within 0 s" in answer["uid-of-endless"].error


async def test_a_refusal_is_told_once_and_over_when_the_kubelet_takes_the_driver(host, monkeypatch, caplog):
    """The kubelet tries again by itself, at the same socket."""
    monkeypatch.setattr(dra_plugins, "SERVICES", {"v9.DRAPlugin": ()})
    await host.kubelet.start()
    async with host.serving():
        await until(lambda: len(host.kubelet.events.since(0, "plugin-refused")) > 2)
        assert not host.state().registered
        assert host.state().detail.startswith(
            "the kubelet refused: RegisterPlugin error -- plugin validation failed with err: none of services"
        )
        told = [record for record in caplog.records if "is not registered: the kubelet refused" in record.getMessage()]
        assert [record.levelno for record in told] == [logging.WARNING]
        monkeypatch.undo()
        await until(lambda: host.state().registered)
        assert host.state().detail == ""


async def test_a_socket_that_no_kubelet_has_looked_for_is_made_again(host, monkeypatch):
    """The kubelet has missed the file: it notices new ones alone."""
    monkeypatch.setattr(driver_module, "FIND_SECONDS", 0.1)
    for directory in (host.settings.plugins_registry, host.settings.plugins_directory):
        directory.mkdir(parents=True)
    path = registration_socket(host.settings, NAME, "a")
    async with host.serving():
        await until(path.exists)
        assert host.state().detail == f"waiting for the kubelet to look into {path.parent}"
        first = path.stat()
        await until(lambda: (path.stat().st_ino, path.stat().st_ctime_ns) != (first.st_ino, first.st_ctime_ns), "anew")
        assert host.state().detail == f"the kubelet has not looked into {path.parent} for 0 s"
        await host.kubelet.start()
        await until(lambda: host.state().registered)


async def test_the_kubelets_directories_are_awaited_not_made(host):
    """Those of the drivers in its directory of plugins are, as vendors' drivers do. The missing one is named."""
    missing = f"{host.settings.plugins_directory} is no directory, or does not exist"
    async with host.serving():
        await until(lambda: "does not exist" in host.state().detail)
        assert not host.settings.plugins_directory.exists()
        assert host.state().detail == f"{missing} — in a pod, mount it as on the host"
        await host.kubelet.start()
        await until(lambda: host.state().registered)


async def test_health_follows_every_change_and_names_reasons(host):
    """A device that is not in the pool any more is unknown, with the reason: a container may have it."""
    host.pools.put(OneDevice("gpu-0"), OneDevice("gpu-1"))
    await host.kubelet.start()
    known = lambda: host.kubelet.dra.health.get(NAME)  # noqa: E731
    async with host.serving():
        await until(lambda: known() == {(NODE, f"gpu-{number}"): ("HEALTHY", "") for number in range(2)})
        host.pools.put(OneDevice("gpu-0", "aer-fatal", "cordoned"), OneDevice("gpu-1"))
        host.changed.notify_all()
        await until(lambda: known()[NODE, "gpu-0"] == ("UNHEALTHY", "aer-fatal, cordoned"))
        host.pools.put(OneDevice("gpu-1", "x" * 2000), withheld={("example", "", "gpu-0"): "it is gone"})
        host.changed.notify_all()
        await until(lambda: known()[NODE, "gpu-0"] == ("UNKNOWN", "it is gone"))
        assert known()[NODE, "gpu-1"] == ("UNHEALTHY", "x" * 512)


async def test_a_change_while_a_list_is_on_its_way_is_not_missed(host):
    """Defect: it was sent with the next list, ten seconds later."""
    host.pools.put(OneDevice("gpu-0"))
    health = DriverHealth(NAME, NODE, host.pools, host.changed)
    lists = health_module._Watching(health, dra_health_v1_pb2).lists(None, None)
    assert (await anext(lists)).devices[0].health == dra_health_v1_pb2.HEALTHY
    host.pools.put(OneDevice("gpu-0", "aer-fatal"))
    host.changed.notify_all()
    following = asyncio.ensure_future(anext(lists))
    for _ in range(5):  # rounds of the loop, and no time
        await asyncio.sleep(0)
    assert following.done()
    assert following.result().devices[0].health == dra_health_v1_pb2.UNHEALTHY
    await lists.aclose()


async def test_health_is_sent_again_and_again(host, monkeypatch):
    """After 30 s of silence the kubelet takes it for unknown."""
    monkeypatch.setattr(health_module, "SEND_SECONDS", 0.05)
    host.pools.put(OneDevice("gpu-0"))
    await host.kubelet.start()
    async with host.serving():
        await until(lambda: len(host.kubelet.events.since(0, "health")) > 3)


async def test_a_process_waits_for_the_last_instances_unless_that_gives_its_socket_away(host, monkeypatch):
    """A hand-over ends with the process that answers; one that hangs is not waited for too long."""
    await host.kubelet.start()
    async with host.serving() as (old, _, running):
        await until(lambda: host.state().registered)
        async with host.serving() as (_, _, _):
            await until(lambda: host.state().detail == "waiting for the process before to hand over")
            assert len(host.kubelet.events.since(0, "registered")) == 1
            running.cancel()
            old._service.remove()
            await until(lambda: len(host.kubelet.events.since(0, "registered")) == 2)
    monkeypatch.setattr(driver_module, "PREDECESSOR_SECONDS", 0.2)
    async with host.serving():
        await until(lambda: host.state().registered)
        async with host.serving():
            await until(lambda: len(host.kubelet.events.since(0, "registered")) == 4)


async def test_the_pair_hands_over_one_after_the_other_and_calls_in_progress_are_answered(host):
    """First the one that the kubelet does not call; the other one when it is called no longer."""
    await host.kubelet.start()
    async with contextlib.AsyncExitStack() as stack:
        old = {}
        for letter in "ba":  # so that `a` is registered last
            old[letter] = await stack.enter_async_context(host.serving(letter))
            await until(lambda letter=letter: host.state(letter).registered)
        in_progress = asyncio.create_task(host.kubelet.dra.prepare(NAME, [claim("endless")]))
        await until(lambda: host.preparation.called)
        for _, states, running in old.values():
            running.cancel()
            states.freeze()
        ends = {letter: asyncio.create_task(driver.hand_over()) for letter, (driver, _, _) in old.items()}
        mark = host.kubelet.events.mark()
        for letter in "ab":
            await stack.enter_async_context(host.serving(letter))
        await ends["b"]
        await until(lambda: host.state("b").registered)
        assert "waiting for the process before" in host.state("a").detail
        assert not ends["a"].done(), "it still answers"
        await asyncio.sleep(0.2)
        assert [each.detail["endpoint"][-10] for each in host.kubelet.events.since(mark, "registered")] == ["b"]
        host.preparation.lets_go.set()
        assert (await in_progress)["uid-of-endless"].error == ""
        await ends["a"]
        await until(lambda: host.state("a").registered)
        assert len(host.kubelet.dra.plugins(NAME)) == 2
