"""Whose a process is: the names that kubelets and runtimes give to cgroups."""

import pytest

from devherd.ledger.processes import ContainerPlace, place_of

UID, ID = "55c6c714-b240-4dec-9a45-57b61696ab6e", "7bd5db88ae6e5e52e941a2709ed9c18d7572f32db6ea44e8afe783227711151a"
STATIC = "8daa50c3a64c9ff60bb9eab7b44b56fd"
SLICE = f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"
V1 = "\n".join(
    f"{number}:{controller}:/kubepods/burstable/pod{UID}/{ID}"
    for number, controller in ((12, "hugetlb"), (3, "cpu,cpuacct"), (1, "name=systemd"))
)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"0::/kubepods.slice/kubepods-burstable.slice/{SLICE}/cri-containerd-{ID}.scope\n", ContainerPlace(UID, ID)),
        (f"0::/kubepods.slice/kubepods-burstable.slice/{SLICE}/crio-{ID}.scope/container\n", ContainerPlace(UID, ID)),
        (f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/docker-{ID}.scope\n", ContainerPlace(UID, ID)),
        (f"0::/../../../kubepods-burstable.slice/{SLICE}/cri-containerd-{ID}.scope\n", ContainerPlace(UID, ID)),
        (f"0::/../pod{UID}/{ID}\n", ContainerPlace(UID, ID)),
        (f"0::/kubepods/besteffort/pod{UID}/{ID}/init.scope\n", ContainerPlace(UID, ID)),
        (f"0::/system.slice/containerd.service/{SLICE}:cri-containerd:{ID}\n", ContainerPlace(UID, ID)),
        (f"0::/kubelet.slice/kubelet-{SLICE}/cri-containerd-{ID}.scope\n", ContainerPlace(UID, ID)),
        (f"0::/kubepods.slice/kubepods-pod{STATIC}.slice/cri-containerd-{ID}.scope\n", ContainerPlace(STATIC, ID)),
        (V1, ContainerPlace(UID, ID)),
        (f"13:freezer:/\n12:cpuset:/kubepods.slice/{SLICE}/crio-{ID}.scope\n11:files:/\n", ContainerPlace(UID, ID)),
        (f"0::/system.slice/docker-{ID}.scope\n", ContainerPlace("", ID)),
        (f"0::/machine.slice/libpod-{ID}.scope/container\n", ContainerPlace("", ID)),
        ("0::/system.slice/nvidia-persistenced.service\n", ContainerPlace()),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", ContainerPlace()),
        ("0::/kubepods.slice\n", ContainerPlace()),
        ("0::/system.slice/podman.service\n", ContainerPlace()),
        ("", ContainerPlace()),
    ],
)
def test_pod_and_container_are_read_from_every_form_of_name(text, place):
    """Both drivers of the kubelet, both versions of cgroups, static pods, processes of the host.

    Forms: kubelet `pkg/kubelet/cm` (`GetPodContainerName`, `ToSystemd`), netdata issue 4868 (cri-containerd, static
    pods), runc issue 4620 (crio, version 1), containerd nri pull 227 (`:cri-containerd:`, a kubelet below its slice).
    """
    assert place_of(text) == place
