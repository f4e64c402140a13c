"""`devherd sim kubelet check`: each way to be amiss, of a plugin that is well otherwise, is found, and nothing else."""

import asyncio

import grpc
import pytest
from small_plugin import RESOURCE, SmallPlugin, device, running

from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd_sim.kubelet import check as checker_module
from devherd_sim.kubelet import plugin_findings
from devherd_sim.kubelet.check import Checker
from devherd_sim.kubelet.plugin_findings import CURES


class GoodPlugin(SmallPlugin):
    """Refuses what it has not listed, and registers again with a kubelet that starts."""

    def __init__(self, kubelet, *names, **options):
        super().__init__(kubelet, *names, **options)
        self.answer = self.allocate
        self.allocate = self._allocate
        self.returns = True
        kubelet.events.listen(self._on_event)
        self._tasks = set()

    async def _allocate(self, ids):
        if not set(ids) <= {each.ID for each in self.devices}:
            raise PermissionError("unknown")
        return await self.answer(ids)

    def _on_event(self, event):
        if event.kind == "started" and self.returns:
            task = asyncio.get_running_loop().create_task(self._again())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _again(self):
        await self.stop()
        await self.serve()
        await self.register()


async def found(kubelet, restart=False, patience=10.0):
    """The findings, as pairs of check and problem."""
    findings = await Checker(kubelet, patience, down=0.1).findings([RESOURCE], restart=restart)
    assert all(finding.cure == CURES[finding.check] for finding in findings)
    return [(finding.check, finding.problem) for finding in findings]


async def checked(kubelet_dir, bend, **options):
    """What is found of a plugin with two devices that was bent so before it began."""
    async with running(kubelet_dir) as kubelet:
        plugin = GoodPlugin(kubelet, "a", "b")
        bend(plugin)
        try:
            await plugin.up()
            return await found(kubelet, **options)
        finally:
            await plugin.stop()


def answering(**fields):
    """An answer to Allocate with these fields."""

    async def answer(_ids):
        return api.AllocateResponse(container_responses=[api.ContainerAllocateResponse(**fields)])

    return answer


def node(path, permissions):
    """A device node of an answer."""
    return api.DeviceSpec(host_path=path, container_path="/a", permissions=permissions)


async def no_answers(_ids):
    """To a request for one container."""
    return api.AllocateResponse()


async def refusing(_ids):
    """As a plugin that has lost its driver."""
    raise PermissionError("driver lost")


def set_to(**attributes):
    """Bends a plugin's attributes."""
    return lambda plugin: vars(plugin).update(attributes)


def preferring(choose):
    """Bends the preference."""
    options = api.DevicePluginOptions(get_preferred_allocation_available=True)
    return set_to(options=options, prefer=choose)


async def test_of_a_good_plugin_nothing_is_found_and_it_is_back_after_a_restart(kubelet_dir):
    """With everything that a plugin may offer."""

    def bend(plugin):
        plugin.options = api.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)
        plugin.prefer = lambda available, size: sorted(available, reverse=True)[:size]

    assert await checked(kubelet_dir, bend, restart=True) == []


@pytest.mark.parametrize(
    ("bend", "findings"),
    [
        (
            set_to(devices=[device("a"), device("a")]),
            [("duplicate-id", "id `a` is listed 2 times")],
        ),
        (set_to(devices=[device(""), device("b")]), [("empty-id", "a device has an empty id")]),
        (
            set_to(devices=[device("a"), device("b", "Sick"), device("c", "Sick")]),
            [("unknown-health", "health `Sick` of `b` and 1 other")],
        ),
        (set_to(devices=[]), [("no-devices", "its list is empty")]),
        (
            set_to(devices=[device("a", numa_nodes=(-1,))]),
            [("bad-numa-node", "NUMA node -1 of `a`")],
        ),
        (
            set_to(answer=refusing),
            [("allocate-fails", "Allocate of `a`: rpc error: code = FailedPrecondition desc = driver lost")],
        ),
        (set_to(answer=answering()), [("empty-answer", "Allocate was answered with nothing")]),
        (set_to(answer=no_answers), [("wrong-number-of-answers", "0 answers to Allocate for one container")]),
        (
            set_to(answer=answering(devices=[node("dev/a", "rw")])),
            [("bad-device", "device 'dev/a' as '/a' is not an absolute path")],
        ),
        (
            set_to(answer=answering(devices=[node("/a", "rx")])),
            [("bad-device", "device '/a' as '/a' has the permissions `rx`")],
        ),
        (
            set_to(answer=answering(mounts=[api.Mount(host_path="/a", container_path="a")])),
            [("bad-mount", "mount '/a' at 'a' is not an absolute path")],
        ),
        (
            set_to(answer=answering(cdi_devices=[api.CDIDevice(name="gpu0")])),
            [("bad-cdi-name", "CDI device `gpu0`")],
        ),
        (
            lambda plugin: vars(plugin).update(allocate=plugin.answer),
            [("unknown-id-accepted", "Allocate of an id that is in no list was answered")],
        ),
        (preferring(lambda _available, _size: ["a"]), [
            ("bad-preference", "1 devices preferred, where 2 are asked for"),
            ("bad-preference", "`b` not preferred, which must be included"),
        ]),
        (preferring(lambda _available, _size: ["b", "z"]), [
            ("bad-preference", "`z` preferred, which is not available"),
        ]),
    ],
)  # fmt: skip
async def test_what_is_amiss_is_found(kubelet_dir, bend, findings):
    """With what it is about; the cure goes with the finding."""
    assert await checked(kubelet_dir, bend) == findings


