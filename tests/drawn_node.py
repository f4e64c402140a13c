"""Nodes that are drawn: offers with the paths of their PCI functions, as an inventory has them."""

from devherd.proto import devices_pb2
from devherd.proto.spool_pb2 import Device, Offer

HOLDER = {"namespace": "research", "pod": "train-0", "container": "main"}
LONG_NAME = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"


def path(*names):
    return "/".join(("/sys/devices", *names))


def gpu(number, bridges, **fields):
    """GPU and its path: bridges, then an address made of its number."""
    address = f"0000:{0x40 + number:02x}:00.0"
    facts = {"pci_address": address, "index": str(number), "model": "NVIDIA H100 80GB HBM3", **fields.pop("facts", {})}
    device = Device(id=f"GPU-{number}", vendor="nvidia", card=address, attributes=facts, **fields)
    return device, (address, path(*bridges, address))


def pairs_below_switches():
    """Four GPUs in pairs below switches, on two NUMA nodes."""
    made = [
        gpu(
            number,
            (
                f"pci0000:{root}",
                f"0000:{root}:01.0",
                f"0000:{root[0]}1:00.0",
                f"0000:{root[0]}2:{number % 2:02x}.0",
            ),
            numa_nodes=[number // 2],
        )
        for number, root in enumerate(("00", "00", "80", "80"))
    ]
    return Offer(name="nvidia.com/gpu", vendor="nvidia", devices=[device for device, _ in made]), dict(
        place for _, place in made
    )


def largest(hold=False):
    """24 resource types, 128 cards, 1 024 functions, 4 096 device ids; allocations in which distinct pods hold all."""
    paths, functions = {}, []
    for card in range(128):
        root = f"{card // 64 * 0x80:02x}"
        for function in range(8):
            address = f"0000:{card // 64 * 0x80 + card % 64 + 1:02x}:00.{function}"
            port = f"0000:{root}:{1 + card % 64 // 8:02x}.{card % 8}"
            paths[address] = path(f"pci0000:{root}", port, address)
            facts = {"pci_address": address, "afu_id": "d8424dc4a4a3c413f89e433683f9040b"}
            device = Device(
                id=f"dfl-port.{card * 8 + function}",
                vendor="intel-fpga",
                card=address[:-2],
                attributes=facts,
                numa_nodes=[card // 64],
                reasons=["fpga-errors"] if card % 40 == 7 and not function else [],
            )
            functions.append(device)
    offers = [
        Offer(name=LONG_NAME, vendor="intel-fpga", devices=functions[:512]),
        Offer(name=f"{LONG_NAME[:-1]}t", vendor="intel-fpga", devices=functions[512:]),
    ]
    others = 4096 - 1024
    for number in range(22):
        count = others // 22 + (number < others % 22)
        devices = [Device(id=f"sim-{number}-{each}", vendor="simulated") for each in range(count)]
        offers.append(Offer(name=f"example.com/type-{number}", vendor="simulated", devices=devices))
    held = {
        (offer.name, device.id): [{**HOLDER, "pod": f"trainer-{number:04}-7d9f8b6c5d-{each:05}"}]
        for number, offer in enumerate(offers)
        for each, device in enumerate(offer.devices)
    }
    return offers, paths, held if hold else {}


def inventory(paths):
    """An inventory with functions at these paths."""
    made = devices_pb2.Inventory()
    for place in paths.values():
        made.devices.add().device.functions.add(path=place)
    return made
