"""The log as JSON: what a line is about is fields, for a log store to search."""

import json

import pytest

from devherd_sim.node import faults

RESOURCE = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
PORT = "intel-fpga-port.0"


def lines(testbed) -> list[dict[str, str]]:
    """Whole lines of the log so far."""
    return [json.loads(line) for line in testbed.log.split("\n")[:-1]]


def verdicts(testbed) -> list[dict[str, str]]:
    """Lines about the health of the port."""
    return [line for line in lines(testbed) if line.get("device_id") == PORT and "health" in line]


@pytest.mark.on("fpga-opae-2", {"log_format": "json", "health": {"poll": "100ms"}})
async def test_a_change_of_health_has_resource_device_reason_and_evidence_as_fields(testbed):
    """Nothing has to be cut out of a sentence; a line of a resource's process names the resource."""
    await testbed.kubelet.until_allocatable(RESOURCE, 1, within=30)
    faults.inject(testbed.node, "fpga-errors", PORT, "0x20")
    await testbed.until(lambda: len(verdicts(testbed)) == 1, "Unhealthy is logged")
    faults.clear(testbed.node, "fpga-errors", PORT)
    await testbed.until(lambda: len(verdicts(testbed)) == 2, "Healthy is logged")

    ill, well = verdicts(testbed)
    fields = ("level", "process", "resource_name", "device_id", "health", "reason", "source", "value")
    assert [ill[name] for name in fields] == [
        "warning",
        "scanner",
        RESOURCE,
        PORT,
        "Unhealthy",
        "port-error",
        "fpga-errors",
        "0x20",
    ]
    assert ill["file"].endswith("/errors/errors")
    assert (well["health"], well["level"], "reason" in well) == ("Healthy", "info", False)
    of_resource = [
        line for line in lines(testbed) if line["process"].startswith("resource:") and "resource_name" in line
    ]
    assert RESOURCE in {line["resource_name"] for line in of_resource}
