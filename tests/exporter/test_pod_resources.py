"""Which pod holds which device: asked of a kubelet, shown in metrics and inventory, unknown when there is none."""

import asyncio
import json
import threading
import time
from concurrent import futures

import grpc
from hypothesis import given
from hypothesis import strategies as st

from devherd.kubelet import pod_resources
from devherd.kubelet.pod_resources import PodResources, parse
from devherd.proto import podresources_v1_pb2_grpc
from devherd.proto.podresources_v1_pb2 import (
    AllocatableResourcesResponse,
    ContainerDevices,
    ContainerResources,
    ListPodResourcesResponse,
)
from devherd.proto.podresources_v1_pb2 import PodResources as Pod
from devherd.proto.spool_pb2 import Device, Offer


def pod(name, *devices, container="main"):
    """A pod of one container that holds devices given as (resource name, id)."""
    held = [ContainerDevices(resource_name=resource, device_ids=[device]) for resource, device in devices]
    return Pod(name=name, namespace="default", containers=[ContainerResources(name=container, devices=held)])


class Kubelet(podresources_v1_pb2_grpc.PodResourcesListerServicer):
    """Serves List on a socket."""

    def __init__(self, socket, *pods):
        self.pods = pods
        self.asked = self.asked_allocatable = 0
        self.allocatable = []
        self.hang = threading.Event()
        self.hang.set()
        socket.parent.mkdir(parents=True, exist_ok=True)
        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        podresources_v1_pb2_grpc.add_PodResourcesListerServicer_to_server(self, self.server)
        self.server.add_insecure_port(f"unix:{socket}")
        self.server.start()

    def List(self, request, context):
        self.asked += 1
        self.hang.wait(10)
        return ListPodResourcesResponse(pod_resources=self.pods)

    def GetAllocatableResources(self, request, context):
        self.asked_allocatable += 1
        devices = [ContainerDevices(resource_name=name, device_ids=ids) for name, ids in self.allocatable]
        return AllocatableResourcesResponse(devices=devices)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.hang.set()
        self.server.stop(0).wait()


GPU = Offer(name="example.com/gpu", vendor="simulated", devices=[Device(id="0"), Device(id="1")])


def test_who_holds_a_device_is_in_metrics_inventory_and_page(instance):
    """Only of our resources; a device that the kubelet lists once for each NUMA node has one series."""
    held = pod("train-1", ("example.com/gpu", "1"), ("example.com/gpu", "1"), ("other.com/nic", "7"))
    instance.put(GPU)
    with Kubelet(instance.kubelet_dir / "pod-resources" / "kubelet.sock", held):
        instance.start()
        metrics = {series: value for series, value in instance.metrics().items() if "device_allocated" in series}
        devices = json.loads(instance.ask("/api/v1/inventory")[2])["resources"][0]["devices"]
        page = instance.ask("/")[2]

    assert metrics == {
        'devherd_device_allocated{container="main",device_id="1",namespace="default",pod="train-1",'
        'resource_name="example.com/gpu"}': 1
    }
    assert [device["allocated"] for device in devices] == [
        [],
        [{"namespace": "default", "pod": "train-1", "container": "main"}],
    ]
    assert "default/train-1 (main)" in page


def test_a_kubelet_that_does_not_answer_costs_a_scrape_two_seconds_at_most(instance, monkeypatch):
    """The rest of the page comes, without a word of who holds what, and the next scrape does not wait again."""
    instance.put(GPU)
    with Kubelet(
        instance.kubelet_dir / "pod-resources" / "kubelet.sock", pod("p", ("example.com/gpu", "0"))
    ) as kubelet:
        kubelet.hang.clear()
        instance.start()
        started = time.monotonic()
        metrics = instance.metrics()
        took = time.monotonic() - started

    assert took < 8
    assert metrics['devherd_devices{health="Healthy",resource_name="example.com/gpu"}'] == 2
    assert not any("device_allocated" in series for series in metrics)
    assert "DEADLINE_EXCEEDED" in instance.log


async def test_an_absent_socket_is_told_once(tmp_path, caplog):
    """A node may have no kubelet yet: one line in the log, not one for each scrape."""
    asked = PodResources(tmp_path / "kubelet.sock")
    asked._asked_at = float("-inf")

    assert await asked.allocations() is None
    asked._asked_at = float("-inf")
    assert await asked.allocations() is None

    assert [record.message for record in caplog.records] == [
        f"{tmp_path}/kubelet.sock does not exist: which pod holds which device is unknown"
    ]


async def test_the_kubelet_is_asked_once_for_many_questions(make_instance):
    """It limits its callers: scrape, page and API share an answer."""
    socket = make_instance().kubelet_dir / "pod-resources" / "kubelet.sock"
    with Kubelet(socket, pod("p", ("example.com/gpu", "0"))) as kubelet:
        asked = PodResources(socket)
        answers = await asyncio.gather(*(asked.allocations() for _ in range(5)))

    assert kubelet.asked == 1
    assert answers == [{("example.com/gpu", "0"): [{"namespace": "default", "pod": "p", "container": "main"}]}] * 5


async def test_a_restarted_kubelet_is_asked_again(make_instance, monkeypatch):
    """A new server on a new socket of the same name, without the old one's back-off."""
    monkeypatch.setattr(pod_resources, "CACHE_SECONDS", 0.0)
    socket = make_instance().kubelet_dir / "pod-resources" / "kubelet.sock"
    asked = PodResources(socket)
    with Kubelet(socket, pod("before", ("example.com/gpu", "0"))):
        assert (await asked.allocations())[("example.com/gpu", "0")][0]["pod"] == "before"
    assert await asked.allocations() is None
    with Kubelet(socket, pod("after", ("example.com/gpu", "0"))):
        assert (await asked.allocations())[("example.com/gpu", "0")][0]["pod"] == "after"


_NAMES = st.text("abc", min_size=1, max_size=2)


@given(st.lists(st.tuples(_NAMES, st.lists(st.tuples(_NAMES, _NAMES), max_size=4)), max_size=6))
def test_no_answer_of_the_kubelet_makes_a_holder_twice(pods):
    """Two series with the same labels would spoil the whole scrape."""
    answer = ListPodResourcesResponse(pod_resources=[pod(name, *devices) for name, devices in pods])

    allocations = parse(answer)

    assert set(allocations) == {device for _, devices in pods for device in devices}
    for holders in allocations.values():
        names = [(holder["namespace"], holder["pod"], holder["container"]) for holder in holders]
        assert len(names) == len(set(names))
