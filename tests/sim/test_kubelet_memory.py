"""What the embedded kubelet remembers: over a process of its own, over its plugin's absence, and for how long."""

import pytest
from small_plugin import RESOURCE, SmallPlugin, device, registered, running

from devherd_sim.kubelet import checkpoint
from devherd_sim.kubelet.manager import EmbeddedKubelet
from devherd_sim.kubelet.pod import AdmissionError, ContainerSpec, Pod

CHECKPOINT = f"device-plugins/{checkpoint.NAME}"


async def rejection(kubelet, **whose) -> str:
    """Why one more pod is rejected."""
    with pytest.raises(AdmissionError) as refused:
        await kubelet.allocate(RESOURCE, 1, **whose)
    return str(refused.value)


async def test_the_next_process_knows_who_holds_what(kubelet_dir):
    """A new object on the directory has the resource, the pods by name, their devices and the answers for them."""
    async with registered(kubelet_dir, "a", "b") as (kubelet, plugin):
        plugin.send(device("a", numa_nodes=(0, 1)), device("b"))
        await kubelet.events.until(lambda: kubelet.numa_nodes(RESOURCE, "a") == [0, 1])
        held = await kubelet.allocate(RESOURCE, 2, pod="train", namespace="research")
    async with running(kubelet_dir) as again:
        assert again.resources() == [RESOURCE]
        assert (again.capacity(RESOURCE), again.allocatable(RESOURCE)) == (0, 0)
        assert again.allocations() == [held]
        assert held.numa_nodes("a") == [0, 1]
        assert again.in_use(RESOURCE) == {"a", "b"}
        assert [(pod.name, pod.namespace) for pod in again.pods()] == [("train", "research")]
        assert again.free("train", "research") == [held]
    async with running(kubelet_dir) as last:
        assert last.allocations() == []


async def test_every_list_and_every_allocation_is_in_the_checkpoint(kubelet_dir):
    """Healthy devices only."""
    async with registered(kubelet_dir, "a", "b") as (kubelet, plugin):
        plugin.send(device("a"), device("b", "Unhealthy"))
        await kubelet.until_allocatable(RESOURCE, 1)
        assert checkpoint.decode((kubelet_dir / CHECKPOINT).read_bytes()).registered == {RESOURCE: ("a",)}
        held = await kubelet.allocate(RESOURCE, 1)
        assert checkpoint.decode((kubelet_dir / CHECKPOINT).read_bytes()).allocations == (held,)


async def test_a_checkpoint_that_is_not_to_be_believed_is_told_of_and_left(kubelet_dir):
    """The kubelet starts as if there were none."""
    (kubelet_dir / CHECKPOINT).parent.mkdir()
    (kubelet_dir / CHECKPOINT).write_text('{"Data":{},"Checksum":7}')
    async with running(kubelet_dir) as kubelet:
        (ignored,) = kubelet.events.since(0, "checkpoint-ignored")
        assert "its checksum is 7, that of its content" in ignored.detail["error"]
        assert kubelet.resources() == []
        assert (kubelet_dir / CHECKPOINT).read_text() == '{"Data":{},"Checksum":7}'


async def test_a_checkpoint_that_cannot_be_written_rejects_the_pod_and_not_the_list(kubelet_dir):
    """With the kubelet's words."""
    async with registered(kubelet_dir, "a") as (kubelet, plugin):
        (kubelet_dir / CHECKPOINT).unlink()
        (kubelet_dir / CHECKPOINT / "in the way").mkdir(parents=True)
        plugin.send(device("a"), device("b"))
        await kubelet.until_allocatable(RESOURCE, 2)
        assert kubelet.events.since(0, "checkpoint-failed")
        assert (await rejection(kubelet)).startswith(f'failed to write checkpoint file "{checkpoint.NAME}": ')


async def test_a_pod_known_by_its_uid_only_gets_its_name_when_it_is_admitted_again(kubelet_dir):
    """UIDs are somebody else's where the pod has one of its own."""
    pod = Pod("train", (ContainerSpec("main", {RESOURCE: 1}),), uid="0b9e")
    async with registered(kubelet_dir, "a") as (kubelet, _):
        await kubelet.admit(pod)
    async with running(kubelet_dir) as again:
        assert again.allocations()[0].container.pod == "0b9e"
        plugin = await SmallPlugin(again, "a", endpoint="again.sock").up()
        (held,) = await again.admit(pod)
        assert (held.container.pod, plugin.calls) == ("train", [])
        assert again.free("train") == [held]
        await plugin.stop()


async def test_a_resource_is_forgotten_when_its_plugin_stays_away(kubelet_dir):
    """Capacity stays for the grace period; then the resource is gone, also from the checkpoint."""
    kubelet = EmbeddedKubelet(kubelet_dir, grace_seconds=0.3)
    await kubelet.start()
    plugin = await SmallPlugin(kubelet, "a", "b").up()
    held = await kubelet.allocate(RESOURCE, 1, pod="train")
    await plugin.stop()
    await kubelet.events.wait("disconnected", RESOURCE)
    assert (kubelet.capacity(RESOURCE), kubelet.allocatable(RESOURCE)) == (2, 0)
    assert "no healthy devices present" in await rejection(kubelet)
    await kubelet.events.wait("forgotten", RESOURCE)
    assert (kubelet.capacity(RESOURCE), kubelet.resources()) == (0, [])
    assert await rejection(kubelet) == f"cannot allocate unregistered device {RESOURCE}"
    known = checkpoint.decode((kubelet_dir / CHECKPOINT).read_bytes())
    assert (known.registered, known.allocations) == ({}, (held,))

    kubelet.free("train")
    assert await kubelet.allocate(RESOURCE, 1, pod="next") is None
    back = await SmallPlugin(kubelet, "a", "b", endpoint="back.sock").up()
    assert (await kubelet.allocate(RESOURCE, 1, pod="last")).device_ids
    await back.stop()
    await kubelet.stop(clean=True)


async def test_a_plugin_that_comes_back_within_the_grace_period_keeps_the_resource(kubelet_dir):
    """Also one that a restarted kubelet knows from its checkpoint only."""
    kubelet = EmbeddedKubelet(kubelet_dir, grace_seconds=0.5)
    await kubelet.start()
    plugin = await SmallPlugin(kubelet, "a").up()
    plugin.end_stream()
    await kubelet.events.wait("disconnected", RESOURCE)
    await plugin.register()
    await kubelet.until_allocatable(RESOURCE, 1)
    with pytest.raises(TimeoutError):
        await kubelet.events.wait("forgotten", within=0.8)
    await plugin.stop()
    await kubelet.restart()
    await kubelet.events.wait("forgotten", RESOURCE)
    await kubelet.stop(clean=True)


async def test_what_runs_is_left_alone_by_a_kubelet_that_still_starts_and_refused_after_a_boot(kubelet_dir):
    """Only then does the kubelet look whether the devices are well."""
    async with registered(kubelet_dir, "a") as (kubelet, _):
        held = await kubelet.allocate(RESOURCE, 1)
        await kubelet.start_container()
        await kubelet.restart(sources_ready=False)
        assert await kubelet.allocate(RESOURCE, 1) == held
        kubelet.now_ready()
        assert "no healthy devices present" in await rejection(kubelet)
        await kubelet.reboot()
        assert "no healthy devices present" in await rejection(kubelet)
