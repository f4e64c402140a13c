"""The map of a node: each card in its place, what is in it, who holds it, and its links to others."""

from drawn_node import HOLDER, gpu, inventory, pairs_below_switches, path

from devherd.instance.node_map import Card, node_map, paths_of
from devherd.instance.read import InstanceState
from devherd.proto.health_pb2 import LostDevice
from devherd.proto.spool_pb2 import Device, Offer

NAME = "nvidia.com/gpu"
ROOT, PORT = "pci0000:00", "0000:00:01.0"


def tree(branch):
    """Names of branches with what is below, and names of cards."""
    return [one.name if isinstance(one, Card) else (one.name, tree(one)) for one in branch.inside]


def drawn(offers, paths, held=None, lost=()):
    herd = InstanceState(offers, lost=lost)
    node = node_map(herd, held or {}, paths)
    return node, [(branch.name, tree(branch)) for branch in node.groups]


def said(node):
    return {card.name: (card.state, card.health(), card.holders()) for card in node.cards()}


def one_card(functions, **more):
    """A card whose functions are devices of a resource, and their paths."""
    devices = [
        Device(id=f"{function}", vendor="rdma", attributes={"pci_address": address, **more}, numa_nodes=[0])
        for function, address in functions.items()
    ]
    paths = {address: path(ROOT, PORT, address) for address in functions.values()}
    return Offer(name="rdma/hca", vendor="rdma", devices=devices), paths


def test_each_card_is_below_its_numa_node_root_and_switch():
    """In the order of addresses."""
    offer, paths = pairs_below_switches()
    assert drawn([offer], paths)[1] == [
        ("NUMA 0", [("pci0000:00", [("0000:01:00.0", ["GPU 0", "GPU 1"])])]),
        ("NUMA 1", [("pci0000:80", [("0000:81:00.0", ["GPU 2", "GPU 3"])])]),
    ]


def test_where_a_function_is_stands_in_the_inventory():
    """With the functions of each device, by address."""
    _, paths = pairs_below_switches()
    assert paths_of(inventory(paths)) == paths


def test_an_index_that_two_cards_have_names_neither():
    """Defect: after the loss of GPU 0 NVML numbered the next one 0, and the map showed GPU 0 twice."""
    offer, paths = pairs_below_switches()
    offer.devices[1].attributes["index"] = offer.devices[0].attributes["index"]
    shown = drawn([offer], paths)[1]
    assert shown[0] == ("NUMA 0", [("pci0000:00", [("0000:01:00.0", ["GPU-0", "GPU-1"])])])
    assert shown[1] == ("NUMA 1", [("pci0000:80", [("0000:81:00.0", ["GPU 2", "GPU 3"])])])


def test_a_switch_that_leads_to_one_card_is_not_drawn():
    """It is on the card's own board."""
    device, place = gpu(0, (ROOT, PORT, "0000:01:00.0", "0000:02:00.0"), numa_nodes=[0])
    assert drawn([Offer(name=NAME, vendor="nvidia", devices=[device])], dict([place]))[1] == [
        ("NUMA 0", [(ROOT, ["GPU 0"])])
    ]


def test_switches_below_switches_are_nested():
    """As in a chassis with several."""
    upper = (ROOT, PORT, "0000:01:00.0", "0000:02:00.0")
    made = [
        gpu(0, (*upper, "0000:03:00.0", "0000:04:00.0")),
        gpu(1, (*upper, "0000:03:00.0", "0000:04:01.0")),
        gpu(2, (ROOT, PORT, "0000:01:00.0", "0000:02:01.0")),
    ]
    offer = Offer(name=NAME, vendor="nvidia", devices=[device for device, _ in made])
    assert drawn([offer], dict(place for _, place in made))[1] == [
        ("no NUMA nodes known", [(ROOT, [("0000:01:00.0", [("0000:03:00.0", ["GPU 0", "GPU 1"]), "GPU 2"])])])
    ]


