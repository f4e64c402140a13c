"""What sources say that are processes of their own, and of which devices."""

import logging

from descriptors import descriptors

from devherd import spool
from devherd._native import Device, Evidence, Fact
from devherd.config.sections import Match
from devherd.health.findings import MOST_A_DEVICE, FindingsFiles, Named, take_in, targets
from devherd.health.held import Now, Seen, Statement
from devherd.inventory import Entry
from devherd.proto import health_pb2

NOW = Now(1_000_000.0, 10.0, "boot-1")


def gpu(number: int, functions: str | None = None, uuid: str = "") -> Entry:
    address = f"0000:{number:02x}:00.0"
    facts = {"pci_address": Fact("text", functions or address, ""), "uuid": Fact("text", uuid or f"GPU-{number}", "")}
    return Entry(Device(vendor="nvidia", id=f"GPU-{number}", card=address, facts=facts), "nvidia.com/gpu")


FIRST, SECOND = gpu(1), gpu(2)
PAIR = gpu(3, functions="0000:03:00.0,0000:04:00.0")


def lost(number: int = 1, **parts) -> health_pb2.Finding:
    at = health_pb2.Target(vendor="nvidia", pci_address=f"0000:{number:02x}:00.0", **parts)
    return health_pb2.Finding(at=at, reason="gpu-lost", detail="NVML has lost it", file="libnvidia-ml.so.1", value="15")


def put(directory, *findings, source="nvml", **parts):
    message = health_pb2.Findings(**({"source": source, "boot_id": "boot-1", "findings": findings} | parts))
    directory.mkdir(exist_ok=True)
    spool.write(spool.path_of(directory, source), message)


def looked(files: FindingsFiles, sources=("nvml",), scopes=None) -> Seen:
    seen = Seen()
    take_in(seen, files.read(sources, NOW.boot_id), [FIRST, SECOND], scopes or {})
    return seen


def reasons(seen: Seen) -> dict[str, list[str]]:
    return {key[2]: [finding.reason for finding in found] for key, found in seen.findings.items()}


def test_a_finding_is_laid_at_the_door_of_its_device(tmp_path):
    """And at no other's."""
    files = FindingsFiles(tmp_path)
    put(tmp_path, lost(2))

    assert reasons(looked(files)) == {"GPU-2": ["gpu-lost"]}


def test_a_file_that_changes_is_read_again(tmp_path):
    """The file is the whole state."""
    files = FindingsFiles(tmp_path)
    before = reasons(looked(files))
    put(tmp_path, lost(1), lost(2))
    both = reasons(looked(files))
    put(tmp_path)
    none = reasons(looked(files))

    assert (before, both, none) == ({}, {"GPU-1": ["gpu-lost"], "GPU-2": ["gpu-lost"]}, {})


def test_a_source_whose_file_is_removed_has_failed_until_it_is_written_again(tmp_path, caplog):
    """Nobody has looked at the devices: what stands is not taken back, as when the file is torn."""
    files = FindingsFiles(tmp_path)
    put(tmp_path, lost(1), timestamp_seconds=7.0)
    looked(files)
    spool.remove(tmp_path, "nvml")

    with caplog.at_level(logging.WARNING):
        seen = [looked(files), looked(files)][1]
    put(tmp_path)

    assert (reasons(seen), seen.reported, len(caplog.records)) == ({}, {"nvml": 7.0}, 1)
    assert seen.failed == {"nvml": "its findings were removed: restart source:nvml if they are not written again"}
    assert looked(files).failed == {}


def test_a_source_that_has_said_nothing_yet_or_is_asked_no_longer_has_not_failed(tmp_path):
    """It is being started, or its line of the configuration is gone."""
    files = FindingsFiles(tmp_path)
    assert looked(files).failed == {}
    put(tmp_path, lost(1))
    looked(files)
    spool.remove(tmp_path, "nvml")

    assert (looked(files, sources=()).failed, looked(files).failed) == ({}, {})


def test_what_an_operator_said_goes_with_its_file(tmp_path):
    """No process would write it again: the file is the word."""
    files = FindingsFiles(tmp_path)
    cordoned = lost(1)
    cordoned.reason = "cordoned"
    put(tmp_path, cordoned, source="cordon")
    assert reasons(looked(files, sources=["cordon"])) == {"GPU-1": ["cordoned"]}
    spool.remove(tmp_path, "cordon")

    seen = looked(files, sources=["cordon"])

    assert (seen.findings, seen.failed) == ({}, {})


