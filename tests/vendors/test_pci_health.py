"""What health sees of every PCI device, whichever vendor's it is: on the simulated node with devices of all of them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from answering import poller_of, scanner_of

from devherd._native import Device, Finding, Poller
from devherd.reasons.registry import MEANINGS
from devherd.scanner.core import settled_looks
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode

VENDORS = {"amd", "intel-fpga", "intel-gpu", "nvidia", "rdma", "xilinx-fpga"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The host, with the error counters and the configuration space that the kernel shows of every function."""
    root = SimulatedNode.create(tmp_path / "node", preset("everything")).root
    for function in (root / "sys/bus/pci/devices").iterdir():
        (function / "aer_dev_fatal").write_text("Undefined 0\nTOTAL_ERR_FATAL 0\n")
        (function / "aer_dev_nonfatal").write_text("Undefined 0\nTOTAL_ERR_NONFATAL 0\n")
        (function / "config").write_bytes(bytes.fromhex("de10b423") + bytes(60))
    return root


def functions(root: Path, devices: list[Device]) -> list[Path]:
    """The directories of the functions behind the devices; of a virtual one the physical one answers on the bus."""
    addresses = {address for device in devices for address in device.attributes["pci_address"].split(",")}
    own = [root / "sys/bus/pci/devices" / address for address in sorted(addresses)]
    physical = [(function / "physfn").resolve() for function in own if (function / "physfn").exists()]
    return [*own, *physical]


def watched(root: Path) -> tuple[Poller, list[Device]]:
    """A poller that has looked once, and the PCI devices that it polls."""
    scanner, scan = scanner_of(root)
    devices = [device for device in scan.devices if "pci_address" in device.attributes]
    assert {device.vendor for device in devices} == VENDORS
    poller = poller_of(scanner, scan)
    assert found(poller) == {}
    return poller, devices


def found(poller: Poller) -> dict[tuple[str, str], set[tuple[str, str]]]:
    """By vendor and id: source and reason of each finding."""

    def words(findings: list[Finding]) -> set[tuple[str, str]]:
        return {(finding.source, finding.reason) for finding in findings}

    return {(look.vendor, look.id): words(look.findings) for look in settled_looks(poller) if look.findings}


def count_fatal(function: Path) -> None:
    (function / "aer_dev_fatal").write_text("Undefined 1\nTOTAL_ERR_FATAL 1\n")


def count_nonfatal(function: Path) -> None:
    (function / "aer_dev_nonfatal").write_text("Undefined 1\nTOTAL_ERR_NONFATAL 1\n")


def leave_the_bus(function: Path) -> None:
    (function / "config").write_bytes(b"\xff" * 64)


def not_come_back_from_d3cold(function: Path) -> None:
    """As drivers/pci/pci.c of the kernel leaves a function that did not answer when it was to be powered up."""
    leave_the_bus(function)
    (function / "power_state").write_text("D3cold\n")
    (function / "power").mkdir(exist_ok=True)
    (function / "power/runtime_status").write_text("active\n")


def lose_the_driver(function: Path) -> None:
    (function / "driver").unlink(missing_ok=True)
    uevent = function / "uevent"
    lines = uevent.read_text().splitlines(keepends=True)
    uevent.write_text("".join(line for line in lines if not line.startswith("DRIVER=")))


def narrow_the_link(function: Path) -> None:
    for end in (function, function.resolve().parent):
        (end / "max_link_width").write_text("16\n")
        (end / "max_link_speed").write_text("16.0 GT/s PCIe\n")
    (function / "current_link_width").write_text("4\n")
    (function / "current_link_speed").write_text("16.0 GT/s PCIe\n")


def test_a_narrow_link_is_a_warning_on_the_devices_of_every_vendor(root: Path) -> None:
    """A card works in a slot of fewer lanes than its bridge has (intel B4). The link is the physical function's."""
    poller, devices = watched(root)
    pci = root / "sys/bus/pci/devices"
    physical = [
        device
        for device in devices
        if not any((pci / each / "physfn").exists() for each in device.attributes["pci_address"].split(","))
    ]

    for function in functions(root, physical):
        narrow_the_link(function)

    seen = {key: words for key, words in found(poller).items() if key in {(each.vendor, each.id) for each in physical}}
    assert seen == {(device.vendor, device.id): {("pci-link", "link-degraded")} for device in physical}
    assert {vendor for vendor, _ in seen} == VENDORS
    assert MEANINGS["pci-link", "link-degraded"].action == "warn"