def test_a_host_bridge_below_a_bridge_is_the_root():
    """Intel's VMD."""
    device, (address, _) = gpu(0, ())
    place = path("pci0000:e2", "0000:e2:00.5", "pci10000:00", "10000:00:02.0", address)
    assert drawn([Offer(name=NAME, devices=[device])], {address: place})[1] == [
        ("no NUMA nodes known", [("pci10000:00", ["GPU 0"])])
    ]


def test_all_functions_below_a_port_are_one_card():
    """Physical and virtual ones, also on the next bus."""
    offer, paths = one_card({"mlx5_0": "0000:02:00.0", "mlx5_1": "0000:02:00.1", "mlx5_2": "0000:03:00.0"})
    node, _ = drawn([offer], paths, {("rdma/hca", "mlx5_1"): [HOLDER]})
    [card] = node.cards()
    assert (card.name, card.cells()) == ("02:00", [("good", False), ("good", True), ("good", False)])
    assert said(node) == {"02:00": ("good", "Healthy", "1 of 3 held by research/train-0")}


def test_without_a_port_above_them_the_functions_of_a_device_number_are_one_card():
    """On the root bus, as in a virtual machine; a virtual function belongs to its physical one."""
    addresses = {"a": "0000:00:05.0", "b": "0000:00:06.0", "c": "0000:00:06.1", "d": "0000:00:07.0"}
    offer, _ = one_card(addresses)
    offer.devices[3].attributes["physfn"] = "0000:00:06.0"
    paths = {address: path(ROOT, address) for address in addresses.values()}
    assert drawn([offer], paths)[1] == [("NUMA 0", [(ROOT, ["a", "00:06"])])]


def test_a_function_whose_path_is_not_known_is_below_its_numa_node():
    """Before the first scan of this version has written it."""
    offer, _ = pairs_below_switches()
    assert drawn([offer], {})[1] == [
        ("NUMA 0", [("", ["GPU 0", "GPU 1"])]),
        ("NUMA 1", [("", ["GPU 2", "GPU 3"])]),
    ]


def test_a_lost_card_keeps_its_place():
    """While the kubelet's list has it, and after that."""
    offer, paths = pairs_below_switches()
    gone = offer.devices.pop()
    [address] = set(paths) - {device.attributes["pci_address"] for device in offer.devices}
    offer.devices[2].reasons.append("gone")
    missing = LostDevice(
        vendor="nvidia",
        card=gone.card,
        device=gone.id,
        resource_name=NAME,
        pci_address=address,
        pci_path=paths.pop(address),
        numa_nodes=[1],
        model="NVIDIA H100 80GB HBM3",
    )
    node, shown = drawn([offer], paths, {(NAME, "GPU-2"): [HOLDER]}, [missing])
    assert shown[1] == ("NUMA 1", [("pci0000:80", [("0000:81:00.0", ["GPU 2", "GPU-3"])])])
    assert said(node) == {
        "GPU 0": ("good", "Healthy", "free"),
        "GPU 1": ("good", "Healthy", "free"),
        "GPU 2": ("lost", "lost", "research/train-0"),
        "GPU-3": ("lost", "lost", ""),
    }


def test_the_worst_of_a_card_is_its_state():
    """A card of which a part is lost is not lost."""
    offer, paths = one_card({f"mlx5_{number}": f"0000:02:00.{number}" for number in range(5)})
    one, two, three, four, _ = offer.devices
    two.warnings.append("link-degraded")
    three.reasons.append("cordoned")
    four.reasons.append("gone")
    assert said(drawn([offer], paths)[0]) == {
        "02:00": ("bad", "1 lost, 1 warning: link-degraded, 1 cordoned, 2 Healthy", "")
    }
    one.reasons.append("wedged")
    assert said(drawn([offer], paths)[0])["02:00"][:2] == (
        "bad",
        "1 Unhealthy: wedged, 1 lost, 1 warning: link-degraded, 1 cordoned, 1 Healthy",
    )


