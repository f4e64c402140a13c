"""The embedded kubelet hands out devices, or says why not, as a kubelet does."""

import asyncio

import pytest
from small_plugin import RESOURCE, SmallPlugin, device, node_for_each, registered, running

from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd_sim.kubelet import connections
from devherd_sim.kubelet.pod import AdmissionError, StartError


async def rejection(kubelet, count=1, **whose) -> str:
    """Why a pod is rejected."""
    with pytest.raises(AdmissionError) as refused:
        await kubelet.allocate(RESOURCE, count, **whose)
    assert refused.value.pod_message == (
        f"Pod was rejected: Allocate failed due to {refused.value}, which is unexpected"
    )
    return str(refused.value)


def test_a_pod_gets_what_the_plugin_answers_and_gives_it_back(kubelet_dir):
    """The answer is passed on as it is; freed devices are free without a call."""

    async def scenario():
        async with registered(kubelet_dir, "a", "b") as (kubelet, plugin):
            plugin.allocate = answer
            allocation = await kubelet.allocate(RESOURCE, 2, pod="train")
            assert allocation.device_ids == ("a", "b")
            assert allocation.answer() == {
                "devices": [{"host_path": "/dev/x", "container_path": "/dev/y", "permissions": "rw"}],
                "mounts": [{"host_path": "/lib/x", "container_path": "/lib/y", "read_only": True}],
                "envs": {"A": "1"},
                "annotations": {"b": "2"},
                "cdi_devices": ["example.com/gpu=a"],
            }
            assert kubelet.in_use(RESOURCE) == {"a", "b"}
            assert [held.device_ids for held in kubelet.free("train")] == [("a", "b")]
            assert kubelet.in_use(RESOURCE) == set()
            assert plugin.calls == [("allocate", ["a", "b"])]

    async def answer(device_ids):
        response = api.ContainerAllocateResponse(
            envs={"A": "1"},
            mounts=[api.Mount(host_path="/lib/x", container_path="/lib/y", read_only=True)],
            devices=[api.DeviceSpec(host_path="/dev/x", container_path="/dev/y", permissions="rw")],
            annotations={"b": "2"},
            cdi_devices=[api.CDIDevice(name="example.com/gpu=a")],
        )
        return api.AllocateResponse(container_responses=[response])

    asyncio.run(scenario())


def test_what_cannot_be_given_is_refused_in_the_kubelets_words(kubelet_dir):
    """Too many, none healthy, a changed request, devices fallen ill."""

    async def scenario():
        async with registered(kubelet_dir, "a", "b", "c") as (kubelet, plugin):
            await kubelet.allocate(RESOURCE, 2, pod="one")
            assert await rejection(kubelet, 2) == (
                f"requested number of devices unavailable for {RESOURCE}. Requested: 2, Available: 1"
            )
            assert await rejection(kubelet, 3, pod="one") == (
                f'pod "default/one" container "main" changed request for resource "{RESOURCE}" from 2 to 3'
            )
            held = kubelet.allocations()[0].device_ids
            plugin.send(*(device(name, "Unhealthy" if name in held else "Healthy") for name in "abc"))
            await kubelet.until_allocatable(RESOURCE, 1)
            assert await rejection(kubelet, 2, pod="one") == (
                f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {RESOURCE}"
            )
            plugin.send(device("a", "Unhealthy"))
            await kubelet.until_allocatable(RESOURCE, 0)
            assert await rejection(kubelet) == (
                f"no healthy devices present; cannot allocate unhealthy devices {RESOURCE}"
            )

    asyncio.run(scenario())


def test_a_resource_nobody_knows_is_skipped(kubelet_dir):
    """The pod starts without it."""

    async def scenario():
        async with running(kubelet_dir) as kubelet:
            assert await kubelet.allocate("nobody.example/x", 1) is None

    asyncio.run(scenario())


def test_the_same_container_asked_twice_gets_the_same_answer_without_a_call(kubelet_dir):
    """Allocations are remembered by container and resource."""

    async def scenario():
        async with registered(kubelet_dir, "a", "b") as (kubelet, plugin):
            first = await kubelet.allocate(RESOURCE, 1)
            assert await kubelet.allocate(RESOURCE, 1) == first
            assert (await kubelet.allocate(RESOURCE, 1, container="side")).device_ids != first.device_ids
            assert len(plugin.calls) == 2

    asyncio.run(scenario())


def test_an_error_of_the_plugin_rejects_the_pod_and_leaves_the_devices_free(kubelet_dir):
    """The plugin's words arrive as its gRPC status."""

    async def scenario():
        async with registered(kubelet_dir, "a") as (kubelet, plugin):
            plugin.allocate = busy
            assert await rejection(kubelet) == "rpc error: code = FailedPrecondition desc = device busy"
            assert kubelet.in_use(RESOURCE) == set()

    async def busy(device_ids):
        raise PermissionError("device busy")

    asyncio.run(scenario())


