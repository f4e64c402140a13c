"""What is known of the host's devices, and what must not be forgotten."""

from dataclasses import dataclass, field

import pytest
from remembered import message_of

from devherd import inventory as inventory_module
from devherd._native import Device, Fact, Finding, HostPath, NotExamined, PciFunction, Platform, Problem
from devherd.inventory import DevicesFile, Inventory, inventory_of

PORT = ("intel-fpga", "0000:81:00.0", "dfl-port.0")
CRYPTO, CODEC = "fpga.intel.com/crypto", "fpga.intel.com/codec"


@dataclass
class FakeScan:
    """A scan's answer, made by hand."""

    devices: list[Device] = field(default_factory=list)
    unseen: list[NotExamined] = field(default_factory=list)
    vendors: list[str] = field(default_factory=lambda: ["intel-fpga"])
    problems: list[Problem] = field(default_factory=list)
    platforms: dict[str, Platform] = field(default_factory=dict)


@dataclass
class Hidden:
    """A part of the host that could not be looked at."""

    vendor: str
    card: str | None
    finding: Finding | None = None
    class_name: str | None = None


UNPROGRAMMED = Finding(source="scan", reason="unprogrammed")
TIMEOUT = Finding(source="probe", reason="probe-timeout")


def port(resource_name: str | None = CRYPTO, **facts) -> Device:
    return Device(vendor="intel-fpga", id="dfl-port.0", card="0000:81:00.0", resource_name=resource_name, **facts)


def observed(*scans: FakeScan, inventory: Inventory | None = None, forget_after: float = 300.0) -> Inventory:
    inventory = inventory or Inventory()
    for moment, scan in enumerate(scans):
        inventory.observe(scan, float(moment), forget_after)
    return inventory


def restored(before: Inventory) -> Inventory:
    return inventory_of(message_of(before))


def test_a_port_that_cannot_be_told_keeps_the_resource_it_had():
    """A port being reprogrammed or crashed stays what it was, Unhealthy."""
    inventory = observed(FakeScan([port()]), FakeScan([port(None, findings=[UNPROGRAMMED])]))

    entry = inventory.entries[PORT]
    assert (entry.resource_name, entry.findings) == (CRYPTO, [UNPROGRAMMED])


def test_a_reprogrammed_port_moves_to_its_new_resource():
    """A valid new identity wins over the remembered one."""
    inventory = observed(FakeScan([port()]), FakeScan([port(None)]), FakeScan([port(CODEC)]))

    assert inventory.entries[PORT].resource_name == CODEC


def test_a_port_never_told_goes_by_its_first_sight_name_or_is_left_out():
    """A crashed port seen for the first time is listed under the all-f name; one without any name is not."""
    named = observed(FakeScan([port(None, first_sight_resource_name="fpga.intel.com/af-fff")]))
    nameless = observed(FakeScan([port(None)]))

    assert named.entries[PORT].resource_name == "fpga.intel.com/af-fff"
    assert nameless.entries == {}


def test_a_device_that_vanished_is_gone_for_a_while_and_then_forgotten():
    """The kubelet reports the failure of an allocated device only while it stays in the list."""
    inventory = observed(FakeScan([port()]), FakeScan(), FakeScan(), forget_after=2.0)
    kept = inventory.entries[PORT].gone_since
    inventory.observe(FakeScan(), 3.0, 2.0)

    assert kept == 1.0
    assert inventory.entries == {}


def test_a_device_that_vanished_is_gone_for_as_long_as_a_pod_holds_it():
    """Defect: after `forget_after` the kubelet had it in no list, and called it Healthy in the pod's status."""
    inventory = observed(FakeScan([port()]), FakeScan())
    inventory.observe(FakeScan(), 400.0, 300.0, held={PORT})
    kept = inventory.entries[PORT].gone_since
    inventory.observe(FakeScan(), 410.0, 300.0)

    assert kept == 1.0
    assert inventory.entries == {}


def test_a_device_that_comes_back_is_what_it_was():
    """Gone is not for ever."""
    inventory = observed(FakeScan([port()]), FakeScan(), FakeScan([port()]))

    assert inventory.entries[PORT].gone_since is None


def facts(**known):
    return {name: Fact("text", text, f"/sys/{name}") for name, text in known.items()}


NODE, OTHER_NODE = (
    HostPath(f"/dev/dri/renderD{minor}", "", True, (226, minor), False, "", None) for minor in (128, 129)
)
WHOLE = port(facts=facts(render_minor="128", memory="64"), paths=[NODE])


