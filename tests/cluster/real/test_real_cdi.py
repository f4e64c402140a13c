"""CDI specs of devherd, injected by a real container runtime."""

import json
import re

import pytest

GPU = "nvidia.com/gpu"
FORBIDDEN = "Operation not permitted"


@pytest.fixture(scope="module")
def cluster(make_cluster):
    """A node of eight NVIDIA GPUs whose devices go into containers by CDI."""
    made = make_cluster("nvidia-8")
    made.deploy({"vendors": {"nvidia": {"device_list_strategy": ["cdi-cri"]}}}, "nvidia-cdi")
    made.until_allocatable_in_status(GPU, 8)
    return made


def test_a_container_has_its_gpus_by_cdi_and_no_other(cluster):
    """Nodes, the driver's files, hooks: containerd does what the spec says; the other GPUs stay out of reach."""
    cluster.create_pod("train", {GPU: 2})
    nodes = set(re.findall(r"nvidia\d+", cluster.inside("train", "ls /dev")))
    assert len(nodes) == 2
    spec = json.loads(cluster.run("cat", "/var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json"))
    for node in ("nvidiactl", "nvidia-uvm"):
        assert node in cluster.inside("train", "ls /dev")
    mounts = cluster.inside("train", "cat /proc/mounts")
    wanted = [mount["containerPath"] for mount in spec["containerEdits"]["mounts"]]
    assert wanted
    assert [path for path in wanted if f" {path} " not in mounts] == []
    called = cluster.run("cat", "/var/log/nvidia-ctk").splitlines()
    hooks = [" ".join(hook["args"][1:]) for hook in spec["containerEdits"]["hooks"]]
    assert hooks
    assert [hook for hook in hooks if hook not in called] == []
    [other, *_] = sorted({f"nvidia{number}" for number in range(8)} - nodes)
    major, minor = (int(number) for number in cluster.run("stat", "-c", "%Hr %Lr", f"/dev/{other}").split())
    cluster.inside("train", f"mknod /tmp/other c {major} {minor}")
    assert FORBIDDEN in cluster.opening("train", "/tmp/other")
