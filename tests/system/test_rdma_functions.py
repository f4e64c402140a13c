"""RDMA functions with Multus, from the scan to the kubelet."""

import pytest


@pytest.mark.on("rdma-sriov", {"vendors": {"rdma": {"mode": "sriov"}}})
async def test_a_function_has_its_device_info_file_by_the_time_the_kubelet_knows_it(testbed):
    """The scanner's sandbox lets it make the directory, which only Multus or the plugin has made so far."""
    await testbed.kubelet.until_allocatable("rdma/hca", 4, within=30)

    files = (testbed.node.root / "var/run/k8s.cni.cncf.io/devinfo/dp").glob("*.json")
    assert sorted(path.name for path in files) == [
        f"rdma-hca-0000:01:00.{number}-device.json" for number in range(1, 5)
    ]