@pytest.mark.parametrize(
    "halves",
    [
        [port(CODEC, facts=facts(memory="64"))],
        [port(None, facts=facts(memory="64"), awaited={"render_minor"}, findings=[TIMEOUT])],
        [port(CODEC, facts=facts(memory="64")), port(CODEC)],
        [WHOLE, port(CODEC), WHOLE, port(None)],
    ],
)
def test_a_device_that_is_gone_has_the_facts_with_which_it_was_last_whole(halves):
    """A scan while a card is removed reads half of it. While it is found it is as it was read."""
    half = observed(FakeScan([WHOLE]), *(FakeScan([half]) for half in halves))
    assert half.entries[PORT].device == halves[-1]
    gone = observed(FakeScan([]), inventory=half)
    assert gone.entries[PORT].device == WHOLE
    assert gone.entries[PORT].resource_name == CRYPTO
    assert gone.entries[PORT].findings == []
    back = observed(FakeScan([port(CODEC)]), FakeScan([]), inventory=restored(gone))
    assert back.entries[PORT].device == WHOLE


def test_a_device_that_has_changed_and_lost_facts_is_gone_with_those_that_it_had_last():
    """Its nodes, too: the number of an earlier one may be another device's by now."""
    changed = port(CODEC, facts=facts(render_minor="129"), paths=[OTHER_NODE])
    entry = observed(FakeScan([WHOLE]), FakeScan([changed]), FakeScan([])).entries[PORT]
    assert entry.resource_name == CODEC
    assert entry.device.attributes == {"render_minor": "129", "memory": "64"}
    assert entry.device.paths == [OTHER_NODE]


def test_another_card_in_the_place_of_one_that_was_gone_has_none_of_its_facts():
    other = port(CODEC, facts=facts(render_minor="129"), paths=[OTHER_NODE])
    entry = observed(FakeScan([WHOLE]), FakeScan([]), FakeScan([other]), FakeScan([])).entries[PORT]
    assert entry.device == other


def test_the_devices_of_a_card_that_hangs_stay_listed_with_its_reason():
    """A read that does not come back is no reason to think the device is gone."""
    inventory = observed(FakeScan([port()]), FakeScan(unseen=[Hidden("intel-fpga", "0000:81:00.0", TIMEOUT)]))

    assert inventory.entries[PORT].findings == [TIMEOUT]


def test_an_unreadable_class_directory_changes_nothing():
    """All devices of the vendor stay as they were last seen."""
    inventory = observed(FakeScan([port()]), FakeScan(unseen=[Hidden("intel-fpga", None)]))

    assert (inventory.entries[PORT].findings, inventory.entries[PORT].gone_since) == ([], None)


def test_what_one_class_cannot_look_at_keeps_no_device_of_another():
    """A class that is wrong on this host, whose directory cannot be listed, keeps nothing alive that has vanished."""

    def of_class(name: str) -> Device:
        facts = {"class": Fact("text", name, "")}
        return Device(vendor="classes", id=name, card="0000:81:00.0", resource_name="a.b/c", facts=facts)

    both = [of_class("right"), of_class("wrong")]
    for card in (None, "0000:81:00.0"):
        unseen = [Hidden("classes", card, None, "wrong")]
        inventory = observed(FakeScan(both, vendors=["classes"]), FakeScan(unseen=unseen, vendors=["classes"]))
        gone = {key[2]: entry.gone_since for key, entry in inventory.entries.items()}
        assert gone == {"right": 1.0, "wrong": None}
    every = FakeScan(unseen=[Hidden("classes", None)], vendors=["classes"])
    kept = observed(FakeScan(both, vendors=["classes"]), every)
    assert [entry.gone_since for entry in kept.entries.values()] == [None, None]


def test_a_device_whose_card_is_not_known_can_be_kept_by_its_id():
    """A partition that cannot be told from a spare one stays; the others of its vendor do not for that."""
    kept = observed(FakeScan([port()]), FakeScan(unseen=[Hidden("intel-fpga", "dfl-port.0")]))
    other = observed(FakeScan([port()]), FakeScan(unseen=[Hidden("intel-fpga", "dfl-port.1")]))

    assert (kept.entries[PORT].gone_since, other.entries[PORT].gone_since) == (None, 1.0)


