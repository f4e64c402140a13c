"""`health.rules` in a running instance: the kubelet hears what a rule makes of a finding."""

import pytest
from outside import supervisorctl, until_explained

from devherd_sim.node import faults

RESOURCE = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
PORT = "intel-fpga-port.0"
QUICK = {"health": {"poll": "100ms"}, "scan": {"period": "300ms"}}


@pytest.mark.on("fpga-opae-2", QUICK)
async def test_a_rule_that_is_reloaded_judges_what_is_held_already(testbed):
    """A missing node made the port Unhealthy; with the rule it is a warning, and `devherd explain` names the rule."""
    await testbed.kubelet.until_allocatable(RESOURCE, 1, within=30)
    faults.inject(testbed.node, "node", PORT)
    await testbed.kubelet.until_allocatable(RESOURCE, 0, within=30)

    rule = {"match": {"vendor": "intel_fpga"}, "source": "node", "action": "warn"}
    testbed.configure({**QUICK, "health": {**QUICK["health"], "rules": [rule, {"source": "scan", "action": "warn"}]}})
    await supervisorctl(testbed, "reload")
    await testbed.kubelet.until_allocatable(RESOURCE, 1, within=30)

    told = await until_explained(testbed, RESOURCE, PORT, lambda told: told["warnings"])
    judged = {finding["source"]: (finding["action"], finding["rule"]) for finding in told["findings"]}
    assert (told["health"], judged["node"]) == ("Healthy", ("warn", "health.rules[0]"))
    assert "node-missing" in told["warnings"]