def test_an_error_that_only_the_port_above_has_counted_is_seen_on_the_devices_below_it(root: Path) -> None:
    """The port is the other end of the link, and many a function does not see its own errors."""
    poller, devices = watched(root)
    [function, *_] = functions(root, devices)
    port = function.resolve().parent
    below = {device.id for device in devices if f"/{port.name}/" in str(functions(root, [device])[0].resolve())}

    (port / "aer_dev_fatal").write_text("TOTAL_ERR_FATAL 0\n")
    assert found(poller) == {}
    count_fatal(port)

    seen = found(poller)
    assert {device_id for _, device_id in seen} == below
    assert set.union(*seen.values()) == {("pci-aer-fatal", "pci-aer")}


def test_all_ones_for_a_moment_are_the_reset_of_a_function_and_no_loss(root: Path) -> None:
    """While a function is reset, configuration space reads as if nothing were there."""
    poller, devices = watched(root)
    [function, *_] = functions(root, devices)

    leave_the_bus(function)
    [look] = [look for look in poller.poll() if look.is_unsure]
    assert (look.findings, look.not_looked) == (
        [],
        {"pci-config": "reads as all ones: it may be in the middle of a reset"},
    )

    (function / "config").write_bytes(bytes.fromhex("de10b423") + bytes(60))
    assert poller.poll() == []


@pytest.mark.parametrize(
    ("happens", "source", "reason"),
    [
        (count_fatal, "pci-aer-fatal", "pci-aer"),
        (count_nonfatal, "pci-aer-nonfatal", "pci-aer"),
        (leave_the_bus, "pci-config", "off-bus"),
        (not_come_back_from_d3cold, "pci-config", "off-bus"),
        (lose_the_driver, "pci-driver", "driver-unbound"),
    ],
)
def test_what_happens_to_a_pci_function_is_seen_on_the_devices_of_every_vendor(
    root: Path, happens: Callable[[Path], None], source: str, reason: str
) -> None:
    """It was so for some vendors, and the changelog said for all."""
    poller, devices = watched(root)

    for function in functions(root, devices):
        happens(function)

    seen = found(poller)
    assert {(device.vendor, device.id) for device in devices} == seen.keys()
    assert all((source, reason) in words for words in seen.values())


def test_a_sleeping_device_of_any_vendor_is_not_woken_and_keeps_its_health(root: Path) -> None:
    """Configuration space and link are left alone: a read of either would wake it, and all ones mean nothing then."""
    poller, devices = watched(root)
    for function in functions(root, devices):
        (function / "power").mkdir(exist_ok=True)
        (function / "power/runtime_status").write_text("suspended\n")
        leave_the_bus(function)

    looks = {(look.vendor, look.id): look for look in poller.poll()}

    assert {(device.vendor, device.id) for device in devices} == looks.keys()
    assert all(look.findings == [] and "asleep" in look.not_looked["pci-config"] for look in looks.values())


def test_a_function_that_goes_altogether_is_no_finding_of_a_source(root: Path) -> None:
    """That it is gone is what the next scan says; a file that is absent says nothing."""
    poller, devices = watched(root)
    for function in functions(root, devices):
        shutil.rmtree(function.resolve(), ignore_errors=True)

    assert all(words <= {("node", "node-missing"), ("path", "node-missing")} for words in found(poller).values())


def sleep(function: Path) -> None:
    """Suspended in D3cold: configuration space would read as all ones, and nobody reads it."""
    not_come_back_from_d3cold(function)
    (function / "power/runtime_status").write_text("suspended\n")


def test_a_function_that_sleeps_is_well_on_the_devices_of_every_vendor(root: Path) -> None:
    """What is asleep is not read, and nothing is held against it."""
    poller, devices = watched(root)

    for function in functions(root, devices):
        sleep(function)

    assert found(poller) == {}


def test_a_function_that_could_not_be_resumed_is_warned_of_and_read(root: Path) -> None:
    """Defect: with `runtime_status` error no source said a word, and nothing was read; the kernel wakes it no more.

    A dead one is off the bus. `rpm_resume` in drivers/base/power/runtime.c of the kernel refuses after an error.
    """
    poller, devices = watched(root)
    physical = functions(root, devices)

    for function in physical:
        (function / "power").mkdir(exist_ok=True)
        (function / "power/runtime_status").write_text("error\n")

    seen = found(poller)
    assert {vendor for vendor, _ in seen} == VENDORS
    assert set.union(*seen.values()) == {("pci-power", "power-state")}
    assert MEANINGS["pci-power", "power-state"].action == "warn"

    for function in physical:
        leave_the_bus(function)
        (function / "power_state").write_text("D3cold\n")

    seen = found(poller)
    assert {vendor for vendor, words in seen.items() if ("pci-config", "off-bus") in words} == set(seen)
