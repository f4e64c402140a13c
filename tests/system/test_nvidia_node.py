"""devherd whole on a node with NVIDIA GPUs: what containers get, and what the kubelet hears of changes."""

import pytest

from devherd_sim.node import faults

GPU, THREE_SEVENTHS, ONE_SEVENTH = (f"nvidia.com/{name}" for name in ("gpu", "mig-3g.40gb", "mig-1g.10gb"))
SECOND, THIRD = "0000:02:00.0", "0000:81:00.0"

QUICK = {"health": {"poll": "100ms", "recover_after": 2, "forget_after": "1s"}, "scan": {"period": "300ms"}}
MIXED = {**QUICK, "vendors": {"nvidia": {"mig_strategy": "mixed", "pass_device_specs": True}}}


@pytest.mark.on("nvidia-mig", MIXED)
async def test_mig_devices_come_and_go_under_a_running_kubelet(testbed):
    """N25: a new one is allocatable without a restart; the resource of the last one that goes is empty."""
    for name, count in ((GPU, 2), (THREE_SEVENTHS, 2), (ONE_SEVENTH, 2)):
        await testbed.kubelet.until_allocatable(name, count, within=30)
    made = testbed.node.nvidia.create_mig_device(THIRD, "1g.10gb")
    await testbed.kubelet.until_allocatable(ONE_SEVENTH, 3, within=30)

    for address in (THIRD, "0000:82:00.0"):
        testbed.node.nvidia.destroy_mig_device(address, 1)

    await testbed.kubelet.until_allocatable(THREE_SEVENTHS, 0, within=30)
    given = await testbed.kubelet.allocate(ONE_SEVENTH, 3, pod="train")
    assert made in given.device_ids
    answer = given.answer()
    assert sorted(answer["envs"]["NVIDIA_VISIBLE_DEVICES"].split(",")) == sorted(given.device_ids)
    nodes = [node["host_path"] for node in answer["devices"]]
    assert len(nodes) == len(set(nodes)) == 4 + 2 + 3 * 2
    assert testbed.kubelet.allocatable(GPU) == 2


@pytest.mark.on("nvidia-mig", MIXED)
async def test_a_gpu_that_loses_its_driver_is_not_given_out(testbed):
    """N1, N21: it is Unhealthy until it is bound again, in the same process."""
    await testbed.kubelet.until_allocatable(GPU, 2, within=30)
    child = (await testbed.child_of(GPU)).pid
    faults.inject(testbed.node, "unbind", SECOND)
    await testbed.kubelet.until_allocatable(GPU, 1, within=30)
    assert sorted(testbed.kubelet.devices(GPU).values()) == ["Healthy", "Unhealthy"]

    faults.clear(testbed.node, "unbind", SECOND)

    await testbed.kubelet.until_allocatable(GPU, 2, within=30)
    assert (await testbed.child_of(GPU)).pid == child
