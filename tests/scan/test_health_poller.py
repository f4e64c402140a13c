"""The health poller on a card whose attributes change under it."""

import json
from pathlib import Path

import pytest

from devherd._native import Scanner
from devherd.sim.node.tree import write_tree

CARD = "sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0"
PORT = f"{CARD}/fpga_region/region0/dfl-port.0"
FME = f"{CARD}/fpga_region/region0/dfl-fme.0"
TREE = (Path(__file__).parent / "trees/dfl-two-cards.tree").read_text()


@pytest.fixture
def polled(tmp_path):
    """`polled(*lines)` changes the tree and polls: device id → reasons of those not in order."""
    # The bridge can do no less than the card, so that the card's link can be judged.
    write_tree(TREE, tmp_path)
    settings = {"vendors": {"intel_fpga": {"enabled": True, "mode": "af"}}}
    scanner = Scanner(str(tmp_path), json.dumps(settings))
    assert scanner.poll() == [], "a poll before the first scan has nothing to look at"
    assert len(scanner.scan().devices) == 2

    def poll(*lines):
        for line in lines:
            write_tree(line, tmp_path)
        return {device: reasons for _, _, device, reasons in scanner.poll()}

    return poll


FAULTS = {
    "port-error": (f"{PORT}/errors/errors = 0x20", f"{PORT}/errors/errors = 0x0"),
    "fme-error": (f"{FME}/errors/catfatal_errors = 0x800", f"{FME}/errors/catfatal_errors = 0x0"),
    "temperature": (f"{FME}/hwmon/hwmon0/temp1_input = 100000", f"{FME}/hwmon/hwmon0/temp1_input = 45000"),
    "link-degraded": (f"{CARD}/current_link_width = 4", f"{CARD}/current_link_width = 8"),
}


@pytest.mark.parametrize("reason", FAULTS)
def test_a_fault_is_told_while_it_lasts_and_of_its_card_alone(polled, reason):
    """Each with its own reason, back in order without any restart."""
    broken, mended = FAULTS[reason]
    assert polled() == {}
    assert polled(broken) == {"dfl-port.0": [reason]}
    assert polled() == {"dfl-port.0": [reason]}
    assert polled(mended) == {}


def test_a_slower_link_is_degraded_and_an_unknown_one_says_nothing(polled):
    """The kernel writes Unknown where it could not find out."""
    assert polled(f"{CARD}/current_link_speed = 2.5 GT/s PCIe") == {"dfl-port.0": ["link-degraded"]}
    assert polled(f"{CARD}/current_link_speed = Unknown") == {}
    assert polled(f"{CARD}/current_link_width = 0") == {}


def test_counted_pci_errors_are_a_fault_of_the_poll_that_sees_them_rise(polled):
    """What was counted before the first poll is history."""
    assert polled(f"{CARD}/aer_dev_fatal = TOTAL_ERR_FATAL 3") == {}
    assert polled(f"{CARD}/aer_dev_fatal = TOTAL_ERR_FATAL 4") == {"dfl-port.0": ["pci-aer"]}
    assert polled() == {}
    assert polled(f"{CARD}/aer_dev_fatal = TOTAL_ERR_FATAL 0") == {}
    assert polled(f"{CARD}/aer_dev_fatal = TOTAL_ERR_FATAL 1") == {"dfl-port.0": ["pci-aer"]}


def test_several_faults_are_all_told(polled):
    """Health is a set of reasons."""
    told = polled(FAULTS["port-error"][0], FAULTS["temperature"][0])
    assert {device: set(reasons) for device, reasons in told.items()} == {"dfl-port.0": {"port-error", "temperature"}}


def test_a_mask_that_is_no_number_is_a_fault(polled):
    """It cannot be taken for a healthy one."""
    assert polled(f"{PORT}/errors/errors = garbage") == {"dfl-port.0": ["port-error"]}


def test_an_attribute_that_is_replaced_is_read_anew(polled, tmp_path):
    """A driver that was bound again has new files behind the old names."""
    assert polled() == {}
    errors = tmp_path / PORT / "errors/errors"
    errors.unlink()
    assert polled() == {}, "an attribute that is absent says nothing"
    errors.write_text("0x1\n")
    assert polled() == {"dfl-port.0": ["port-error"]}


def test_a_pipe_in_place_of_an_attribute_hangs_nobody(polled, tmp_path):
    """It is opened without waiting for a writer."""
    errors = tmp_path / PORT / "errors/errors"
    errors.unlink()
    assert polled(f"{PORT}/errors/errors fifo", FAULTS["fme-error"][0]) == {"dfl-port.0": ["fme-error"]}
