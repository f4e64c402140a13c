"""The health poller on a card whose attributes change under it."""

from pathlib import Path

import pytest
from answering import core_settings, poller_of

from devherd._native import Finding, Poller, Scanner, health_sources
from devherd_sim.node.tree import write_tree

CARD = "sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0"
PORT = f"{CARD}/fpga_region/region0/dfl-port.0"
FME = f"{CARD}/fpga_region/region0/dfl-fme.0"
TREE = (Path(__file__).parent / "trees/dfl-two-cards.tree").read_text()


@pytest.fixture
def polled(tmp_path):
    """`polled(*lines)` changes the tree and polls: device id → findings of those that something is the matter with."""
    # The bridge can do no less than the card, so that the card's link can be judged.
    write_tree(TREE, tmp_path)
    scanner = Scanner(str(tmp_path), core_settings(tmp_path))
    poller, scan = Poller(scanner), scanner.scan()
    assert poller.poll() == [], "it has no devices to look at yet"
    assert len(scan.devices) == 2
    poller.watch(scan, [])

    def poll(*lines):
        for line in lines:
            write_tree(line, tmp_path)
        return {look.id: look.findings for look in poller.poll() if look.findings}

    return poll


FAULTS = {
    "port-error": (f"{PORT}/errors/errors = 0x20", f"{PORT}/errors/errors = 0x0"),
    "fme-error": (f"{FME}/errors/catfatal_errors = 0x800", f"{FME}/errors/catfatal_errors = 0x0"),
    "temperature": (f"{FME}/hwmon/hwmon0/temp1_input = 100000", f"{FME}/hwmon/hwmon0/temp1_input = 45000"),
    "link-degraded": (f"{CARD}/current_link_width = 4", f"{CARD}/current_link_width = 8"),
}


def reasons(findings):
    """The words alone, by device."""
    return {device: [finding.reason for finding in found] for device, found in findings.items()}


@pytest.mark.parametrize("reason", FAULTS)
def test_a_fault_is_seen_while_it_lasts_and_of_its_card_alone(polled, reason):
    """Each with its own reason, file and value, back in order without any restart."""
    broken, mended = FAULTS[reason]
    assert polled() == {}
    seen = polled(broken)
    assert reasons(seen) == {"dfl-port.0": [reason]}
    [finding] = seen["dfl-port.0"]
    assert [f"/{broken.split(' = ')[0]}", broken.split(" = ")[1], 0] == [finding.file, finding.value, finding.count]
    assert polled() == seen
    assert polled(mended) == {}


def test_a_slower_link_is_degraded_and_an_unknown_one_says_nothing(polled):
    """The kernel writes Unknown where it could not find out."""
    assert polled() == {}
    seen = polled(f"{CARD}/current_link_speed = 2.5 GT/s PCIe")
    assert reasons(seen) == {"dfl-port.0": ["link-degraded"]}
    assert seen["dfl-port.0"][0].detail == "current_link_speed is 2.5 GT/s PCIe, it was 8 GT/s"
    assert polled(f"{CARD}/current_link_speed = Unknown") == {}
    assert polled(f"{CARD}/current_link_width = 0") == {}


def test_pci_errors_are_counted_from_the_first_poll_on(polled):
    """What was counted before is history; what was counted since is not forgotten, though the function is reset."""

    def events(*lines):
        return [(finding.source, finding.reason, finding.count) for finding in polled(*lines).get("dfl-port.0", [])]

    assert events(f"{CARD}/aer_dev_fatal = TOTAL_ERR_FATAL 3") == []
    assert events(f"{CARD}/aer_dev_fatal = TOTAL_ERR_FATAL 4") == [("pci-aer-fatal", "pci-aer", 1)]
    assert events() == [("pci-aer-fatal", "pci-aer", 1)]
    assert events(f"{CARD}/aer_dev_fatal = TOTAL_ERR_FATAL 0") == [("pci-aer-fatal", "pci-aer", 1)]
    assert events(f"{CARD}/aer_dev_fatal = TOTAL_ERR_FATAL 2") == [("pci-aer-fatal", "pci-aer", 3)]


def test_several_faults_are_all_seen_and_sorted_by_source(polled):
    """Health is made of all of them."""
    seen = polled(FAULTS["temperature"][0], FAULTS["port-error"][0], FAULTS["fme-error"][0])
    assert reasons(seen) == {"dfl-port.0": ["fme-error", "port-error", "temperature"]}


def test_a_mask_that_is_no_number_is_a_fault(polled):
    """It cannot be taken for a healthy one."""
    assert reasons(polled(f"{PORT}/errors/errors = garbage")) == {"dfl-port.0": ["port-error"]}


def test_an_attribute_that_is_replaced_is_read_anew(polled, tmp_path):
    """A driver that was bound again has new files behind the old names."""
    assert polled() == {}
    errors = tmp_path / PORT / "errors/errors"
    errors.unlink()
    assert polled() == {}, "an attribute that is absent says nothing"
    errors.write_text("0x1\n")
    assert reasons(polled()) == {"dfl-port.0": ["port-error"]}


def test_a_pipe_in_place_of_an_attribute_hangs_nobody(polled, tmp_path):
    """It is opened without waiting for a writer."""
    errors = tmp_path / PORT / "errors/errors"
    errors.unlink()
    assert reasons(polled(f"{PORT}/errors/errors fifo", FAULTS["fme-error"][0])) == {"dfl-port.0": ["fme-error"]}


def test_a_card_that_sleeps_is_left_asleep_and_the_poll_says_so(tmp_path):
    """Configuration space, link and temperatures are not read; memory of the kernel's is."""
    write_tree(TREE, tmp_path)
    write_tree(f"{CARD}/power/runtime_status = suspended\n{CARD}/current_link_width = 4", tmp_path)
    scanner = Scanner(str(tmp_path), core_settings(tmp_path))
    [look] = poller_of(scanner, scanner.scan()).poll()
    asleep = "asleep: runtime_status is suspended"
    assert (look.vendor, look.card, look.id, look.findings) == ("intel-fpga", "0000:81:00.0", "dfl-port.0", [])
    assert look.not_looked == {"pci-config": asleep, "pci-link": asleep, "temperature": asleep}


def test_every_source_is_described_and_a_finding_is_a_value():
    """The registry names each source once; equal findings are one in a set."""
    sources = {source.name: source for source in health_sources()}
    assert len(sources) == len(health_sources())
    [fatal] = sources["pci-aer-fatal"].meanings
    assert (fatal.reason, fatal.action, fatal.clears, fatal.quiet_seconds) == ("pci-aer", "unhealthy", "quiet", 600)
    [link] = sources["pci-link"].meanings
    assert (link.reason, link.action, link.clears, link.evidence) == ("link-degraded", "warn", "level", [])
    assert all(source.reads and source.document and source.meanings for source in sources.values())
    made = [Finding(source="nvml", reason="xid", detail="fallen off the bus", value="79", count=2) for _ in range(2)]
    assert len(set(made)) == 1
    assert made[0] != Finding(source="nvml", reason="xid", detail="fallen off the bus", value="79", count=3)
    assert (made[0].detail, made[0].file, made[0].count) == ("fallen off the bus", "", 2)
