"""Whole pods on the embedded kubelet: from their manifest to their entries in PodResources."""

import asyncio
import contextlib
from contextlib import asynccontextmanager

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_plugin import RESOURCE, device, registered, running

from devherd.errors import UsageError
from devherd.proto import podresources_v1_pb2 as api
from devherd.proto.podresources_v1_pb2_grpc import PodResourcesListerStub
from devherd_sim.kubelet import pod
from devherd_sim.kubelet.pod import AdmissionError, ContainerSpec, Pod, StartError

MANIFEST = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "train", "namespace": "research"},
    "spec": {
        "initContainers": [
            {"name": "load", "resources": {"limits": {RESOURCE: "1", "cpu": "500m"}}},
            {"name": "proxy", "restartPolicy": "Always", "resources": {"limits": {RESOURCE: 1}}},
        ],
        "containers": [{"name": "main", "resources": {"limits": {RESOURCE: 1}}}, {"name": "idle"}],
    },
}
TRAIN = Pod(
    "train",
    (ContainerSpec("main", {RESOURCE: 1}), ContainerSpec("idle")),
    (ContainerSpec("load", {RESOURCE: 1}), ContainerSpec("proxy", {RESOURCE: 1}, restartable=True)),
    "research",
)


@asynccontextmanager
async def pod_resources(kubelet):
    """A caller of the PodResources service."""
    options = [("grpc.use_local_subchannel_pool", 1)]  # no connection to the server before a restart
    async with grpc.aio.insecure_channel(f"unix:{kubelet.paths.pod_resources_socket}", options=options) as channel:
        yield PodResourcesListerStub(channel)


def test_a_manifest_is_read_for_its_devices():
    """Limits on anything but extended resources are left out."""
    assert pod.parse(MANIFEST) == TRAIN


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "the manifest is not a pod"),
        ([], "the manifest is not a pod"),
        ({"kind": "Deployment"}, "its kind is Deployment"),
        ({"kind": "Pod"}, "it lacks metadata"),
        ({"kind": "Pod", "metadata": {"name": "x"}, "spec": {}}, "it lacks containers"),
        ({"kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": [7]}}, "the manifest is not a pod"),
        (
            {
                "kind": "Pod",
                "metadata": {"name": "x"},
                "spec": {"containers": [{"name": "c", "resources": {"limits": {"a/b": "two"}}}]},
            },
            "two",
        ),
    ],
)
def test_what_is_no_pod_is_told_in_a_line(content, words):
    """What, why, what to do."""
    with pytest.raises(UsageError, match=words):
        pod.parse(content)


json_values = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["kind", "spec", "name"]), inner),
    max_leaves=8,
)


@given(json_values)
def test_any_content_is_a_pod_or_a_usage_error(content):
    """Never another exception."""
    with contextlib.suppress(UsageError):
        pod.parse(content)


def test_a_file_that_cannot_be_read_is_told_in_a_line(tmp_path):
    """No file, no YAML."""
    (tmp_path / "bad.yaml").write_text("{")
    for name in ("none.yaml", "bad.yaml"):
        with pytest.raises(UsageError, match="cannot read"):
            pod.load(tmp_path / name)


async def test_pod_resources_tell_sidecars_and_containers_and_no_ordinary_init_container(kubelet_dir):
    """A device of two nodes has an entry for each, also after a restart; a container without devices is listed, too."""
    async with registered(kubelet_dir, "a", "b") as (kubelet, plugin):
        plugin.send(device("a", numa_nodes=(0, 1)), device("b", numa_nodes=(0, 1)))
        await kubelet.events.until(lambda: kubelet.numa_nodes(RESOURCE, "a") == [0, 1])
        await kubelet.admit(TRAIN)
        for _ in range(2):
            async with pod_resources(kubelet) as lister:
                (pod,) = (await lister.List(api.ListPodResourcesRequest())).pod_resources
                one = await lister.Get(api.GetPodResourcesRequest(pod_name="train", pod_namespace="research"))
            assert one.pod_resources == pod
            assert [container.name for container in pod.containers] == ["proxy", "main", "idle"]
            proxy, main, idle = (
                [(entry.device_ids[0], entry.topology.nodes[0].ID) for entry in container.devices]
                for container in pod.containers
            )
            assert sorted(proxy + main) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
            assert idle == []
            await kubelet.restart()


async def test_a_topology_without_nodes_hides_a_device_from_the_allocatable_ones(kubelet_dir):
    """Why a plugin must leave it out."""
    async with registered(kubelet_dir, "a") as (kubelet, plugin):
        empty = device("b")
        empty.topology.SetInParent()
        plugin.send(device("a"), empty, device("c", "Unhealthy"))
        await kubelet.until_allocatable(RESOURCE, 2)
        async with pod_resources(kubelet) as lister:
            seen = await lister.GetAllocatableResources(api.AllocatableResourcesRequest())
            assert [list(entry.device_ids) for entry in seen.devices] == [["a"]]
            plugin.end_stream()
            await kubelet.events.wait("disconnected")
            assert not (await lister.GetAllocatableResources(api.AllocatableResourcesRequest())).devices


async def test_who_asks_too_often_is_refused(kubelet_dir):
    """A hundred calls a second, ten at once."""
    async with running(kubelet_dir) as kubelet, pod_resources(kubelet) as lister:
        calls = (lister.List(api.ListPodResourcesRequest()) for _ in range(200))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
        assert {(error.code(), error.details()) for error in refused} == {
            (grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        }
        assert 10 <= len(answers) - len(refused) < 200


async def test_a_rejected_pod_is_over_and_holds_nothing_when_the_next_comes(kubelet_dir):
    """What its first containers had been given is free again then."""
    greedy = Pod("greedy", (ContainerSpec("one", {RESOURCE: 1}), ContainerSpec("two", {RESOURCE: 2})))
    async with registered(kubelet_dir, "a", "b") as (kubelet, _):
        with pytest.raises(AdmissionError, match="Requested: 2, Available: 1"):
            await kubelet.admit(greedy)
        assert (kubelet.pods(), len(kubelet.in_use(RESOURCE))) == ([], 1)
        assert (await kubelet.allocate(RESOURCE, 2)).device_ids == ("a", "b")
        with pytest.raises(StartError, match="no pod of the UID default/greedy has a container one"):
            await kubelet.start_container(pod="greedy", container="one")