def test_a_device_that_is_gone_does_not_come_back_because_nobody_can_look():
    """Only a scan that finds it brings it back; the time until it is forgotten goes on."""
    unseen = FakeScan(unseen=[Hidden("intel-fpga", None, TIMEOUT)])
    inventory = observed(FakeScan([port()]), FakeScan(), unseen)

    assert (inventory.entries[PORT].gone_since, inventory.entries[PORT].findings) == (1.0, [])
    inventory.observe(unseen, 301.0, 300.0)
    assert inventory.entries == {}


def test_devices_that_the_configuration_dropped_are_forgotten_at_once():
    """A removed section or a disabled vendor is no failure of a device."""
    reconfigured = observed(FakeScan([port()]))
    reconfigured.observe(FakeScan(), 1.0, 300.0, {"intel-fpga"})
    disabled = observed(FakeScan([port()]), FakeScan(vendors=[]))

    assert reconfigured.entries == disabled.entries == {}


def of_class(name: str, device_id: str) -> Device:
    """A device that a class has found."""
    facts = {"class": Fact("text", name, "")}
    return Device(vendor="classes", card=device_id, id=device_id, resource_name="example.com/x", facts=facts)


FIRST, SECOND = ("classes", "a0", "a0"), ("classes", "b0", "b0")


def test_an_edited_class_drops_what_it_no_longer_finds_once_no_pod_holds_it_and_nothing_of_other_classes():
    """As a rule that changes: what a pod has stays listed; the devices of other classes are none of its business."""
    nothing = FakeScan(vendors=["classes"])
    inventory = observed(FakeScan([of_class("a", "a0"), of_class("b", "b0")], vendors=["classes"]))
    inventory.use_options({"classes/a": "{}", "classes/b": "{}"})

    def next_scan(now: float, held=frozenset()) -> set[str]:
        inventory.observe(nothing, now, 300.0, {"classes/a"}, held=held)
        return inventory.use_options({"classes/a": '{"shares": 2}', "classes/b": "{}"}, {"classes/a"})

    assert next_scan(1.0) == {"classes/a"}, "who holds it is not known yet"
    assert restored(inventory).vendor_options == {"classes/a": "{}", "classes/b": "{}"}, "a later scanner must know"
    assert next_scan(1000.0, {FIRST, SECOND}) == {"classes/a"}
    assert [*inventory.entries] == [FIRST, SECOND]
    assert next_scan(1001.0, {SECOND}) == set()
    assert [*inventory.entries] == [SECOND]
    assert inventory.vendor_options == {"classes/a": '{"shares": 2}', "classes/b": "{}"}


def test_what_an_edited_class_still_finds_is_no_other_device():
    """Its resource or its facts may be others; the health and the pods of the device are not."""
    inventory = observed(FakeScan([of_class("a", "a0")], vendors=["classes"]))
    renamed = Device(vendor="classes", card="a0", id="a0", resource_name="example.com/y")

    inventory.observe(FakeScan([renamed], vendors=["classes"]), 5.0, 300.0, {"classes/a"})

    entry = inventory.entries[FIRST]
    assert (entry.resource_name, entry.found_since, entry.gone_since) == ("example.com/y", 0.0, None)
    assert inventory.use_options({}, {"classes/a"}) == set()


def test_a_restarted_scanner_knows_what_an_earlier_one_knew():
    """A scanner killed while a port is being reprogrammed still knows the port's resource, and all facts of it."""
    device = port(
        paths=[
            HostPath("/dev/dfl-port.0", "port", True, (243, 0), True, "", (44, 0o660)),
            HostPath("/usr/lib/x.so", "link", False, None, False, "x.so.1", None),
        ],
        numa_nodes=[1],
        numa_source="/sys/numa_node",
        facts={
            "fme": Fact("text", "dfl-fme.0", "/sys/fme"),
            "port_id": Fact("number", "-7", "/sys/id"),
            "sriov": Fact("boolean", "false", "/sys/sriov_totalvfs"),
            "driver_version": Fact("version", "5.1", ""),
        },
        awaited={"afu_id", "bitstream_id"},
        distances={"0000:81:00.0": 0},
        functions=[
            PciFunction("/sys/devices/pci0000:80/0000:81:00.1", "dfl-pci", "/sys/devices/pci0000:80/0000:81:00.0")
        ],
    )
    before = observed(FakeScan([device]))
    before.platforms = {"intel-fpga": Platform(facts={"x": Fact("text", "y", "")}, paths=device.paths)}

    after = restored(before)

    assert after.entries == before.entries
    assert after.platforms == before.platforms
    after.observe(FakeScan([port(None, findings=[UNPROGRAMMED])]), 1.0, 300.0)
    assert after.entries[PORT].resource_name == CRYPTO


