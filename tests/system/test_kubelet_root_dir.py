"""A kubelet with another `--root-dir`, as that of k0s: devices are registered where ever, pods are listed elsewhere."""

import asyncio

import pytest
from outside import devherd

from devherd_sim.kubelet.manager import EmbeddedKubelet
from devherd_sim.node.presets import preset
from devherd_sim.testbed import Testbed

GPU = "nvidia.com/gpu"


@pytest.fixture
def testbed(directory):
    """Such a kubelet, and a herd that is yet to start."""
    testbed = Testbed(directory, preset("nvidia-1"))
    testbed.kubelet = EmbeddedKubelet(testbed.settings.kubelet_dir, root_dir=directory / "data")
    return testbed


async def told(testbed, *words):
    """What a command prints of the instance."""
    done = await asyncio.to_thread(devherd, *words, f"--run-dir={testbed.settings.run_dir}")
    return done.stdout + done.stderr


@pytest.mark.parametrize("registration", ["kubelet_socket", "plugins_registry"])
async def test_pods_are_known_where_the_kubelets_root_directory_is_named(testbed, registration):
    """Defect: one option moved both directories, so pods were unknown, or no resource was registered."""
    await testbed.kubelet.start()
    await testbed.start_herd(f"--kubelet-root-dir={testbed.directory / 'data'}", f"--registration={registration}")
    try:
        await testbed.kubelet.until_allocatable(GPU, 1)
        await testbed.kubelet.allocate(GPU, 1, pod="train")
        assert "pod default/train holds 1 device" in await told(testbed, "explain", "default/train")
        doctor = await told(testbed, "doctor", f"--host-root={testbed.settings.host_root}")
        assert "PodResources v1 answers" in doctor
        assert not (testbed.settings.kubelet_dir / "pod-resources").exists()
    finally:
        await testbed.stop_herd()
        await testbed.kubelet.stop(clean=True)


async def test_where_it_is_not_named_the_cure_is_to_name_it(testbed):
    """Defect: "name the kubelet's directory with --kubelet-dir" took the node's devices away, when it was followed."""
    await testbed.kubelet.start()
    await testbed.start_herd()
    try:
        await testbed.kubelet.until_allocatable(GPU, 1)
        cures = ("name the kubelet's --root-dir with --kubelet-root-dir", "as the chart's `kubeletDir`")
        for words in (("explain", "default/train"), ("doctor", f"--host-root={testbed.settings.host_root}")):
            said = await told(testbed, *words)
            assert any(cure in said for cure in cures)
            assert "with --kubelet-dir" not in said
    finally:
        await testbed.stop_herd()
        await testbed.kubelet.stop(clean=True)
