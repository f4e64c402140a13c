"""`devherd clear` against a running instance."""

import asyncio

import pytest
from outside import devherd, until_explained, until_scanned

from devherd_sim.node import faults

RESOURCE = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
PORT = "intel-fpga-port.0"
QUICK = {"health": {"poll": "100ms"}, "scan": {"period": "300ms"}}


@pytest.mark.on("fpga-opae-2", QUICK)
async def test_a_device_whose_cause_is_mended_is_given_back_at_once_and_not_if_it_fails_again(testbed):
    """The statement ends what was raised before it, and nothing that comes later."""
    await testbed.kubelet.until_allocatable(RESOURCE, 1, within=30)
    await until_scanned(testbed)
    faults.inject(testbed.node, "aer", testbed.node.pci_function_of(PORT).name)
    await testbed.kubelet.until_allocatable(RESOURCE, 0, within=30)
    await until_explained(testbed, RESOURCE, PORT, lambda told: told["findings"])
    words = ("--run-dir", str(testbed.settings.run_dir), RESOURCE, PORT, "pci-aer")

    done = await asyncio.to_thread(devherd, "clear", *words)
    await testbed.kubelet.until_allocatable(RESOURCE, 1, within=30)
    assert (done.returncode, done.stdout) == (0, f"{RESOURCE} {PORT}: pci-aer is cleared\n")
    again = await asyncio.to_thread(devherd, "clear", *words)
    assert again.returncode == 2

    faults.inject(testbed.node, "aer", testbed.node.pci_function_of(PORT).name)
    await testbed.kubelet.until_allocatable(RESOURCE, 0, within=30)