def test_a_file_of_another_boot_or_of_a_source_that_is_not_asked_says_nothing(tmp_path):
    """What was lost before a reboot has been reset by it."""
    files = FindingsFiles(tmp_path)
    put(tmp_path, lost(1), boot_id="boot-0")
    stale = reasons(looked(files))
    put(tmp_path, lost(1))

    assert (stale, reasons(looked(files, sources=()))) == ({}, {})


def test_a_source_that_cannot_look_adds_nothing_and_says_why(tmp_path):
    """Its findings of before are neither repeated nor taken back: the policy leaves them as they are."""
    files = FindingsFiles(tmp_path)
    put(tmp_path, lost(1), failed="NVML hangs")

    seen = looked(files)

    assert (seen.findings, seen.failed) == ({}, {"nvml": "NVML hangs"})


def test_a_source_whose_file_cannot_be_read_has_failed_and_the_log_says_so_once(tmp_path, caplog):
    """Torn or foreign: it takes nothing back, whoever reads it, also one that never read a good one."""
    put(tmp_path, lost(1))
    spool.path_of(tmp_path, "nvml").write_bytes(b"\xff\xff")
    files = FindingsFiles(tmp_path)

    with caplog.at_level(logging.WARNING):
        seen = [looked(files), looked(files)][1]
    put(tmp_path, lost(1))

    assert (reasons(seen), list(seen.failed), len(caplog.records)) == ({}, ["nvml"], 1)
    assert seen.failed["nvml"].endswith(": restart source:nvml if they are not written again")
    assert reasons(looked(files)) == {"GPU-1": ["gpu-lost"]}


def test_a_reason_that_is_not_registered_for_its_source_is_refused_by_name(tmp_path, caplog):
    """A reason that users meet must be in the registry, with its way back."""
    files = FindingsFiles(tmp_path)
    doom = lost(1)
    doom.reason = "doom"
    put(tmp_path, doom, lost(2))

    with caplog.at_level(logging.ERROR):
        assert reasons(looked(files)) == {"GPU-2": ["gpu-lost"]}
    assert "doom" in caplog.text


def test_a_target_is_every_device_for_which_all_its_parts_hold():
    """By vendor, card, id, UUID, PCI function or PCI device; nothing given is nobody meant."""
    entries = [FIRST, SECOND, PAIR]

    def meant(**parts) -> list[str]:
        found = targets(health_pb2.Target(**parts), entries)
        assert found == Named(entries).targets(health_pb2.Target(**parts))
        return [key[2] for key in found]

    assert meant() == []
    assert meant(vendor="nvidia") == ["GPU-1", "GPU-2", "GPU-3"]
    assert meant(vendor="amd") == []
    assert meant(card="0000:02:00.0") == ["GPU-2"]
    assert meant(device="GPU-1") == ["GPU-1"]
    assert meant(uuid="GPU-2") == ["GPU-2"]
    assert meant(uuid="GPU-2", pci_address="0000:01:00.0") == []
    assert meant(pci_address="0000:04:00.0") == ["GPU-3"]
    assert meant(pci_address="0000:01:00") == ["GPU-1"]
    assert meant(pci_address="0000:01:00.1") == []
    assert meant(vendor="nvidia", partition="0") == []


def test_a_source_of_the_configuration_speaks_of_its_own_devices_only_and_of_all_of_them_where_it_names_none(tmp_path):
    """A monitor of one card must not be able to empty the node."""
    files = FindingsFiles(tmp_path)
    everyone = health_pb2.Finding(at=health_pb2.Target(vendor="nvidia"), reason="external", file="a")
    nobody = health_pb2.Finding(at=health_pb2.Target(), reason="external", file="b")
    scopes = {"external-check": Match(facts={"id": ["GPU-2"]})}
    put(tmp_path, everyone, nobody, source="external-check")

    told = reasons(looked(files, ["external-check"], scopes))
    unscoped = reasons(looked(files, ["external-check"]))

    assert told == {"GPU-2": ["external", "external"]}
    assert unscoped == {"GPU-1": ["external"], "GPU-2": ["external"]}


def test_a_source_that_lets_go_is_not_waited_for(tmp_path):
    """It says why it cannot check devices, and what it said before is taken back."""
    files = FindingsFiles(tmp_path)
    put(tmp_path, failed="no report for 90 s")
    kept = looked(files)
    put(tmp_path, failed="no report for 90 s", lets_go=True)
    dropped = looked(files)

    assert kept.failed == dropped.failed == {"nvml": "no report for 90 s"}
    assert kept.why_not_looked(FIRST.key, "nvml") == "no report for 90 s"
    assert dropped.why_not_looked(FIRST.key, "nvml") == ""


