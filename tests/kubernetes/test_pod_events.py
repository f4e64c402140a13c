"""Events of the pods that hold a device: whom they reach, and what is asked of a pod for them."""

import shutil
import time
from concurrent import futures

import grpc
import pytest
import scratch
from client import Client

from devherd import spool
from devherd.history import CURRENT, History, HistoryEvent, line
from devherd.proto import podresources_v1_pb2_grpc
from devherd.proto.podresources_v1_pb2 import ContainerDevices, ContainerResources, ListPodResourcesResponse
from devherd.proto.podresources_v1_pb2 import PodResources as Pod
from devherd.proto.spool_pb2 import Reported

GPU = "nvidia.com/gpu"
ILL = "nvidia.com/gpu: Unhealthy: a (xid)"
XID = "Xid 13: GR_EXCEPTION of process 4711, python3: Graphics SM Warp Exception"


class Kubelet(podresources_v1_pb2_grpc.PodResourcesListerServicer):
    """Says that each pod has a device: id by the pod's name."""

    def __init__(self, socket, **devices: str) -> None:
        self._devices = devices
        socket.parent.mkdir(parents=True)
        self.server = grpc.server(futures.ThreadPoolExecutor(2))
        podresources_v1_pb2_grpc.add_PodResourcesListerServicer_to_server(self, self.server)
        self.server.add_insecure_port(f"unix:{socket}")
        self.server.start()

    def List(self, request, context):
        pods = []
        for name, device in self._devices.items():
            held = [ContainerDevices(resource_name=GPU, device_ids=[device])]
            pods.append(Pod(name=name, namespace="work", containers=[ContainerResources(name="main", devices=held)]))
        return ListPodResourcesResponse(pod_resources=pods)


@pytest.fixture
def held(objects_api):
    """Two pods, each with a device, and the process in a directory with a path short enough for sockets."""
    directory = scratch.directory()
    client = Client(directory / "run", objects_api)
    kubelet = Kubelet(client.settings.pod_resources_socket, one="a", other="b")
    for name in ("one", "other"):
        metadata = {"name": name, "namespace": "work", "uid": f"uid-of-{name}"}
        client.server.objects[f"/api/v1/namespaces/work/pods/{name}"] = {"metadata": metadata}
    client.configure(events=True)
    yield client
    client.stop()
    kubelet.server.stop(None).wait()
    assert "Traceback" not in client.log.read_text()
    shutil.rmtree(directory)


def told(client) -> list[tuple[str, str, str, str]]:
    """Kind and name of what each Event is about, its reason and message."""
    return [
        (each["involvedObject"]["kind"], each["involvedObject"]["name"], each["reason"], each["message"])
        for each in client.server.events
    ]


def test_a_pod_that_holds_an_unhealthy_device_is_told_and_of_pods_the_metadata_alone_is_asked_for(held):
    """A pod's specification may name secrets; its uid is all that an Event needs."""
    held.offer(GPU, a="xid", b="")
    held.start()
    held.until(lambda: len(told(held)) == 2, "node and pod are told")

    assert told(held) == [
        ("Node", "node-1", "DeviceUnhealthy", f"{ILL}; held by work/one"),
        ("Pod", "one", "DeviceUnhealthy", ILL),
    ]
    assert held.server.events[1]["metadata"]["namespace"] == "work"
    assert held.server.events[1]["involvedObject"]["uid"] == "uid-of-one"
    [kind] = {accepted for _, path, accepted in held.server.calls if "/pods/" in path}
    assert kind.startswith("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")


def note(history) -> None:
    """An application of pod `one` uses its GPU wrongly."""
    history.note("application", XID, resource_name=GPU, device_id="a", details={"xid": "13", "pid": "4711"})
    history.keep()


def is_remembered(client) -> bool:
    """The next process will not report the newest event again."""
    reported = spool.read_or_empty(client.settings.kubernetes_directory / "reported.pb", Reported)
    return reported.history_bytes == (client.settings.history_directory / "scanner" / CURRENT).stat().st_size


def test_an_applications_own_xid_is_an_event_of_the_pod_that_holds_the_gpu_alone(held):
    """The node has nothing of it: its GPU is well. What repeats is counted."""
    history = History(held.settings.history_directory, "scanner")
    held.offer(GPU, a="", b="")
    held.start()
    held.until((held.settings.kubernetes_directory / "reported.pb").exists, "it runs")
    for number in range(1, 3):
        note(history)
        held.until(lambda times=number: [each["count"] for each in held.server.events] == [times], "the pod is told")

    assert told(held) == [("Pod", "one", "ApplicationXid", f"nvidia.com/gpu a: {XID}")]


def test_an_applications_xid_that_the_scanner_read_before_this_process_ran_is_told_once(held):
    """Defect: a herd's start, or this process's end, hid it. What is older than a minute stays untold at first."""
    file = held.settings.history_directory / "scanner" / CURRENT
    file.parent.mkdir(parents=True)
    file.write_bytes(line(HistoryEvent(time.time() - 120, "application", "from before", GPU, "b")))
    history = History(held.settings.history_directory, "scanner")
    held.offer(GPU, a="", b="")
    for number in range(1, 4):
        note(history)
        held.start()
        held.until(lambda: is_remembered(held), "it is told")
        held.stop()
        assert sum(each["count"] for each in held.server.events) == number

    assert {event[1:] for event in told(held)} == {("one", "ApplicationXid", f"nvidia.com/gpu a: {XID}")}


def test_a_clock_that_is_set_back_has_no_xid_told_twice_and_none_left_out(held):
    """Defect: the next process went on from a time. Right after a boot a clock may be hours ahead."""
    file = held.settings.history_directory / "scanner" / CURRENT
    file.parent.mkdir(parents=True)
    now = time.time()
    held.offer(GPU, a="", b="")
    for ahead in (3600, 0, 1800):
        with file.open("ab") as history:
            history.write(line(HistoryEvent(now + ahead, "application", f"{ahead} s ahead", GPU, "a")))
        held.start()
        held.until(lambda: is_remembered(held), "it is told")
        held.stop()

    assert [(event[3], each["count"]) for event, each in zip(told(held), held.server.events, strict=True)] == [
        (f"nvidia.com/gpu a: {ahead} s ahead", 1) for ahead in (3600, 0, 1800)
    ]