def test_an_answer_for_no_container_leaks_the_devices_until_a_pod_ends(kubelet_dir):
    """A trap that plugin authors should see."""

    async def scenario():
        async with registered(kubelet_dir, "a", "b") as (kubelet, plugin):
            await kubelet.allocate(RESOURCE, 1, pod="other")
            plugin.allocate = nothing
            assert await rejection(kubelet) == "no containers return in allocation response "
            assert kubelet.in_use(RESOURCE) == {"a", "b"}
            kubelet.free("other")
            assert kubelet.in_use(RESOURCE) == set()

    async def nothing(device_ids):
        return api.AllocateResponse()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("preferred", "expected"),
    [
        (["c", "d"], {"c", "d"}),
        (["c", "x"], {"c"}),  # x is none of the offered ones; filled up at random
        ([], set()),
    ],
)
def test_a_preference_is_a_hint(preferred, expected, kubelet_dir):
    """Devices that were not offered are ignored, too few are filled up."""

    async def scenario():
        async with registered(kubelet_dir, "a", "b", "c", "d") as (kubelet, plugin):
            await _prefer(kubelet, plugin, preferred)
            allocation = await kubelet.allocate(RESOURCE, 2)
            assert set(allocation.device_ids) >= expected
            assert len(allocation.device_ids) == 2
            assert plugin.calls[0] == ("prefer", ["a", "b", "c", "d"])

    asyncio.run(scenario())


def test_too_many_preferred_devices_are_cut(kubelet_dir):
    """The kubelet takes some of them."""

    async def scenario():
        async with registered(kubelet_dir, "a", "b", "c", "d") as (kubelet, plugin):
            await _prefer(kubelet, plugin, ["b", "c", "d"])
            assert set((await kubelet.allocate(RESOURCE, 2)).device_ids) < {"b", "c", "d"}

    asyncio.run(scenario())


def test_a_failing_preference_rejects_the_pod(kubelet_dir):
    """With the kubelet's words before the plugin's."""

    async def scenario():
        async with registered(kubelet_dir, "a", "b") as (kubelet, plugin):
            await _prefer(kubelet, plugin, ValueError("no idea"))
            said = await rejection(kubelet)
            assert said.startswith(
                "device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Unknown"
            )

    asyncio.run(scenario())


def test_a_plugin_is_asked_to_prepare_the_container_at_every_start(kubelet_dir):
    """Only where its options say so."""

    async def scenario():
        async with registered(kubelet_dir, "a", "b") as (kubelet, plugin):
            plugin.options.pre_start_required = True
            plugin.end_stream()
            await kubelet.events.wait("disconnected")
            await plugin.register()
            await kubelet.until_allocatable(RESOURCE, 2)
            allocation = await kubelet.allocate(RESOURCE, 1)
            for _ in range(2):
                await kubelet.start_container()
            assert plugin.calls[1:] == [("pre-start", list(allocation.device_ids))] * 2

    asyncio.run(scenario())


def test_a_slow_prestart_fails_the_start(kubelet_dir, monkeypatch):
    """The deadline is thirty seconds; two tenths here."""
    monkeypatch.setattr(connections, "PRE_START_SECONDS", 0.2)

    async def slow(request, context):
        await asyncio.sleep(3600)

    async def scenario():
        async with running(kubelet_dir) as kubelet:
            plugin = SmallPlugin(kubelet, "a")
            plugin.options.pre_start_required = True
            plugin.PreStartContainer = slow
            await plugin.up()
            await kubelet.allocate(RESOURCE, 1)
            with pytest.raises(StartError, match=r"PreStartContainer rpc failed with err: .*DeadlineExceeded"):
                await kubelet.start_container()
            await plugin.stop()

    asyncio.run(scenario())


def test_a_plugin_that_hangs_blocks_the_admission_of_every_pod(kubelet_dir):
    """Allocate has no deadline, and pods are admitted one at a time."""

    async def scenario():
        async with registered(kubelet_dir, "a", "b") as (kubelet, plugin):
            answered = asyncio.Event()

            async def hang(device_ids):
                await answered.wait()
                return await node_for_each(device_ids)

            plugin.allocate = hang
            first = asyncio.create_task(kubelet.allocate(RESOURCE, 1, pod="first"))
            second = asyncio.create_task(kubelet.allocate("nobody.example/x", 1, pod="second"))
            done, _ = await asyncio.wait({first, second}, timeout=0.3)
            assert not done
            answered.set()
            assert (await first).device_ids
            assert await second is None

    asyncio.run(scenario())


def test_a_plugin_killed_while_it_allocates_rejects_the_pod(kubelet_dir):
    """The call ends with the connection."""

    async def scenario():
        async with registered(kubelet_dir, "a") as (kubelet, plugin):
            asked = asyncio.Event()

            async def hang(device_ids):
                asked.set()
                await asyncio.sleep(3600)

            plugin.allocate = hang
            pending = asyncio.create_task(rejection(kubelet))
            await asked.wait()
            await plugin.stop()
            assert "rpc error: code = " in await pending

    asyncio.run(scenario())


async def _prefer(kubelet, plugin, preferred) -> None:
    """Register again with the option set; an error is raised."""

    def prefer(available, size):
        if isinstance(preferred, Exception):
            raise preferred
        return preferred

    plugin.options.get_preferred_allocation_available = True
    plugin.prefer = prefer
    plugin.end_stream()
    await kubelet.events.wait("disconnected")
    await plugin.register()
    await kubelet.until_allocatable(RESOURCE, len(plugin.devices))
