"""The catalogue of Xids: what each code does, and that each does one thing."""

from dataclasses import replace

import pytest

from devherd._native import Evidence, Finding
from devherd.reasons import xids
from devherd.reasons.registry import MEANINGS, OF_ADVICE, meaning_of, xid_meanings
from devherd.reasons.xids import CATALOGUE, OF_PLUGIN_IGNORED

NAMED = {
    8: "warn", 11: "warn", 13: "ignore", 31: "ignore", 32: "warn", 38: "warn", 39: "warn", 43: "ignore", 44: "warn",
    45: "ignore", 46: "unhealthy", 48: "unhealthy", 54: "unhealthy", 62: "unhealthy", 63: "ignore", 64: "unhealthy",
    68: "ignore", 69: "warn", 74: "unhealthy", 79: "unhealthy", 92: "warn", 94: "warn", 95: "unhealthy",
    109: "unhealthy", 110: "unhealthy", 119: "unhealthy", 120: "unhealthy", 121: "warn", 137: "ignore",
    140: "unhealthy", 143: "unhealthy", 154: "ignore", 155: "unhealthy", 158: "unhealthy", 167: "unhealthy",
    169: "unhealthy", 171: "ignore", 172: "ignore",
}  # fmt: skip


def xid(code: int) -> Finding:
    """As NVML's events give it."""
    return Finding(source="nvml", reason="xid", value=str(code))


def test_every_code_does_one_thing():
    """Those of the catalogue what it says, every other is a warning. A later start of the GPU disproves 143."""
    for code in range(1, 1024):
        advice = [advice for advice, names in xids._NAMES if code in names]
        assert len(advice) <= 1, code
        meaning, of_advice = meaning_of(xid(code)), OF_ADVICE[advice[0] if advice else "warn"]
        disproof = meaning.evidence - of_advice.evidence
        assert replace(meaning, threshold="", do="", by_value={}, evidence=meaning.evidence - disproof) == of_advice, (
            code
        )
        assert disproof == ({Evidence.STARTED} if code == xids.GPU_INIT_ERROR else set()), code


@pytest.mark.parametrize(("code", "action"), NAMED.items())
def test_a_code_does_what_nvidia_advises(code, action):
    """Reset: Unhealthy; restart the application: a warning; the application's own doing: counted."""
    assert meaning_of(xid(code)).action == action


def test_the_plugin_ignores_six():
    """Of which devherd ignores all but the one that takes a reset."""
    assert {13, 31, 43, 45, 68, 109} == OF_PLUGIN_IGNORED
    assert [code for code in OF_PLUGIN_IGNORED if meaning_of(xid(code)).action != "ignore"] == [109]


def test_no_unhealthy_code_is_for_good():
    """Each is taken back by a new start of the GPU, and by an operator."""
    for code in CATALOGUE:
        meaning = meaning_of(xid(code))
        if meaning.action == "unhealthy":
            assert meaning.clears == "until"
            assert {Evidence.REBOUND, Evidence.READDED, Evidence.REBOOTED, Evidence.OPERATOR} <= meaning.evidence


def test_only_codes_that_bring_a_recovery_action_end_when_the_driver_wants_none():
    """Of 119 the driver says nothing, of 48 it does; power cables (54) are the driver's business in no way."""

    def ends(code):
        return {Evidence.RECOVERY_NONE, Evidence.RECOVERY_UNASKED} & meaning_of(xid(code)).evidence

    assert ends(48) == {Evidence.RECOVERY_NONE, Evidence.RECOVERY_UNASKED}
    assert ends(119) == ends(79) == {Evidence.RECOVERY_NONE}
    assert ends(54) == frozenset()


def test_errors_of_nvlink_are_as_bad_as_the_reader_knows():
    """NVML gives the code alone; the kernel log says which are fatal."""
    fatal = xid_meanings(of_nvlink="driver-decides")
    assert {xid_meanings()[str(code)].action for code in range(144, 151)} == {"warn"}
    assert {fatal[str(code)].action for code in range(144, 151)} == {"unhealthy"}
    assert fatal["48"] == xid_meanings()["48"]


def test_a_code_is_described_by_its_name():
    """Where it has one."""
    assert (xids.described(79), xids.described(200)) == ("Xid 79: GPU_HAS_FALLEN_OFF_THE_BUS", "Xid 200")
    assert MEANINGS["nvml", "xid"].by_value["79"].threshold == xids.described(79)
