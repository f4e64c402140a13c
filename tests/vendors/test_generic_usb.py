"""Generic devices by USB id, through the native scanner."""

from hashlib import sha1
from pathlib import Path

from answering import AnsweringScanner

from devherd.config.model import Config
from devherd_sim.node.tree import write_tree

NAME = "example.com/stick"
ADAPTER = {"vendor": "1a86", "product": "7523"}


def scanner(root: Path, *groups: dict) -> AnsweringScanner:
    """Looks at the tree for one generic resource with these groups."""
    config = Config.model_validate({"host_root": root, "generic": [{"name": NAME, "groups": groups}]})
    return AnsweringScanner(str(root), config.native_json())


def plug(root: Path, port: str, number: int, serial: str | None = None, product: str = "7523") -> str:
    """Plugs an adapter into a port; answers its node."""
    directory = f"sys/devices/pci0000:00/0000:00:14.0/usb1/{port}"
    node = f"/dev/bus/usb/001/{number:03}"
    tree = (
        f"sys/bus/usb/devices/{port} -> ../../../devices/pci0000:00/0000:00:14.0/usb1/{port}\n"
        f"{directory}/idVendor = 1a86\n{directory}/idProduct = {product}\n"
        f"{directory}/busnum = 1\n{directory}/devnum = {number}\n"
        f"{node.removeprefix('/')} =\n"
    )
    write_tree(tree + (f"{directory}/serial = {serial}\n" if serial else ""), root)
    return node


def test_all_matching_sticks_are_one_device_in_the_order_of_the_bus(tmp_path):
    """The peer's order is random, and its ids change with it."""
    nodes = [plug(tmp_path, "1-3", 10), plug(tmp_path, "1-10", 9), plug(tmp_path, "1-2", 100)]
    ordered = sorted(nodes)
    (device,) = scanner(tmp_path, {"usb": [ADAPTER]}).scan().devices
    assert [node.host_path for node in device.nodes] == ordered
    assert {(node.container_path == node.host_path, node.permissions) for node in device.nodes} == {(True, "rw")}
    assert device.id == sha1(("0" + "".join(ordered)).encode()).hexdigest()
    assert device.attributes["usb_id"] == ",".join(["1a86:7523"] * 3)


def test_a_serial_chooses_one_stick(tmp_path):
    """Two entries of one group are one device, two groups are two."""
    plug(tmp_path, "1-1", 2, "A")
    node = plug(tmp_path, "1-2", 3, "B")
    scan = scanner(tmp_path, {"usb": [{**ADAPTER, "serial": "B"}]}, {"usb": [{**ADAPTER, "serial": "C"}]}).scan()
    assert [device.attributes["path"] for device in scan.devices] == [node]
    assert [device.attributes["serial"] for device in scan.devices] == ["B"]


def test_the_numa_node_is_that_of_the_controller(tmp_path):
    """A stick has none of its own."""
    plug(tmp_path, "1-1", 2)
    write_tree("sys/devices/pci0000:00/0000:00:14.0/numa_node = 1\n", tmp_path)
    (device,) = scanner(tmp_path, {"usb": [ADAPTER]}).scan().devices
    assert device.numa_nodes == [1]
    assert device.sources["numa_nodes"] == "/sys/devices/pci0000:00/0000:00:14.0/numa_node"


def test_an_unreadable_stick_is_a_problem_and_costs_no_other(tmp_path):
    """The peer drops it without a log line."""
    plug(tmp_path, "1-1", 2)
    node = plug(tmp_path, "1-2", 3)
    (tmp_path / "sys/bus/usb/devices/1-1/busnum").unlink()
    scan = scanner(tmp_path, {"usb": [ADAPTER]}).scan()
    assert [device.attributes["path"] for device in scan.devices] == [node]
    assert [problem.path for problem in scan.problems] == ["/sys/bus/usb/devices/1-1/busnum"]


def test_a_stick_pulled_out_is_polled_unhealthy_at_once(tmp_path):
    """The node goes before any scan tells that the device is gone."""
    node = plug(tmp_path, "1-1", 2)
    native = scanner(tmp_path, {"usb": [ADAPTER]})
    (device,) = native.scan().devices
    (tmp_path / node.removeprefix("/")).unlink()
    assert native.poll() == [("generic", device.card, device.id, ["node-missing"])]


def test_a_host_without_usb_has_no_stick_and_says_which_resource_has_none(tmp_path):
    """A config may be written for several kinds of hosts, but a resource must not be missing without a word."""
    scan = scanner(tmp_path, {"usb": [ADAPTER]}).scan()
    assert scan.devices == []
    (problem,) = scan.problems
    assert problem.path == "USB 1a86:7523"
    assert problem.error == "no device matches; example.com/stick is not advertised"


def stick_id(instance: int, *nodes: str) -> str:
    """The id that generic-device-plugin gives."""
    return sha1(f"{instance}{''.join(nodes)}".encode()).hexdigest()


def test_sticks_of_several_entries_come_by_entry_then_by_bus_b7(tmp_path):
    """One stick for each entry is the case in which the peer's own order is no accident."""
    third, first, second = plug(tmp_path, "1-1", 2), plug(tmp_path, "1-2", 3, None, "0002"), plug(tmp_path, "1-3", 4)
    (device,) = scanner(tmp_path, {"usb": [ADAPTER | {"product": "0002"}, ADAPTER]}).scan().devices
    assert [node.host_path for node in device.nodes] == [first, third, second]
    assert device.id == stick_id(0, first, third, second)


def test_a_stick_that_two_entries_name_counts_twice_in_the_id_and_is_given_once_b7(tmp_path):
    """As in the peer; a runtime would make the same node of both."""
    node = plug(tmp_path, "1-1", 2, "A")
    (device,) = scanner(tmp_path, {"usb": [ADAPTER, ADAPTER | {"serial": "A"}]}).scan().devices
    assert device.id == stick_id(0, node, node)
    assert [given.host_path for given in device.nodes] == [node]


def test_separate_sticks_are_devices_of_their_own(tmp_path):
    """What users of the peer ask for (#70); `count` multiplies each, and two entries name a stick once."""
    nodes = [plug(tmp_path, "1-1", 2, "A"), plug(tmp_path, "1-2", 3)]
    group = {"separate": True, "count": 2, "usb": [ADAPTER, ADAPTER | {"serial": "A"}]}
    devices = scanner(tmp_path, group).scan().devices
    assert {(*device.shares, *(node.host_path for node in device.nodes)) for device in devices} == {
        (stick_id(0, node), stick_id(1, node), node) for node in nodes
    }


def test_an_empty_serial_is_any_c2(tmp_path):
    """As in the peer."""
    node = plug(tmp_path, "1-1", 2, "A")
    (device,) = scanner(tmp_path, {"usb": [ADAPTER | {"serial": ""}]}).scan().devices
    assert device.id == stick_id(0, node)
