"""Every vendor's devices within the rights of the DaemonSet's pod, on simulated hosts, with the components as shipped.

What this does not show: NVIDIA's container runtime, in whose place the host brings a stub of NVML; and the kernel's own
refusal to tell an unprivileged container of KFD's GPUs (component amd), in whose place files are unreadable.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from cdi_runtime import Runtime
from kustomizations import by_kind, with_components
from nvml_host import Host
from nvml_stub import Stub, compiled
from pod_node import PodNode, shipped_pod_spec
from unshared import skip_without_namespaces

from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec

EVERY_VENDOR = NodeSpec(
    fpga=preset("fpga-1").fpga,
    nvidia=preset("nvidia-8").nvidia,
    amd=preset("amd-8").amd,
    intel_gpu=preset("intel-gpu-2").intel_gpu,
    xilinx_fpga=preset("xilinx-2").xilinx_fpga,
    rdma=preset("rdma-2").rdma,
)
SYS_ADMIN = 21
"""Of capabilities(7)."""
TOLD = ("id", "nodes", "mounts", "envs", "annotations", "cdi_devices", "health")


@pytest.fixture
def run_pod():
    """`run_pod(directory, pod_spec, config, host)`: a node whose pod is ready; it ends with the test."""
    running = []

    def run(directory, pod_spec, config, host):
        node = PodNode(directory, pod_spec, config, host)
        running.append(node)
        node.wait_until_ready()
        return node

    yield run
    for node in running:
        node.end()


@pytest.fixture
def directory():
    """Short, because UNIX sockets are put in it."""
    skip_without_namespaces()
    path = Path(tempfile.mkdtemp(prefix="dh", dir="/tmp"))
    yield path
    shutil.rmtree(path)


def pod_spec_with(kubectl, directory, *components):
    """The pod as `kubectl apply -k` would send it with these components."""
    manifests = by_kind(with_components(kubectl, directory / "kustomization", *components))
    return manifests["DaemonSet"]["spec"]["template"]["spec"]


def told(resources):
    """Resource name → each of its devices as the inventory has it."""
    return {each["name"]: [{key: device[key] for key in TOLD} for device in each["devices"]] for each in resources}


def test_every_vendors_devices_are_served_as_outside_the_pod(directory, run_pod):
    """Its volumes show all that a scan reads; whole NVIDIA GPUs need neither NVML nor a component."""
    host = SimulatedNode.create(directory / "node", EVERY_VENDOR).root
    scan = [sys.executable, "-m", "devherd", "scan", "--output", "json", "--host-root", host]
    outside = json.loads(subprocess.run(scan, check=True, capture_output=True).stdout)

    node = run_pod(directory, shipped_pod_spec(), {}, host)

    inside = json.loads(node.http("/api/v1/inventory"))
    assert told(inside["resources"]) == told(outside["resources"])
    vendors = {resource["vendor"] for resource in inside["resources"]}
    assert vendors == {"intel-fpga", "nvidia", "amd", "intel-gpu", "xilinx-fpga", "rdma"}
    assert inside["problems"] == outside["problems"] == []
    assert node.pod.status()["CapEff"] == "0000000000000000"


def test_whole_amd_gpus_are_served_where_the_topology_may_not_be_read(directory, run_pod):
    """Without the component amd: their own nodes suffice for a container to compute; what is missing is reported."""
    host = SimulatedNode.create(directory / "node", preset("amd-8")).root
    for properties in host.glob("sys/devices/virtual/kfd/kfd/topology/nodes/*/properties"):
        properties.chmod(0)

    node = run_pod(directory, shipped_pod_spec(), {}, host)

    inventory = json.loads(node.http("/api/v1/inventory"))
    [devices] = told(inventory["resources"]).values()
    assert [len(device["nodes"]) for device in devices] == [3] * 8
    assert {device["health"] for device in devices} == {"Healthy"}
    [problem] = inventory["problems"]
    assert problem["path"].startswith("/sys/class/kfd/kfd/topology/nodes/")


@pytest.fixture
def guarded(directory, tool):
    """A host whose NVML refuses what it refuses to a pod: a MIG device from before, and one made since it started."""
    spec = NodeSpec(nvidia=NvidiaSpec(gpus=2, mig=[["3g.40gb", "1g.10gb"]]))
    simulated = SimulatedNode.create(directory / "node", spec)
    made = Host(simulated, Stub(compiled(tool("cc"), directory / "libnvidia-ml.so.1"), simulated.root / "usr/nvml.txt"))
    made.mig(0, 0, (1, 0), 3, 40320, profile=2, name="3g.40gb")
    made.mig(0, 1, (7, 0), 1, 9728, name="1g.10gb", late=1)
    made.stub.say("guarded").write()
    return made


def mig_pod_spec(kubectl, directory, *components):
    """With these components, and what the stub needs."""
    pod_spec = pod_spec_with(kubectl, directory, *components)
    pod_spec["containers"][0]["env"].append({"name": "DEVHERD_NVML_STUB", "value": "/host/usr/nvml.txt"})
    return pod_spec


def test_mig_devices_are_served_with_nvml_and_cdi_under_the_components(directory, run_pod, kubectl, guarded):
    """M1: components nvidia and nvidia-cdi; NVML refuses the memory of the GPU, specs name the host's own libraries."""
    pod_spec = mig_pod_spec(kubectl, directory, "nvidia", "nvidia-cdi")
    options = {"mig_strategy": "mixed", "device_list_strategy": ["cdi-cri"]}

    node = run_pod(directory, pod_spec, {"vendors": {"nvidia": options}}, guarded.root)

    node.wait_for(lambda: "nvidia.com/mig-3g.40gb" in node.http("/api/v1/inventory"))
    node.wait_until_ready()
    inventory = json.loads(node.http("/api/v1/inventory"))
    assert {name: len(devices) for name, devices in told(inventory["resources"]).items()} == {
        "nvidia.com/gpu": 1,
        "nvidia.com/mig-3g.40gb": 1,
    }
    [late] = [problem["error"] for problem in inventory["problems"] if "MIG" in problem["error"]]
    assert late.startswith("MIG devices gi7/ci0 are not advertised: NVML does not list them")
    edits = Runtime(directory / "cdi").edits(["k8s.device-plugin.nvidia.com/gpu=MIG-0-0"])
    libraries = [mount["hostPath"] for mount in edits["mounts"]]
    assert any(path.startswith("/usr/lib/x86_64-linux-gnu/libcuda.so.") for path in libraries), libraries
    assert {"/run/nvidia-persistenced/socket", "/etc/OpenCL/vendors/nvidia.icd"} < set(libraries)
    assert [problem["path"] for problem in inventory["problems"] if "hooks" in problem["error"]] == []
    assert node.pod.status()["CapEff"] == "0000000000000000"


def test_all_mig_devices_are_served_by_the_right_to_monitor_them(directory, run_pod, kubectl, guarded):
    """M1: with nvidia-mig, those made since the pod started too; no child but source:nvml has the capability."""
    pod_spec = mig_pod_spec(kubectl, directory, "nvidia", "nvidia-mig", "nvidia-cdi")

    node = run_pod(directory, pod_spec, {"vendors": {"nvidia": {"mig_strategy": "mixed"}}}, guarded.root)

    node.wait_for(lambda: "nvidia.com/mig-1g.10gb" in node.http("/api/v1/inventory"))
    inventory = json.loads(node.http("/api/v1/inventory"))
    names = ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"]
    assert sorted(told(inventory["resources"])) == names
    assert [problem for problem in inventory["problems"] if "MIG" in problem["error"]] == []
    assert node.pod.capabilities() == {"source:nvml": 1 << SYS_ADMIN}
