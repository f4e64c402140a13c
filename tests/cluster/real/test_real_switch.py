"""The steps of docs/switch.md by which a cluster switches from another plugin to devherd and back, as written.

NVIDIA's plugin opens a library and cannot run without a GPU: a program with its names, namespace and devices stands in.
"""

import json
import os
import re
import shutil
import subprocess

import pytest
import yaml
from charts import CHART
from private_machine import NAME
from real_cluster import ROOT, pod_spec

GPU = "nvidia.com/gpu"
CHART_ARCHIVE = "dist/devherd-0.1.0.tgz"
OLD = "nvidia-device-plugin"

OLD_PLUGIN = """
import json, os, signal, sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import grpc
from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginServicer, RegistrationStub, add_DevicePluginServicer_to_server,
)

NUMA_NODES, ENDED = json.loads(os.environ["NUMA_NODES"]), Event()
SOCKETS = "/var/lib/kubelet/device-plugins"


class Plugin(DevicePluginServicer):
    def GetDevicePluginOptions(self, request, context):
        return api.DevicePluginOptions()

    def ListAndWatch(self, request, context):
        nodes = {each: [api.NUMANode(ID=one) for one in ids] for each, ids in NUMA_NODES.items()}
        on = {each: api.TopologyInfo(nodes=those) for each, those in nodes.items()}
        devices = [api.Device(ID=each, health="Healthy", topology=on[each]) for each in on]
        yield api.ListAndWatchResponse(devices=devices)
        ENDED.wait()

    def Allocate(self, request, context):
        return api.AllocateResponse(container_responses=[
            api.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(each.devices_ids)})
            for each in request.container_requests
        ])


signal.signal(signal.SIGTERM, lambda *_: ENDED.set())
server = grpc.server(ThreadPoolExecutor(4))
add_DevicePluginServicer_to_server(Plugin(), server)
server.add_insecure_port(f"unix:{SOCKETS}/nvidia-gpu.sock")
server.start()
with grpc.insecure_channel(f"unix:{SOCKETS}/kubelet.sock") as channel:
    RegistrationStub(channel).Register(
        api.RegisterRequest(version="v1beta1", endpoint="nvidia-gpu.sock", resource_name="nvidia.com/gpu")
    )
ENDED.wait()
server.stop(1).wait()
"""


def commands(page, title):
    """The blocks of commands of a section of a page, in their order."""
    text = (ROOT / "docs" / page).read_text()
    section = re.search(rf"^## {title}\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)[1]
    return re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def cluster(make_cluster):
    """A node of eight GPUs that another plugin serves."""
    made = make_cluster("nvidia-8")
    (made.directory / "config.yaml").write_text("{}")
    numa_nodes = {each["id"]: each["numa_nodes"] or [] for each in made.scan()[GPU].values()}
    place = "/var/lib/kubelet/device-plugins"
    container = {
        "name": "plugin",
        "image": "localhost/devherd:1",
        "command": ["python3", "-c", OLD_PLUGIN],
        "env": [{"name": "NUMA_NODES", "value": json.dumps(numa_nodes)}],
        "volumeMounts": [{"name": "sockets", "mountPath": place}],
    }
    labels = {"name": OLD}
    spec = {"containers": [container], "volumes": [{"name": "sockets", "hostPath": {"path": place}}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    metadata = {"name": OLD, "namespace": OLD}
    daemon_set = {"selector": {"matchLabels": labels}, "template": template}
    made.kubectl("create", "namespace", OLD)
    made.create({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": daemon_set})
    made.until_allocatable_in_status(GPU, len(numa_nodes))
    return made


@pytest.fixture(scope="module")
def typed(cluster, helm_and_kubectl):
    """`typed(commands)` is what they print in a shell of an administrator, who has the chart and values."""
    home = cluster.directory / "administrator"
    programs = home / "bin"
    programs.mkdir(parents=True)
    for name in ("helm", "kubectl"):
        (programs / name).write_text(f'#!/bin/sh\nexec {helm_and_kubectl} {name} "$@"\n')
        (programs / name).chmod(0o755)
    chart = shutil.copytree(CHART, home / "chart/devherd")
    description = (chart / "Chart.yaml").read_text()  # an API server that `go build` makes has no version
    (chart / "Chart.yaml").write_text(re.sub(r"(?m)^kubeVersion: .*\n", "", description))
    archive = home / CHART_ARCHIVE
    archive.parent.mkdir()
    subprocess.run(["tar", "-czf", archive, "-C", chart.parent, "devherd"], check=True)
    (home / "values.yaml").write_text(yaml.safe_dump({"image": {"repository": "localhost/devherd", "tag": "1"}}))
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(home), "KUBECONFIG": "/run/kubeconfig"
    }  # fmt: skip

    def run(text):
        done = cluster.machine.start(
            "sh", "-ec", f"cd {home}\n{text.replace('NODE', NAME)}",
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        printed, wrong = done.popen.communicate(timeout=300)
        assert done.popen.returncode == 0, f"{text}\n{printed}{wrong}"
        return printed

    return run


def running(cluster, selector, namespace):
    """The names of the pods that run there."""
    pods = json.loads(cluster.kubectl("-n", namespace, "get", "pods", "-l", selector, "-o", "json"))["items"]
    return [
        pod["metadata"]["name"]
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] == "Running"
    ]


def gpu_of(cluster, name):
    """The GPU that a pod holds, which is also what its container sees."""
    [gpu] = cluster.held(name)["main"][GPU]
    assert cluster.inside(name, "echo $NVIDIA_VISIBLE_DEVICES") == f"{gpu}\n"
    return gpu


def test_the_steps_of_the_page_switch_a_node_to_devherd_and_back_and_pods_keep_their_devices(cluster, typed):
    """Each command as it stands there; only the chart, the values and the node's name are this cluster's."""
    compare, let_a_label_decide, switch, back = commands("switch.md", "Switch a cluster")
    pods = {}

    def has_a_pod(name):
        cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod_spec({GPU: 1})})
        started = cluster.control_plane.until_running(name)
        pods[name] = (started, gpu_of(cluster, name))
        assert len({gpu for _, gpu in pods.values()}) == len(pods)

    def have_kept_their_devices():
        return all(
            (cluster.control_plane.until_running(one), gpu_of(cluster, one)) == kept for one, kept in pods.items()
        )

    def is_served_by(namespace, other):
        selectors = {"devherd": "app.kubernetes.io/name=devherd", OLD: f"name={OLD}"}
        cluster.eventually(lambda: running(cluster, selectors[namespace], namespace), f"{namespace} runs", 90)
        cluster.eventually(lambda: not running(cluster, selectors[other], other), f"{other} does not", 90)
        cluster.until_allocatable_in_status(GPU, 8)

    has_a_pod("before")
    [namespace] = commands("kubernetes.md", "The namespace")
    typed(namespace)
    assert f"{GPU}: 8 = 8 ids, 0 differences\n" in typed(compare)
    typed(let_a_label_decide)
    is_served_by(OLD, other="devherd")
    assert have_kept_their_devices()

    typed(switch)
    is_served_by("devherd", other=OLD)
    cluster.until_rolled_out()
    has_a_pod("switched")
    assert have_kept_their_devices()
    held = cluster.devherd("status", "--output", "json")
    assert all(gpu in held for _, gpu in pods.values())

    typed(back)
    is_served_by(OLD, other="devherd")
    has_a_pod("after")
    assert have_kept_their_devices()
