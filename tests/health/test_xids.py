"""The catalogue of Xids: what each code does, and that each does one thing."""

import pytest

from devherd._native import Finding
from devherd.health import xids
from devherd.health.clears import Evidence, Until
from devherd.health.registry import MEANINGS, meaning_of
from devherd.health.xids import CATALOGUE, OF_PLUGIN_IGNORED

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
    """Those of the catalogue what it says, every other is a warning."""
    for code in range(1, 1024):
        kinds = [kind for kind, names in xids._NAMES.items() if code in names]
        assert len(kinds) <= 1, code
        expected = kinds[0] if kinds else xids.UNKNOWN
        meaning = meaning_of(xid(code))
        assert (meaning.action, meaning.clears) == (expected.action, expected.clears), code


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
            assert isinstance(meaning.clears, Until)
            assert {Evidence.REBOUND, Evidence.READDED, Evidence.REBOOTED, Evidence.OPERATOR} <= meaning.clears.evidence


def test_only_codes_that_bring_a_recovery_action_end_when_the_driver_wants_none():
    """Of 119 the driver says nothing, of 48 it does; power cables (54) are the driver's business in no way."""

    def ends(code):
        return {Evidence.RECOVERY_NONE, Evidence.RECOVERY_UNASKED} & meaning_of(xid(code)).clears.evidence

    assert ends(48) == {Evidence.RECOVERY_NONE, Evidence.RECOVERY_UNASKED}
    assert ends(119) == ends(79) == {Evidence.RECOVERY_NONE}
    assert ends(54) == frozenset()


def test_errors_of_nvlink_are_as_bad_as_the_reader_knows():
    """NVML gives the code alone; the kernel log says which are fatal."""
    assert {xids.kinds()[code] for code in range(144, 151)} == {xids.WARNED}
    assert {xids.kinds(nvlink=xids.TOLD)[code] for code in range(144, 151)} == {xids.TOLD}
    assert xids.kinds(nvlink=xids.TOLD)[48] == xids.kinds()[48]


def test_a_code_is_told_by_its_name():
    """Where it has one."""
    assert (xids.told(79), xids.told(200)) == ("Xid 79: GPU_HAS_FALLEN_OFF_THE_BUS", "Xid 200")
    assert MEANINGS["nvml", "xid"].by_value["79"].threshold == xids.told(79)
