"""What is known of the host's devices, and what must not be forgotten."""

from dataclasses import dataclass, field

from devherd._native import Device, Node, Problem, Unseen
from devherd.proto import spool_pb2
from devherd.scanner.inventory import Inventory

PORT = ("intel-fpga", "0000:81:00.0", "dfl-port.0")
CRYPTO, CODEC = "fpga.intel.com/crypto", "fpga.intel.com/codec"


@dataclass
class FakeScan:
    """A scan's answer, made by hand."""

    devices: list[Device] = field(default_factory=list)
    unseen: list[Unseen] = field(default_factory=list)
    vendors: list[str] = field(default_factory=lambda: ["intel-fpga"])
    problems: list[Problem] = field(default_factory=list)


@dataclass
class Hidden:
    """A part of the host that could not be looked at."""

    vendor: str
    card: str | None
    reason: str | None


def port(resource_name: str | None = CRYPTO, **facts) -> Device:
    return Device(vendor="intel-fpga", id="dfl-port.0", card="0000:81:00.0", resource_name=resource_name, **facts)


def observed(*scans: FakeScan, inventory: Inventory | None = None, forget_after: float = 300.0) -> Inventory:
    inventory = inventory or Inventory()
    for moment, scan in enumerate(scans):
        inventory.observe(scan, float(moment), forget_after)
    return inventory


def test_a_port_that_cannot_be_told_keeps_the_resource_it_had():
    """A port being reprogrammed or crashed stays what it was, Unhealthy."""
    inventory = observed(FakeScan([port()]), FakeScan([port(None, reasons=["unprogrammed"])]))

    entry = inventory.entries[PORT]
    assert (entry.resource_name, entry.reasons) == (CRYPTO, {"unprogrammed"})


def test_a_reprogrammed_port_moves_to_its_new_resource():
    """A valid new identity wins over the remembered one."""
    inventory = observed(FakeScan([port()]), FakeScan([port(None)]), FakeScan([port(CODEC)]))

    assert inventory.entries[PORT].resource_name == CODEC


def test_a_port_never_told_goes_by_its_first_sight_name_or_is_left_out():
    """A crashed port seen for the first time is listed under the all-f name; one without any name is not."""
    named = observed(FakeScan([port(None, first_sight_resource_name="fpga.intel.com/af-fff", reasons=["port-error"])]))
    nameless = observed(FakeScan([port(None)]))

    assert named.entries[PORT].resource_name == "fpga.intel.com/af-fff"
    assert nameless.entries == {}


def test_a_device_that_vanished_is_gone_for_a_while_and_then_forgotten():
    """The kubelet reports the failure of an allocated device only while it stays in the list."""
    inventory = observed(FakeScan([port()]), FakeScan(), FakeScan(), forget_after=2.0)
    kept = inventory.entries[PORT].reasons
    inventory.observe(FakeScan(), 3.0, 2.0)

    assert kept == {"gone"}
    assert inventory.entries == {}


def test_a_device_that_comes_back_is_what_it_was():
    """Gone is not for ever."""
    inventory = observed(FakeScan([port()]), FakeScan(), FakeScan([port()]))

    assert (inventory.entries[PORT].reasons, inventory.entries[PORT].gone_since) == (frozenset(), None)


def test_the_devices_of_a_card_that_hangs_stay_listed_with_its_reason():
    """A read that does not come back is no reason to think the device is gone."""
    inventory = observed(FakeScan([port()]), FakeScan(unseen=[Hidden("intel-fpga", "0000:81:00.0", "probe-timeout")]))

    assert inventory.entries[PORT].reasons == {"probe-timeout"}


def test_an_unreadable_class_directory_changes_nothing():
    """All devices of the vendor stay as they were last seen."""
    inventory = observed(FakeScan([port()]), FakeScan(unseen=[Hidden("intel-fpga", None, None)]))

    assert inventory.entries[PORT].reasons == frozenset()


def test_devices_that_the_configuration_dropped_are_forgotten_at_once():
    """A removed section or a disabled vendor is no failure of a device."""
    reconfigured = observed(FakeScan([port()]))
    reconfigured.observe(FakeScan(), 1.0, 300.0, {"intel-fpga"})
    disabled = observed(FakeScan([port()]), FakeScan(vendors=[]))

    assert reconfigured.entries == disabled.entries == {}


def test_the_spool_is_enough_to_restore_what_was_known():
    """A scanner killed while a port is being reprogrammed still knows the port's resource."""
    device = port(
        nodes=[Node("/dev/dfl-port.0", "/dev/dfl-port.0", "rw")], numa_nodes=[1], attributes={"fme": "dfl-fme.0"}
    )
    before = observed(FakeScan([device]))
    known = spool_pb2.Device()
    known.CopyFrom(before.entries[PORT].device)
    known.id = "dfl-port.0::1"
    spooled = spool_pb2.Resource(name="renamed.example/shared", devices=[known])

    after = observed(FakeScan([port(None, reasons=["unprogrammed"])]), inventory=Inventory.restored([spooled]))

    assert after.entries[PORT].resource_name == CRYPTO
    assert Inventory.restored([spooled]).entries == before.entries
