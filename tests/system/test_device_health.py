"""devherd whole: the kubelet hears at once when a device fails, and when it is well again."""

import offered
import pytest

from devherd_sim.node import faults
from devherd_sim.node.presets import preset
from devherd_sim.testbed import Testbed

CRYPTO = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
CODEC = "fpga.intel.com/af-695.f7d.aVKNtusxV3qMNmj5-qCB9vffQFy9es9yIvFEsLk6zRg"
CRYPTO_AFU = "d8424dc4a4a3c413f89e433683f9040b"
PORT = "intel-fpga-port.0"

# A fault is held for longer than lists are held back (0.25 s), or a short one would rightly never be sent.
QUICK = {"health": {"poll": "100ms", "recover_after": 6}, "scan": {"period": "300ms"}}
FORGETFUL = {**QUICK, "health": {"poll": "100ms", "recover_after": 2, "forget_after": "1s"}}


async def healthy(testbed, name: str = CRYPTO) -> None:
    await testbed.kubelet.until_allocatable(name, 1, within=30)


async def unhealthy(testbed, name: str = CRYPTO) -> None:
    await testbed.kubelet.until_allocatable(name, 0, within=30)


@pytest.mark.on("fpga-opae-2", QUICK)
async def test_port_errors_make_a_device_unhealthy_until_they_are_cleared(testbed):
    """Unhealthy at once, Healthy after good polls, no restart; the other card is not touched."""
    await healthy(testbed)
    faults.inject(testbed.node, "fpga-errors", PORT)
    await unhealthy(testbed)
    assert testbed.kubelet.devices(CRYPTO) == {PORT: "Unhealthy"}
    assert testbed.kubelet.allocatable(CODEC) == 1

    faults.clear(testbed.node, "fpga-errors", PORT)

    await healthy(testbed)


@pytest.mark.on("fpga-opae-2", QUICK)
async def test_a_removed_node_and_pci_errors_are_seen(testbed):
    """Every source of health works through to the kubelet."""
    await healthy(testbed)
    faults.inject(testbed.node, "node", PORT)
    await unhealthy(testbed)
    faults.clear(testbed.node, "node", PORT)
    await healthy(testbed)
    # Held for ten minutes: tests/health has the way back.
    faults.inject(testbed.node, "aer", testbed.node.pci_function_of(PORT).name, "fatal 1")
    await unhealthy(testbed)


def warnings_of(testbed, name: str = CRYPTO) -> list[str]:
    """Those of the resource's only device."""
    [device] = offered.offers_in(testbed.settings.run_dir)[name].devices
    return list(device.warnings)


async def test_a_card_that_works_stays_allocatable_with_a_narrow_link_and_old_error_bits(directory):
    """A warning each: a move to devherd costs no card that works (intel B4)."""
    testbed = Testbed(directory, preset("fpga-opae-2"), QUICK)
    faults.inject(testbed.node, "fpga-errors", PORT)
    async with testbed:
        await healthy(testbed)
        faults.inject(testbed.node, "link", testbed.node.pci_function_of(PORT).name)
        await testbed.until(lambda: warnings_of(testbed) == ["link-degraded", "port-error"], "both are warned of")
        assert testbed.kubelet.devices(CRYPTO) == {PORT: "Healthy"}


@pytest.mark.on("fpga-opae-2", QUICK)
async def test_a_crashed_port_keeps_its_resource_and_a_reprogrammed_one_moves(testbed):
    """The peer renames the resource instead: its pods wait for a name that no longer exists."""
    await healthy(testbed)
    faults.inject(testbed.node, "afu", PORT, "f" * 32)
    await unhealthy(testbed)
    assert testbed.kubelet.devices(CRYPTO) == {PORT: "Unhealthy"}

    faults.inject(testbed.node, "afu", "intel-fpga-port.1", CRYPTO_AFU)
    await testbed.kubelet.events.until(lambda: len(testbed.kubelet.devices(CRYPTO)) == 2, within=30, what="two ports")
    faults.inject(testbed.node, "afu", PORT, CRYPTO_AFU)

    await testbed.kubelet.until_allocatable(CRYPTO, 2, within=30)
    assert testbed.kubelet.devices(CODEC) == {}


@pytest.mark.on("fpga-opae-1", FORGETFUL)
async def test_a_resource_whose_last_device_vanished_for_good_is_taken_down(testbed):
    """Gone for a while is Unhealthy; gone for good ends with an empty list and the end of the child."""
    await healthy(testbed)
    testbed.node.remove_card(PORT)
    await unhealthy(testbed)
    assert testbed.kubelet.devices(CRYPTO) == {PORT: "Unhealthy"}

    await testbed.kubelet.events.until(lambda: testbed.kubelet.devices(CRYPTO) == {}, within=30, what="an empty list")
    await testbed.until(lambda: set(testbed.children()) == {"scanner", "exporter"}, "the child is gone")


@pytest.mark.on("generic", {**QUICK, "scan": {"period": "60s"}})
async def test_a_card_plugged_in_later_is_served_without_waiting_for_a_rescan(testbed):
    """A driver that loads late is seen by its uevents; the rescan here is a minute away."""
    await testbed.until(testbed.settings.scan_file.exists, "the first scan")

    testbed.node.add_card()

    await healthy(testbed)
