"""`devherd explain` against a running instance: what happens to a device is explained by what was read of it."""

from pathlib import Path

import pytest
from outside import devherd, until_explained, until_scanned

from devherd_sim.node import faults

RESOURCE = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
PORT = "intel-fpga-port.0"


@pytest.mark.on("fpga-opae-2", {"health": {"poll": "100ms"}})
async def test_a_port_error_is_explained_by_the_register_that_was_read(testbed):
    """The alert's runbook leads here: file and value, since when, what takes it back; and nothing once it is well."""
    await testbed.kubelet.until_allocatable(RESOURCE, 1, within=30)
    await testbed.kubelet.allocate(RESOURCE, 1, pod="train")

    faults.inject(testbed.node, "fpga-errors", PORT, "0x20")
    ill = await until_explained(testbed, RESOURCE, PORT, lambda told: told["findings"] and told["reasons"])
    faults.clear(testbed.node, "fpga-errors", PORT)
    well = await until_explained(testbed, RESOURCE, PORT, lambda told: not (told["findings"] or told["reasons"]))

    [finding] = ill["findings"]
    errors = testbed.node.path_of(PORT) / "errors/errors"
    assert (ill["health"], ill["reasons"], finding["reason"]) == ("Unhealthy", ["port-error"], "port-error")
    assert Path(finding["file"]).name == errors.name
    assert (finding["source"], finding["value"], finding["count"]) == ("fpga-errors", "0x20", 1)
    assert finding["ends"] == "when 3 polls in a row read none"
    assert (well["health"], well["reasons"]) == ("Healthy", [])
    assert ill["rule"] == "intel-fpga's default name"
    assert [holder["pod"] for holder in ill["allocated"]] == ["train"]
    assert ill["facts"]["afu_id"]["source"].endswith("afu_id")


@pytest.mark.on("fpga-opae-2", {"health": {"poll": "100ms"}})
async def test_evidence_outlives_the_scanner(testbed):
    """A fatal PCI error is held for ten minutes, also by a scanner that has not seen it."""
    await testbed.kubelet.until_allocatable(RESOURCE, 1, within=30)
    await until_scanned(testbed)
    faults.inject(testbed.node, "aer", testbed.node.pci_function_of(PORT).name, "fatal 3")
    before = await until_explained(testbed, RESOURCE, PORT, lambda told: told["findings"] and told["reasons"])

    devherd("ctl", "--run-dir", str(testbed.settings.run_dir), "restart", "scanner")
    after = await until_explained(testbed, RESOURCE, PORT, lambda told: told["findings"])

    [finding] = after["findings"]
    assert (before["reasons"], after["reasons"]) == (["pci-aer"], ["pci-aer"])
    assert finding["first_seen"] == before["findings"][0]["first_seen"]
    assert finding["ends"] == "after 600 s without another event"
