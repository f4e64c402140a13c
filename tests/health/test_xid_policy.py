"""`health.xid` of the configuration: what Xids do under it."""

import pytest
from pydantic import ValidationError

from devherd._native import Device, Evidence, Fact, Finding
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.health.held import Now, Seen
from devherd.health.policy import Policy, Rules
from devherd.inventory import Entry, Inventory
from devherd.reasons.xids import OF_PLUGIN_IGNORED

GPU = Entry(Device(vendor="nvidia", id="GPU-1", card="0000:3b:00.0", facts={}), "nvidia.com/gpu")


def action(code, **health):
    """What a code does, and which key of the file says so."""
    rules = resolve(Config.model_validate({"health": health})).health.rules
    finding = Finding(source="nvml", reason="xid", value=str(code))
    meaning = Rules(rules, Inventory([GPU])).meaning_of(GPU.key, finding)
    return meaning.action, meaning.rule


def test_by_default_nvidias_catalogue_decides():
    """No key of the file says anything."""
    assert [action(code) for code in (13, 94, 79)] == [("ignore", ""), ("warn", ""), ("unhealthy", "")]


def test_as_in_nvidias_plugin_all_but_six_make_a_device_unhealthy():
    """Known or not."""
    does = {code: action(code, xid={"policy": "plugin"})[0] for code in range(1, 256)}
    assert {code for code, what in does.items() if what == "ignore"} == OF_PLUGIN_IGNORED
    assert {what for code, what in does.items() if code not in OF_PLUGIN_IGNORED} == {"unhealthy"}


@pytest.mark.parametrize("policy", ["devherd", "plugin"])
def test_a_code_in_the_file_does_what_the_file_says(policy):
    """Whatever the policy is; as YAML reads it, or as text."""
    xid = {"policy": policy, 94: "ignore", "13": "warn"}
    assert [action(code, xid=xid) for code in (94, 13)] == [("ignore", "health.xid"), ("warn", "health.xid")]
    assert action(79, xid=xid)[0] == "unhealthy"


def test_a_rule_is_stronger():
    """`health.rules` can name devices."""
    rules = [{"match": {"id": "GPU-1"}, "reason": "xid", "value": "94", "action": "unhealthy"}]
    assert action(94, rules=rules, xid={94: "ignore"}) == ("unhealthy", "health.rules[0]")


def test_it_is_about_xids_alone():
    """Another reason keeps its action."""
    rules = resolve(Config.model_validate({"health": {"xid": {"policy": "plugin"}}})).health.rules
    finding = Finding(source="nvml", reason="row-remap-pending", value="1")
    assert Rules(rules, Inventory([GPU])).meaning_of(GPU.key, finding).action == "warn"


@pytest.mark.parametrize(
    ("xid", "message"),
    [
        ({"polcy": "plugin"}, "Input should be"),
        ({"ecc": "warn"}, "`ecc` is neither `policy` nor the code of an Xid"),
        ({94: "panic"}, "Input should be"),
    ],
)
def test_what_is_no_code_is_refused(xid, message):
    """With what it could be."""
    with pytest.raises(ValidationError, match=message):
        Config.model_validate({"health": {"xid": xid}})


@pytest.mark.parametrize(
    ("code", "driver", "is_believed"),
    [
        (109, "565.57.01", False),
        (109, "570.86.15", True),
        (143, "570.172.08", False),
        (143, "575.51.03", True),
        (48, "565.57.01", True),
        (119, "580.95.05", False),
        (143, "", True),
    ],
)
def test_a_driver_whose_recovery_action_does_not_speak_of_an_xid_does_not_end_it(code, driver, is_believed):
    """Defect: Xid 143 under R570 was taken back after a second. Branches: NVIDIA's catalogue of Xids."""
    gpu = Entry(
        Device(vendor="nvidia", id="GPU-1", card="0000:3b:00.0", facts={"driver_version": Fact("version", driver, "")}),
        "x",
    )
    for source in ("nvml", "kernel-log"):
        meaning = Rules([], Inventory([gpu])).meaning_of(gpu.key, Finding(source=source, reason="xid", value=str(code)))
        assert meaning.action == "unhealthy"
        assert (Evidence.RECOVERY_UNASKED in meaning.evidence) is is_believed
        assert Evidence.RECOVERY_NONE in meaning.evidence


@pytest.mark.parametrize("source", ["nvml", "kernel-log"])
def test_a_start_of_the_gpu_disproves_xid_143_and_no_other(source):
    """Defect: "GPU Initialization Error" stood, under a driver before 575 until a reset, though the GPU works since."""
    gpu, policy = GPU.key, Policy(3)
    before, after = Seen(), Seen()
    for code in ("143", "79"):
        before.happened(gpu, Finding(source=source, reason="xid", value=code), 10.0)
    policy.note(before, Now(1000.0, 11.0, "boot"))
    assert {one.finding.value for one in policy.held_against(gpu) if one.counts} == {"143", "79"}

    after.evident(gpu, Evidence.STARTED, 20.0)
    policy.note(after, Now(1010.0, 21.0, "boot"))

    assert {one.finding.value for one in policy.held_against(gpu) if one.counts} == {"79"}
