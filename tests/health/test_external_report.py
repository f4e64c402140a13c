"""Lines of an external program as findings: active ones, cleared ones, and lines that are refused."""

import json
import re

import pytest

from devherd.proto import health_pb2
from devherd.sources.report import LineError, Report

CARD = {"pci": "0000:3b:00"}


def report_of(*lines) -> Report:
    report = Report("/opt/check")
    for line in lines:
        report.take(json.dumps(line).encode())
    return report


def active(report: Report) -> list[tuple[str, str]]:
    """Address and word of each finding."""
    return sorted((found.at.pci_address, found.value) for found in report.findings.values())


def test_a_line_is_a_finding_about_the_device_that_it_names():
    """The reason is `external`; the program's word tells two of its findings apart."""
    report = report_of({"device": CARD, "reason": "hot", "detail": "91 °C"}, {"reason": "dusty"})

    assert sorted(report.findings.values(), key=lambda found: found.value) == [
        health_pb2.Finding(
            at=health_pb2.Target(), reason="external", detail="dusty", file="/opt/check#dusty", value="dusty"
        ),
        health_pb2.Finding(
            at=health_pb2.Target(pci_address="0000:3b:00"),
            reason="external",
            detail="91 °C",
            file="/opt/check#hot",
            value="hot",
        ),
    ]


def test_a_finding_is_active_until_it_is_cleared_or_missing_in_a_complete_report():
    """A program may report changes, or all active findings each time."""
    other = {"pci": "0000:5e:00"}
    hot, wet = {"device": CARD, "reason": "hot"}, {"device": other, "reason": "wet"}

    assert active(report_of(hot, wet, {**hot, "state": "cleared"})) == [("0000:5e:00", "wet")]
    assert active(report_of(hot, wet, {"complete": True}, wet, {"complete": True})) == [("0000:5e:00", "wet")]
    assert active(report_of(hot, wet, {"complete": True}, {"complete": True, "device": CARD})) == [
        ("0000:5e:00", "wet")
    ]
    assert active(report_of({**hot, "state": "mentioned"})) == []


def test_a_program_has_failed_until_its_next_line():
    """Its findings stay active: not knowing is not being well."""
    failing = report_of({"device": CARD, "reason": "hot"}, {"failed": "no driver"})
    again = report_of({"failed": "no driver"}, {"alive": True})

    assert (failing.failed, active(failing)) == ("no driver", [("0000:3b:00", "hot")])
    assert again.failed == ""


def test_a_program_announces_how_long_it_may_be_silent():
    """Within bounds: a day and more would hide that it hangs."""
    assert report_of({"v": 1, "hello": {"name": "x", "max_age": 15}}).max_age == 15
    assert [report_of({"hello": {"max_age": wrong}}).max_age for wrong in (0, 1e9, "1", True)] == [None] * 4


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"hot",
        b"[]",
        b"{}",
        b'{"reason": "hot", "state": "maybe"}',
        b'{"reason": "hot", "device": "GPU-0"}',
        b'{"reason": "hot", "device": {"slot": "3"}}',
        b'{"reason": "hot", "device": {"pci": 3}}',
        b'{"reason": "' + b"x" * 5000 + b'"}',
        b"[" * 4000,
    ],
)
def test_a_line_that_cannot_be_used_is_refused(line):
    """And changes nothing."""
    report = report_of({"device": CARD, "reason": "hot"})

    with pytest.raises(LineError):
        report.take(line)
    assert active(report) == [("0000:3b:00", "hot")]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ({"device": "GPU-0"}, "`device` is not an object with some of pci, uuid, device, card, vendor"),
        ({"device": {"slot": "3"}}, "`device` is not an object with some of pci, uuid, device, card, vendor"),
        ({"device": {"pci": 3}}, "values of `device` must be strings"),
    ],
)
def test_a_refusal_names_the_key_that_is_wrong(line, why):
    """Operators read it in the log."""
    with pytest.raises(LineError, match=f"^{re.escape(why)}$"):
        report_of({**line, "reason": "hot"})


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("00000000:83:00.0", "0000:83:00.0"),  # nvidia-smi
        ("83:00.0", "0000:83:00.0"),  # lspci
        ("0000:3B:00", "0000:3b:00"),
        ("10000:E1:00.0", "10000:e1:00.0"),  # Intel's VMD
        ("00010000:e1:00.0", "10000:e1:00.0"),
        ("card0", "card0"),
    ],
)
def test_a_pci_address_is_written_in_several_ways(given, meant):
    """Each names the device, and each clears what another has raised."""
    report = report_of({"device": {"pci": given, "vendor": "NVIDIA"}, "reason": "hot"})

    [finding] = report.findings.values()
    assert finding.at == health_pb2.Target(pci_address=meant, vendor="nvidia")
    report.take(
        json.dumps({"device": {"pci": meant, "vendor": "nvidia"}, "reason": "hot", "state": "cleared"}).encode()
    )
    assert active(report) == []
    [by_card] = report_of({"device": {"card": given}, "reason": "hot"}).findings.values()
    assert by_card.at == health_pb2.Target(card=meant)


def test_a_replacement_counts_whole_or_not_at_all():
    """A file may be torn."""
    report = report_of({"device": CARD, "reason": "hot"})

    report.replace(b'{"reason": "wet"}\n{"rea')
    torn = (report.failed, active(report))
    report.replace(b'{"reason": "wet"}\n\n')

    assert torn == ("line 2: it is not JSON", [("0000:3b:00", "hot")])
    assert (report.failed, active(report)) == ("", [("", "wet")])


def test_text_of_others_is_one_line_of_bounded_length():
    """It is shown in terminals, logs and labels."""
    [finding] = report_of({"reason": "a\x1b[31m\nb" + "c" * 500, "detail": "d" * 500}).findings.values()

    assert finding.value == ("a [31m b" + "c" * 500)[:64]
    assert finding.detail == "d" * 200


def test_a_flood_of_findings_is_bounded():
    """Memory is the node's."""
    report = report_of(*({"reason": f"r{number}"} for number in range(1000)))

    with pytest.raises(LineError, match="there are more than 1000 findings"):
        report.take(b'{"reason": "one-more"}')
    report.take(b'{"reason": "r1"}')
