"""The embedded kubelet starts, is killed and starts again, as plugins see it."""

import asyncio
import socket

import grpc
import pytest
from small_plugin import RESOURCE, SmallPlugin, device, registered, running

from devherd.errors import AlreadyRunningError, UsageError
from devherd.proto import podresources_v1_pb2 as pods_api
from devherd.proto.podresources_v1_pb2_grpc import PodResourcesListerStub
from devherd_sim.kubelet.manager import EmbeddedKubelet


def names(directory):
    """What is in a directory."""
    return sorted(path.name for path in directory.iterdir())


def test_a_start_removes_sockets_and_nothing_else(kubelet_dir):
    """Sockets and links to sockets go; files, directories, what is in them and dangling links stay."""
    directory = kubelet_dir / "device-plugins"
    (directory / "sub").mkdir(parents=True)
    for path in (directory / "old.sock", directory / "sub/old.sock"):
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    (directory / "link.sock").symlink_to("sub/old.sock")
    (directory / "nowhere").symlink_to("nothing")
    (directory / "kubelet_internal_checkpoint").write_text("{}")

    async def scenario():
        async with running(kubelet_dir) as kubelet:
            assert kubelet.events.since(0, "started")[0].detail["removed"] == ["link.sock", "old.sock"]
            assert names(directory) == ["kubelet.sock", "kubelet_internal_checkpoint", "nowhere", "sub"]
            assert names(directory / "sub") == ["old.sock"]

    asyncio.run(scenario())


def test_a_killed_kubelet_leaves_a_socket_that_refuses(kubelet_dir):
    """A file that is there does not mean that a kubelet is."""

    async def scenario():
        async with registered(kubelet_dir, "a") as (kubelet, _):
            await kubelet.stop()
            with socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
                client.connect(str(kubelet.paths.kubelet_socket))

    asyncio.run(scenario())


def test_a_kubelet_that_stops_leaves_its_socket_as_it_was(kubelet_dir):
    """Inode and ctime: plugins take another file for a new kubelet, and would register with one that ends."""

    def seen(kubelet):
        status = kubelet.paths.kubelet_socket.stat()
        return status.st_ino, status.st_ctime_ns, status.st_nlink

    async def scenario():
        async with running(kubelet_dir) as kubelet:
            before = seen(kubelet)
            await kubelet.stop()
            assert seen(kubelet) == before

    asyncio.run(scenario())


def test_a_clean_stop_removes_its_sockets(kubelet_dir):
    """Nothing of it stays in the directory."""

    async def scenario():
        async with running(kubelet_dir):
            pass

    asyncio.run(scenario())
    assert [path for path in kubelet_dir.rglob("*") if not path.is_dir()] == []


def test_a_restart_forgets_devices_and_keeps_allocations(kubelet_dir):
    """As from a checkpoint: the resource is known without devices until its plugin registers on a new socket."""

    async def scenario():
        async with registered(kubelet_dir, "a", "b") as (kubelet, plugin):
            held = await kubelet.allocate(RESOURCE, 1, pod="train")
            inode = kubelet.paths.kubelet_socket.stat().st_ctime_ns
            await kubelet.restart()
            assert kubelet.paths.kubelet_socket.stat().st_ctime_ns != inode
            assert (kubelet.capacity(RESOURCE), kubelet.allocatable(RESOURCE)) == (0, 0)
            assert not plugin.socket.exists()
            await plugin.stop()
            again = SmallPlugin(kubelet, "a", "b", endpoint="again.sock")
            await again.up()
            assert kubelet.allocations() == [held]
            assert (await kubelet.allocate(RESOURCE, 1, pod="new")).device_ids != held.device_ids
            await again.stop()

    asyncio.run(scenario())


def test_a_killed_kubelet_ends_the_stream_of_every_plugin(kubelet_dir):
    """The fastest sign a plugin has."""

    async def scenario():
        async with registered(kubelet_dir, "a") as (kubelet, plugin):
            ended = asyncio.Event()
            original = plugin.ListAndWatch

            async def stream(request, context):
                context.add_done_callback(lambda _: ended.set())
                async for devices in original(request, context):
                    yield devices

            plugin.ListAndWatch = stream
            await plugin.stop()
            await plugin.up()
            await kubelet.stop()
            await asyncio.wait_for(ended.wait(), 10)

    asyncio.run(scenario())


def test_a_second_kubelet_on_the_same_directory_is_refused(kubelet_dir):
    """Be the first one real or simulated."""

    async def scenario():
        async with running(kubelet_dir) as kubelet:
            with pytest.raises(AlreadyRunningError):
                await EmbeddedKubelet(kubelet_dir).start()
            assert kubelet.running

    asyncio.run(scenario())


def test_a_directory_too_deep_for_a_socket_is_refused(tmp_path):
    """With the limit and the cure."""
    with pytest.raises(UsageError, match="too long for a socket"):
        asyncio.run(EmbeddedKubelet(tmp_path / ("x" * 100)).start())


def test_waiting_for_what_does_not_happen_ends_with_an_account(kubelet_dir):
    """The message names what was waited for and what happened instead."""

    async def scenario():
        async with running(kubelet_dir) as kubelet:
            with pytest.raises(TimeoutError, match=r"4 allocatable example\.com/gpu: .*last events: started"):
                await kubelet.until_allocatable(RESOURCE, 4, within=0.1)

    asyncio.run(scenario())


def test_pod_resources_name_the_holder_of_each_device(kubelet_dir):
    """One entry a device, as the kubelet lists them; NUMA nodes where they are known."""

    async def scenario():
        async with registered(kubelet_dir, "a", "b") as (kubelet, plugin):
            plugin.send(device("a", numa_nodes=(1,)), device("b", numa_nodes=(1,)), device("c", "Unhealthy"))
            await kubelet.events.until(lambda: "c" in kubelet.devices(RESOURCE))
            await kubelet.allocate(RESOURCE, 2, pod="train")
            async with grpc.aio.insecure_channel(f"unix:{kubelet.paths.pod_resources_socket}") as channel:
                lister = PodResourcesListerStub(channel)
                listed = await lister.List(pods_api.ListPodResourcesRequest())
                allocatable = await lister.GetAllocatableResources(pods_api.AllocatableResourcesRequest())
                one = await lister.Get(pods_api.GetPodResourcesRequest(pod_name="train", pod_namespace="default"))
                with pytest.raises(grpc.aio.AioRpcError, match="pod x in namespace y not found"):
                    await lister.Get(pods_api.GetPodResourcesRequest(pod_name="x", pod_namespace="y"))
            topology = pods_api.TopologyInfo(nodes=[pods_api.NUMANode(ID=1)])
            devices = [
                pods_api.ContainerDevices(resource_name=RESOURCE, device_ids=[name], topology=topology) for name in "ab"
            ]
            pod = pods_api.PodResources(
                name="train",
                namespace="default",
                containers=[pods_api.ContainerResources(name="main", devices=devices)],
            )
            assert list(listed.pod_resources) == [pod]
            assert one.pod_resources == pod
            assert list(allocatable.devices) == devices

    asyncio.run(scenario())