def test_a_device_that_is_gone_is_not_gone_anew_for_each_restart():
    """A scanner that is started again and again must not keep it in the list for ever."""
    inventory = observed(FakeScan([port()]), FakeScan())
    for moment in (100.0, 200.0, 299.0):
        inventory = restored(inventory)
        inventory.observe(FakeScan(), moment, 300.0)
        assert inventory.entries[PORT].gone_since == 1.0
    inventory = restored(inventory)
    inventory.observe(FakeScan(), 301.0, 300.0)
    assert inventory.entries == {}


def test_a_device_that_was_gone_before_a_boot_is_kept_for_its_time():
    """The clock begins at boot: a time that is still to come says nothing."""
    inventory = observed(FakeScan([port()]), FakeScan(), FakeScan(), FakeScan())
    inventory.observe(FakeScan(), 1000.0, 3000.0)
    after = restored(inventory)
    after.observe(FakeScan(), 0.5, 2.0)
    after.observe(FakeScan(), 2.0, 2.0)
    assert after.entries[PORT].gone_since == 0.5
    after.observe(FakeScan(), 2.6, 2.0)
    assert after.entries == {}


def test_what_a_vendor_has_in_common_stays_while_it_cannot_be_looked_at():
    """A container with a device that is kept as it was gets what it would have got."""
    platform = Platform(facts={"driver_version": Fact("version", "550.1", "")})
    inventory = observed(FakeScan([port()], platforms={"intel-fpga": platform}))
    inventory.observe(FakeScan(unseen=[Hidden("intel-fpga", None)]), 1.0, 300.0)
    assert inventory.platforms == {"intel-fpga": platform}
    inventory.observe(FakeScan(vendors=[]), 2.0, 300.0)
    assert inventory.platforms == {}


def test_of_the_file_only_the_part_of_a_device_that_has_changed_is_made_again(tmp_path, monkeypatch):
    """The file is the same as if all of it were: also when a device goes, and when what all have in common changes."""
    made = []
    part_of = inventory_module._part_of
    monkeypatch.setattr(inventory_module, "_part_of", lambda entry: (made.append(entry.device.id), part_of(entry))[1])
    file = DevicesFile(tmp_path / "devices.pb")
    ports = {name: Device(vendor="intel-fpga", id=name, card=name, resource_name=CRYPTO) for name in "abc"}
    inventory = Inventory()
    common = Platform(facts={"version": Fact("text", "1", "/sys")}, paths=[])

    def made_after(devices: list[Device], **more) -> list[str]:
        inventory.observe(FakeScan(devices, **more), 0.0, 0.0)
        made.clear()
        file.write(inventory)
        again = list(made)
        assert (tmp_path / "devices.pb").read_bytes() == message_of(inventory).SerializeToString(deterministic=True)
        return again

    assert made_after(list(ports.values())) == ["a", "b", "c"]
    assert made_after(list(ports.values()), platforms={"intel-fpga": common}) == []
    ports["b"] = Device(vendor="intel-fpga", id="b", card="b", resource_name=CODEC)
    assert made_after(list(ports.values())) == ["b"]
    assert made_after([ports["c"], ports["a"]]) == []
    assert made_after(list(ports.values())) == ["b"]


def test_what_has_not_changed_stays_the_same_entry_and_the_same_version():
    """Thousands are not arranged and written again for one that changed, or at each scan while one is gone."""
    other = Device(vendor="intel-fpga", id="dfl-port.1", card="0000:81:00.0", resource_name=CODEC)
    inventory = observed(FakeScan([port(), other]))
    before, version = inventory.entries, inventory.version

    observed(FakeScan([port(), other]), inventory=inventory)
    assert (inventory.entries is before, inventory.version) == (True, version)

    inventory.observe(FakeScan([port()]), 5.0, 300.0)
    assert (inventory.entries[PORT] is before[PORT], inventory.version, inventory.has_gone) == (True, version + 1, True)
    gone = inventory.entries
    inventory.observe(FakeScan([port()]), 6.0, 300.0)
    assert (inventory.entries is gone, inventory.version) == (True, version + 1)

    inventory.observe(FakeScan(unseen=[Hidden("intel-fpga", "0000:81:00.0")]), 7.0, 300.0)
    inventory.use_options({"intel-fpga": "{}"})
    assert inventory.version == version + 3
