"""The unmodified kubelet with static pods: what reaches the container runtime is what `devherd scan` says."""

import json
import signal

import pytest
from whole_node import given

CRYPTO = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
CODEC = "fpga.intel.com/af-695.f7d.aVKNtusxV3qMNmj5-qCB9vffQFy9es9yIvFEsLk6zRg"
REGION = "fpga.intel.com/region-69528db6eb31577a8c3668f9faa081f6"
SHARED = "fpga.intel.com/shared"
TUN = "devic.es/tun"
GPU = "example.com/gpu"
GENERIC = [
    {
        "name": TUN,
        "groups": [
            {"count": 2, "paths": [{"path": "/dev/dfl-fme.0"}, {"path": "/dev", "type": "Mount", "mountPath": "/all"}]}
        ],
    }
]


EVERY_WAY = {"device_list_strategy": ["volume-mounts", "cdi-cri", "cdi-annotations"], "pass_device_specs": True}
NODES = {
    "FPGA ports": ("fpga-1", {}),
    "FPGA ports of OPAE": ("fpga-opae-2", {}),
    "FPGA regions": ("fpga-1", {"vendors": {"intel_fpga": {"mode": "region"}}}),
    "FPGA regions for development": ("fpga-1", {"vendors": {"intel_fpga": {"mode": "regiondevel"}}}),
    "NVIDIA GPUs": ("nvidia-1", {}),
    "NVIDIA GPUs in every other way": ("nvidia-1", {"vendors": {"nvidia": EVERY_WAY}}),
    "NVIDIA MIG devices": ("nvidia-mig", {"vendors": {"nvidia": {"mig_strategy": "mixed"}}}),
    "AMD GPUs": ("amd-1", {}),
    "AMD GPUs for virtual machines": ("amd-vf-passthrough", {}),
    "Intel GPUs": ("intel-gpu-2", {}),
    "RDMA cards": ("rdma-2", {}),
    "Xilinx cards": ("xilinx-2", {}),
    "generic and simulated devices": ("fpga-1", {"generic": GENERIC, "simulated": [{"name": GPU, "count": 2}]}),
}


@pytest.mark.parametrize(("preset", "config"), NODES.values(), ids=NODES)
def test_a_static_pod_gets_what_scan_says_of_the_device(whole_node, preset, config):
    """A pod for every resource of the node: device nodes, mounts, environment, annotations, CDI names, and no more."""
    whole_node.start(preset, config)
    scanned = whole_node.scan()
    assert scanned
    for number, (resource, devices) in enumerate(scanned.items()):
        whole_node.until_allocatable(resource, len(devices))
        pod = whole_node.static_pod(f"pod-{number}", {resource: 1})
        assert whole_node.running(pod).given == whole_node.as_scanned(pod)
        assert len(whole_node.held(pod)["main"][resource]) == 1


def test_several_gpus_of_a_container_are_named_in_one_variable(whole_node):
    """With commas, in the order of scan."""
    whole_node.start("nvidia-8")
    whole_node.until_allocatable("nvidia.com/gpu", 8)
    pod = whole_node.static_pod("a", {"nvidia.com/gpu": 4})
    container = whole_node.running(pod)
    assert container.given == whole_node.as_scanned(pod)
    visible = container.given["envs"]["NVIDIA_VISIBLE_DEVICES"].split(",")
    assert sorted(visible) == whole_node.held(pod)["main"]["nvidia.com/gpu"]


def test_a_region_is_given_by_annotation_and_cdi_name(whole_node):
    """In mode region the runtime's hook programs the device: it takes both from CreateContainer."""
    whole_node.start("fpga-1", {"vendors": {"intel_fpga": {"mode": "region"}}})
    whole_node.until_allocatable(REGION, 1)
    assert whole_node.running(whole_node.static_pod("a", {REGION: 1})).given == {
        "nodes": [{"host_path": "/dev/dfl-port.0", "container_path": "/dev/dfl-port.0", "permissions": "rw"}],
        "mounts": [],
        "envs": {},
        "annotations": {"com.intel.fpga.mode": "fpga.intel.com/region"},
        "cdi_devices": ["intel.cdi.k8s.io/fpga=dfl-fme.0"],
    }
    spec = json.loads((whole_node.directory / "node/var/run/cdi/intel.cdi.k8s.io-fpga-dfl-fme.0.yaml").read_text())
    assert [each["name"] for each in spec["devices"]] == ["dfl-fme.0"]


