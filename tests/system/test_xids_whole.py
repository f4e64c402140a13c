"""devherd whole: what the NVIDIA driver prints reaches the kubelet at once, and so does the end of it."""

import pytest

GPU = "nvidia.com/gpu"
# Neither a poll nor a scan: what is seen is heard.
HEARING = {"health": {"poll": "60s"}, "scan": {"period": "60s"}}


@pytest.mark.on("nvidia-8", HEARING)
async def test_an_xid_takes_its_gpu_out_and_the_driver_s_word_brings_it_back(testbed):
    """The scanner waits for the log beside everything else, within its sandbox."""
    await testbed.kubelet.until_allocatable(GPU, 8, within=30)
    address = min(path.name for path in (testbed.node.root / "proc/driver/nvidia/gpus").iterdir())
    xid = f"NVRM: Xid (PCI:{address.rpartition('.')[0]}):"
    testbed.node.kernel_log.write(f"{xid} 79, pid=812, name=python3, GPU has fallen off the bus.")
    await testbed.kubelet.until_allocatable(GPU, 7, within=30)
    testbed.node.kernel_log.write(
        f"{xid} 154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)"
    )
    await testbed.kubelet.until_allocatable(GPU, 8, within=30)