async def test_a_plugin_that_does_not_come_back_after_a_restart_is_found(kubelet_dir):
    """The commonest defect of device plugins."""
    said = "not back 0.2 s after a restart of the kubelet, which was away for 0.1 s; Register was not called"
    expected = [("not-registered-again", said)]
    assert await checked(kubelet_dir, set_to(returns=False), restart=True, patience=0.2) == expected


async def test_a_plugin_that_comes_back_with_less_is_found(kubelet_dir):
    """It has given up a device meanwhile."""
    async with running(kubelet_dir) as kubelet:
        plugin = await GoodPlugin(kubelet, "a", "b").up()
        plugin.devices = [device("a")]
        assert await found(kubelet, restart=True) == [("not-registered-again", "back with 1 of 2 Healthy devices")]
        await plugin.stop()


async def test_a_list_that_is_late_is_found(kubelet_dir, monkeypatch):
    """Until then no pod gets a device."""
    monkeypatch.setattr(plugin_findings, "LATE_SECONDS", 0.05)

    class Late(GoodPlugin):
        async def ListAndWatch(self, request, context):
            await asyncio.sleep(0.2)
            async for each in super().ListAndWatch(request, context):
                yield each

    async with running(kubelet_dir) as kubelet:
        plugin = Late(kubelet, "a")
        await plugin.serve()
        await plugin.register()
        await asyncio.sleep(0.1)
        [(check, problem)] = await found(kubelet)
        assert (check, problem[:18]) == ("late-list", "no list of devices")
        await kubelet.events.wait("list", RESOURCE)
        [(check, problem)] = await found(kubelet)
        assert (check, problem[:19]) == ("late-list", "the first list came")
        await plugin.stop()


async def test_a_list_that_is_sent_again_and_again_is_found(kubelet_dir):
    """Each costs the kubelet a checkpoint. One that changes and changes back is not meant."""
    async with running(kubelet_dir) as kubelet:
        plugin = await GoodPlugin(kubelet, "a").up()

        async def send(*devices):
            mark = kubelet.events.mark()
            plugin.send(*devices)
            await kubelet.events.wait("list", RESOURCE, since=mark)

        for _ in range(3):
            await send(device("a", "Unhealthy"))
            await send(device("a"))
        assert await found(kubelet) == []
        for _ in range(3):
            await send(device("a"))
        assert await found(kubelet) == [("repeated-list", "the same list came 4 times in a row")]
        await plugin.stop()


async def test_slow_answers_are_found(kubelet_dir, monkeypatch):
    """Whatever it is that is slow."""
    monkeypatch.setattr(checker_module, "SLOW_SECONDS", 0.5)

    async def slow(_ids):
        await asyncio.sleep(0.7)
        return await answering(envs={"A": "1"})(_ids)

    findings = await checked(kubelet_dir, set_to(answer=slow))
    assert [(check, problem[:13]) for check, problem in findings] == [("slow-answer", "Allocate took")]


async def test_a_refused_registration_is_found_with_the_kubelets_words(kubelet_dir):
    """As long as it is refused."""
    async with running(kubelet_dir) as kubelet:
        plugin = GoodPlugin(kubelet, "a")
        await plugin.serve()
        with pytest.raises(grpc.aio.AioRpcError):
            await plugin.register(version="v1alpha")
        [(check, problem)] = await found(kubelet)
        assert (check, problem[:31]) == ("register-refused", 'requested API version "v1alpha"')
        await plugin.register()
        await kubelet.events.wait("list", RESOURCE)
        assert await found(kubelet) == []
        await plugin.stop()


async def test_a_path_for_an_endpoint_is_found(kubelet_dir):
    """It works by chance: slashes in front mean nothing to the kubelet, those within lead elsewhere."""
    async with running(kubelet_dir) as kubelet:
        (kubelet.paths.plugin_directory / "below").mkdir()
        plugin = await GoodPlugin(kubelet, "a", endpoint="below/p.sock").up()
        assert await found(kubelet) == [("endpoint-with-a-slash", f"its socket is {plugin.socket}")]
        await plugin.stop()


async def test_a_plugin_that_has_gone_is_found(kubelet_dir):
    """Why its stream ended is in the finding."""
    async with running(kubelet_dir) as kubelet:
        plugin = await GoodPlugin(kubelet, "a").up()
        plugin.end_stream()
        await kubelet.events.wait("disconnected", RESOURCE)
        [(check, problem)] = await found(kubelet)
        assert (check, problem) == ("gone", "not connected: the plugin ended the stream")
        await plugin.stop()


async def test_what_is_wrong_with_a_list_is_said_once(kubelet_dir):
    """In the kubelet's output, when it comes; not again while it stays."""
    async with running(kubelet_dir) as kubelet:
        plugin = GoodPlugin(kubelet)
        plugin.devices = [device("a"), device("a")]
        await plugin.up()
        for health in ("Unhealthy", "Healthy"):
            mark = kubelet.events.mark()
            plugin.send(device("a"), device("a"), device("b", health))
            await kubelet.events.wait("list", RESOURCE, since=mark)
        await asyncio.sleep(0)
        problems = [event.detail["problem"] for event in kubelet.events.since(0, "doubtful")]
        assert problems == ["id `a` is listed 2 times"]
        await plugin.stop()