def test_pods_share_a_device_under_its_other_name(whole_node):
    """As many as it has replicas; each has an id of its own and the same device."""
    rule = {"match": {"vendor": "intel_fpga"}, "sharing": {"replicas": 3, "rename": SHARED}}
    whole_node.start("fpga-1", {"resources": [rule]})
    whole_node.until_allocatable(SHARED, 3)
    replicas = whole_node.scan()[SHARED]
    pods = [whole_node.static_pod(name, {SHARED: 1}) for name in "abc"]
    contents = [whole_node.running(pod).given for pod in pods]
    assert contents == [given(replica) for replica in replicas.values()]
    assert contents[0] == contents[1] == contents[2]
    assert sorted(whole_node.held(pod)["main"][SHARED][0] for pod in pods) == sorted(replicas)


def test_a_container_gets_devices_of_two_resources_together(whole_node):
    """Two ports of one, and of the other a group of a device node and a mount."""
    whole_node.start("fpga-8", {"generic": GENERIC})
    whole_node.until_allocatable(CRYPTO, 4)
    whole_node.until_allocatable(TUN, 2)
    pod = whole_node.static_pod("a", {CRYPTO: 2, TUN: 1})
    container = whole_node.running(pod)
    held = whole_node.held(pod)["main"]
    assert {resource: len(ids) for resource, ids in held.items()} == {CRYPTO: 2, TUN: 1}
    assert container.given == whole_node.as_scanned(pod)


def test_a_container_made_again_has_the_same_devices(whole_node):
    """Its process dies; the kubelet asks nobody, and neither need devherd be there."""
    whole_node.start("fpga-8")
    whole_node.until_allocatable(CRYPTO, 4)
    pod = whole_node.static_pod("a", {CRYPTO: 2})
    first, held = whole_node.running(pod), whole_node.held(pod)
    whole_node.herd.stop()
    whole_node.runtime.exit(first)
    second = whole_node.eventually(
        lambda: [each for each in whole_node.runtime.containers(pod, "RUNNING") if each.attempt == 1],
        "the container runs again",
    )[0]
    assert second.given == first.given
    assert whole_node.held(pod) == held


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_pod_keeps_running_with_its_devices_over_a_restart_of_the_kubelet(whole_node, number):
    """And devherd registers again: the next pod gets what is left."""
    whole_node.start("fpga-8")
    whole_node.until_allocatable(CRYPTO, 4)
    pod = whole_node.static_pod("a", {CRYPTO: 3})
    container, held = whole_node.running(pod), whole_node.held(pod)
    whole_node.kubelet.stop(number)
    whole_node.start_kubelet()
    whole_node.until_allocatable(CRYPTO, 4)
    rest = whole_node.static_pod("b", {CRYPTO: 1})
    other = whole_node.running(rest)
    assert whole_node.held(pod) == held
    assert not set(held["main"][CRYPTO]) & set(whole_node.held(rest)["main"][CRYPTO])
    assert [each.id for each in whole_node.runtime.containers(pod)] == [container.id]
    assert whole_node.runtime.containers(pod, "RUNNING")
    assert other.given == whole_node.as_scanned(rest)


def test_a_pod_keeps_running_when_the_kubelet_is_back_before_devherd(whole_node):
    """Its devices come from the kubelet's checkpoint, also for the container that is made again."""
    whole_node.start("fpga-8")
    whole_node.until_allocatable(CRYPTO, 4)
    pod = whole_node.static_pod("a", {CRYPTO: 2})
    container, held = whole_node.running(pod), whole_node.held(pod)
    whole_node.herd.stop()
    whole_node.kubelet.stop()
    whole_node.start_kubelet()
    whole_node.eventually(lambda: pod in whole_node.pods(), "the kubelet has the pod")
    whole_node.runtime.exit(container)
    whole_node.eventually(lambda: len(whole_node.runtime.containers(pod)) == 2, "the container is made again")
    again = whole_node.running(pod)
    assert (again.given, whole_node.held(pod), whole_node.allocatable(CRYPTO)) == (container.given, held, [])
    whole_node.start_herd()
    whole_node.until_allocatable(CRYPTO, 4)
    assert whole_node.held(pod) == held


def test_a_static_pod_of_a_resource_that_nobody_advertised_yet_runs_without_it(whole_node):
    """The kubelet's doing, and no plugin can prevent it: devherd must be there before the pod is."""
    whole_node.start("fpga-1", {"simulated": [{"name": GPU, "count": 1}]})
    whole_node.until_allocatable(GPU, 1)
    pod = whole_node.static_pod("early", {"example.com/never": 1})
    assert whole_node.running(pod).given == given()
    assert whole_node.held(pod) == {"main": {}}
