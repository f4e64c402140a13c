"""The log at level debug: what devherd did for the kubelet and what its scans found, and no library's own lines."""

import re

import pytest

GPU = "nvidia.com/gpu"


@pytest.mark.on("nvidia-8", {"log_level": "debug", "vendors": {"nvidia": {"device_id_strategy": "index"}}})
async def test_scans_that_found_something_new_lists_and_calls_are_a_line_each(testbed):
    """There was nothing of them; in their place the same directory that is not there was named twice a second."""
    await testbed.kubelet.until_allocatable(GPU, 8, within=30)
    await testbed.kubelet.allocate(GPU, 2, pod="train")
    await testbed.until(lambda: "Allocate: " in testbed.log, "the call is logged")
    lines = [line.split(": ", 1)[1] for line in testbed.log.splitlines() if " DEBUG " in line]

    [chosen] = [line for line in lines if line.startswith("GetPreferredAllocation: 2 of 8: ")]
    assert f"Allocate: {chosen.rpartition(': ')[2]}" in lines
    assert lines.count("sent a list to the kubelet: 8 devices, 0 unhealthy") == 1
    scans = [line for line in lines if line.startswith("scanned in ")]
    assert re.fullmatch(r"scanned in \d+\.\d ms: 8 nvidia; 0 problems; something changed", scans[0])
    assert [line for line in lines if "cannot watch" in line or "selector" in line] == []