def test_shares_are_cells_and_many_of_them_a_count():
    """1 024 would not fit."""
    few, paths = pairs_below_switches()
    few.devices[0].replicas, few.devices[1].replicas = 4, 1024
    held = {(NAME, "GPU-0::2"): [HOLDER], (NAME, "GPU-1::7"): [HOLDER], (NAME, "GPU-1::9"): [{**HOLDER, "pod": "b"}]}
    node, _ = drawn([few], paths, held)
    four, many, *_ = node.cards()
    assert four.cells() == [("good", True), *[("good", False)] * 3]
    assert (many.cells(), many.size, many.held) == ([], 1024, 2)
    assert many.holders() == "2 of 1,024 held by research/train-0, research/b"
    assert many.holders(1) == "2 of 1,024 held by research/train-0 and 1 more"


def test_a_device_of_several_functions_is_in_the_place_of_each():
    """A pool of RDMA cards."""
    pool = Device(
        id="0", vendor="rdma", shares=["0", "1"], attributes={"pci_address": "0000:02:00.0,0000:03:00.0"}, card="pool"
    )
    paths = {
        address: path(ROOT, port, address)
        for port, address in ((PORT, "0000:02:00.0"), ("0000:00:02.0", "0000:03:00.0"))
    }
    node, shown = drawn([Offer(name="rdma/pool", vendor="rdma", devices=[pool])], paths)
    assert shown == [("no NUMA nodes known", [(ROOT, ["0", "0"])])]
    assert [card.address for card in node.cards()] == ["0000:02:00.0", "0000:03:00.0"]


def test_devices_on_no_pci_bus_have_a_place_too():
    """A card for each resource."""
    kvm = Offer(name="devic.es/kvm", vendor="generic", devices=[Device(id="0", replicas=3)])
    usb = Offer(name="devic.es/serial", vendor="generic", devices=[Device(id="a"), Device(id="b", reasons=["gone"])])
    missing = LostDevice(vendor="generic", device="c", resource_name="devic.es/serial")
    node, shown = drawn([kvm, usb], {}, lost=[missing])
    assert shown == [("other devices", ["kvm", "serial"])]
    assert said(node) == {"kvm": ("good", "Healthy", "free"), "serial": ("bad", "2 lost, 1 Healthy", "")}


def test_links_between_cards_are_shown_by_kind():
    """Direct ones by pair, those through switches of all with all."""
    offer, paths = pairs_below_switches()
    addresses = [device.attributes["pci_address"] for device in offer.devices]
    for one, other in ((0, 1), (1, 0), (2, 3)):
        offer.devices[one].attributes["nvlink_gpus"] = ",".join([addresses[other]] * 4)
    assert [fabric.text() for fabric in drawn([offer], paths)[0].fabrics] == [
        "NVLink, each to each, 4 links each: GPU 0, GPU 1",
        "NVLink, each to each, 4 links each: GPU 2, GPU 3",
    ]
    offer.devices[0].attributes["nvlink_gpus"] += f",{addresses[2]}"
    assert [fabric.text() for fabric in drawn([offer], paths)[0].fabrics] == [
        "NVLink: GPU 0-GPU 1 x 4, GPU 0-GPU 2, GPU 2-GPU 3 x 4"
    ]
    for device in offer.devices:
        device.attributes.pop("nvlink_gpus", "")
        device.attributes["nvswitch_ports"] = "0000:f0:00.0/1,0000:f1:00.0/2"
    assert [fabric.text() for fabric in drawn([offer], paths)[0].fabrics] == [
        "NVLink by NVSwitch, each to each, 2 links each: GPU 0, GPU 1, GPU 2, GPU 3"
    ]
    for device in offer.devices:
        del device.attributes["nvswitch_ports"]
        others = [address for address in addresses if address != device.attributes["pci_address"]]
        device.attributes["xgmi_gpus"] = ",".join(others)
    assert [fabric.text() for fabric in drawn([offer], paths)[0].fabrics] == [
        "XGMI, each to each: GPU 0, GPU 1, GPU 2, GPU 3"
    ]
