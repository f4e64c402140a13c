"""What a person does about a finding: every reason says it, in one line, with what is known of the device."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devherd._native import Finding
from devherd.reasons.registry import MEANINGS, Meaning, to_do
from devherd.reasons.xids import CATALOGUE

LONGEST = 160
FACTS = {"pci_address": "0000:83:00.0", "slot": "4", "pci_driver": "nvidia", "resource": "nvidia.com/gpu"}
VERBS = re.compile(
    r"(?:ask|check|delete|do|drain|end|flash|follow|give|have|install|let|load|look|make|power-cycle|program|put|read"
    r"|reboot|recover|rescan|reseat|reset|restart|run|save|see|set|shut|start|wait) "
)


def declared() -> Iterator[tuple[str, str, str, Meaning, str]]:
    """Source, reason, value, meaning and text of each declaration."""
    for (source, reason), of_all in MEANINGS.items():
        for value, meaning in ({"": of_all} | dict(of_all.by_value)).items():
            for text in (meaning.do, *meaning.do_by_value.values()):
                yield source, reason, value, meaning, text


def finding(source: str, reason: str, value: str = "", file: str = "", detail: str = "") -> Finding:
    return Finding(source=source, reason=reason, value=value, file=file, detail=detail)


def is_whole(text: str) -> bool:
    """No place is left open, nothing is empty, and it is one line."""
    return not re.search(r"[{}\[\]|`\n]|\( *\)|  |[ ,:;]$|^[ ,:;]| [,;:)]|\( ", text) and bool(text)


@pytest.mark.parametrize(("source", "reason", "value", "meaning", "text"), list(declared()))
def test_every_reason_tells_a_person_what_to_do(source, reason, value, meaning, text):
    """In the imperative, in one line, whether everything is known of the device or nothing."""
    one = Meaning(meaning.action, "", do=text)
    known = to_do(finding(source, reason, value or "1", "/dev/nvidia0", "it was seen"), one, "GPU-1", FACTS)
    unknown = to_do(finding(source, reason), one, "GPU-1", {})
    for told in (known, unknown):
        assert is_whole(told), told
        assert VERBS.match(told), told
        assert len(told) <= LONGEST, told


def test_each_xid_says_what_nvidias_catalogue_says():
    """A reset where the catalogue has one, a new start of the program where that is enough, a reboot for a lost GPU."""
    assert {code for code, xid in CATALOGUE.items() if not xid.do} == set()
    told = {
        code: to_do(
            finding("kernel-log", "xid", str(code)), MEANINGS["kernel-log", "xid"].by_value[str(code)], "x", FACTS
        )
        for code in (13, 48, 54, 79)
    }
    assert told == {
        13: "restart the pod that used the GPU; if it comes again, look for the fault in its program",
        48: "end its pods and reset the GPU (nvidia-smi --gpu-reset -i 0000:83:00.0), or reboot; if it comes again,"
        " ask NVIDIA with nvidia-bug-report.sh",
        54: "shut the node down and check the power cables and the seat of the card in slot 4 (0000:83:00.0)",
        79: "drain and reboot the node; if it comes again, have the card in slot 4 (0000:83:00.0) checked or replaced",
    }


def test_no_reset_is_named_for_what_the_catalogue_does_not_reset():
    """An Xid of an application, or one of a card that needs a repair."""
    resets = {code for code, xid in CATALOGUE.items() if "--gpu-reset" in xid.do}
    assert not resets & {code for code, xid in CATALOGUE.items() if xid.advice in {"broken", "count"}}
    assert 79 not in resets


def test_the_recovery_that_the_driver_asks_for_is_what_to_do():
    """By the number that NVML and the kernel log have; a number of tomorrow is the driver's to explain."""
    for source in ("kernel-log", "nvml"):
        meaning = MEANINGS[source, "recovery-action"]
        told = {
            value: to_do(finding(source, "recovery-action", value), meaning, "GPU-1", FACTS)
            for value in ("1", "2", "9")
        }
        assert told == {
            "1": "end its pods and reset the GPU (nvidia-smi --gpu-reset -i 0000:83:00.0), or reboot",
            "2": "drain and reboot the node, as the driver asks",
            "9": "do what the driver asks for: GPU Recovery Action of nvidia-smi -q -i 0000:83:00.0",
        }


def test_a_command_for_one_address_is_not_made_of_several():
    """A device of several functions: the words that need one address are left out."""
    told = to_do(finding("nvml", "needs-reset"), MEANINGS["nvml", "needs-reset"], "x", {"pci_address": "a,b"})
    assert told == "end its pods and reset the GPU, or reboot"


def test_an_external_programs_own_words_are_what_is_known():
    """Its name and its detail, whatever they contain."""
    detail = "fan [2] of {slot} is at 0|rpm"
    told = to_do(finding("external-fans", "external", detail=detail), MEANINGS["external-fans", "external"], "x", FACTS)
    assert told == f"read what fans reports: {detail}"


@given(
    facts=st.dictionaries(
        st.sampled_from(("pci_address", "slot", "pci_driver", "driver", "resource")), st.text("a1", max_size=9)
    ),
    file=st.sampled_from(("", "/dev/nvidia0", "/sys/x")),
    words=st.text("a1 {}[]|", max_size=9),
    one=st.sampled_from(list(declared())),
)
def test_whatever_is_known_the_sentence_is_whole(facts, file, words, one):
    """Facts are put in as they are; where one is missing, no bracket and no gap tells of it."""
    source, reason, _, meaning, text = one
    value = "" if not words.strip() else "7"
    told = to_do(finding(source, reason, value, file, value), Meaning(meaning.action, "", do=text), "GPU-1", facts)
    assert is_whole(told), told
    spelled = to_do(finding(source, reason, words, file, words), Meaning(meaning.action, "", do=text), "GPU-1", facts)
    assert "\n" not in spelled
    assert "{slot}" not in spelled.replace(" ".join(words.split()), "")