def test_what_an_operator_takes_back_is_that_reason_of_that_device(tmp_path):
    """Whichever source gave it."""
    files, said = FindingsFiles(tmp_path), health_pb2.Findings(source="operator", boot_id="boot-1")
    said.evidence.add(at=health_pb2.Target(device="GPU-2"), evidence="operator", reason="xid", monotonic_seconds=5.0)
    spool.write(spool.path_of(tmp_path, "operator"), said)

    seen = looked(files, sources=("operator",))

    assert seen.stated == [(SECOND.key, Statement(Evidence.OPERATOR, reason="xid"), 5.0)]


def test_the_names_that_people_have_at_hand_name_a_device():
    """Another case, the id of a share or replica, the beginning of a uuid: of one device only."""
    uuids = ("GPU-152e1962-7e62-50b6", "GPU-152f0000-0000-0000", "GPU-9d83aab7")
    gpus = [gpu(number, uuid=uuid) for number, uuid in enumerate(uuids)]
    shared = Entry(Device(vendor="intel-gpu", id="card0", shares=["card0-0", "card0-1"]), "gpu.intel.com/xe")
    named = Named([*gpus, shared])

    def meant(**parts) -> list[str]:
        return [key[2] for key in named.meant(health_pb2.Target(**parts))]

    assert meant(device="gpu-1") == ["GPU-1"]
    assert meant(device="GPU-1::3") == ["GPU-1"]
    assert meant(device="card0-1") == meant(device="card0-0::7") == meant(device="card0") == ["card0"]
    assert meant(uuid="gpu-152E1962") == meant(uuid="GPU-152e") == meant(uuid=uuids[0].upper()) == ["GPU-0"]
    assert meant(uuid="GPU-152") == meant(uuid="GPU-0") == meant(device="GPU") == []
    assert meant(uuid="gpu-9", device="gpu-2::0") == ["GPU-2"]
    assert meant(uuid="gpu-9", device="gpu-1") == []


def test_findings_that_name_no_device_are_counted_and_the_first_is_shown(tmp_path):
    """A mistake in a target left no trace. What is about all devices of `match` names none, and is no mistake."""
    files = FindingsFiles(tmp_path)
    scopes = {"external-check": Match(facts={"id": ["GPU-2"]})}

    def complaints(*ats: health_pb2.Target) -> list[str]:
        said = [health_pb2.Finding(at=at, reason="external", value="hot") for at in ats]
        put(tmp_path, *said, source="external-check")
        return looked(files, ["external-check"], scopes).report_errors.get("external-check", [])

    of_another = health_pb2.Target(device="GPU-1", pci_address="0000:01:00.0")
    assert complaints(health_pb2.Target(), health_pb2.Target(device="GPU-2")) == []
    assert complaints(of_another) == [
        "1 finding names no device of `match`, first: device GPU-1, pci 0000:01:00.0: hot"
    ]
    assert complaints(health_pb2.Target(card="card0"), of_another) == [
        "2 findings name no device of `match`, first: card card0: hot"
    ]


def test_of_one_device_twenty_findings_of_a_program_count(tmp_path):
    """A thousand for each of many devices took the scanner's whole time, which other devices wait for."""
    files = FindingsFiles(tmp_path)
    said = [
        health_pb2.Finding(at=at, reason="external", file=f"check#{number}", value=str(number))
        for number in range(300)
        for at in (health_pb2.Target(), health_pb2.Target(device="GPU-2"))
    ]
    put(tmp_path, *said, source="external-check")

    seen = looked(files, ["external-check"], {"external-check": Match()})

    assert {key[2]: len(found) for key, found in seen.findings.items()} == {"GPU-1": MOST_A_DEVICE, "GPU-2": 20}
    assert seen.report_errors == {"external-check": ["2 devices with more than 20 findings: only these count"]}


def test_a_file_that_no_descriptor_was_left_for_is_read_once_there_is_one(tmp_path, caplog):
    """Defect: its source had failed until it wrote the next time, which an operator's cordon does not."""
    files = FindingsFiles(tmp_path)
    put(tmp_path, lost(2))
    with descriptors(0):
        assert [list(looked(files).failed) for _ in range(3)] == [["nvml"]] * 3
    assert caplog.text.count("Too many open files") == 1
    assert reasons(looked(files)) == {"GPU-2": ["gpu-lost"]}
