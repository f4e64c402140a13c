"""What the scan core encodes for the run directory is what Python's protobuf library reads as the same message."""

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from test_offer_rules import FakeEdits

from devherd._native import Device, Fact, HostPath, PciFunction, Platform, Scanner
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.proto import devices_pb2, spool_pb2
from devherd.spool import encoded
from devherd_sim.node.presets import PRESETS, preset
from devherd_sim.node.simulated_node import SimulatedNode

TEXT = st.text(max_size=200)
NUMBER = st.integers(0, 2**32 - 1)
NUMBERS = st.tuples(NUMBER, NUMBER) | st.none()
FACTS = st.one_of(
    st.builds(Fact, st.sampled_from(["text", "version"]), TEXT, TEXT),
    st.builds(lambda is_so, source: Fact("boolean", is_so, source), st.sampled_from(["true", "false"]), TEXT),
    st.builds(lambda number, source: Fact("number", str(number), source), st.integers(-(2**63), 2**63 - 1), TEXT),
)
PATHS = st.lists(
    st.builds(HostPath, TEXT, TEXT, st.booleans(), NUMBERS, st.booleans(), TEXT, NUMBERS),
    max_size=3,
)
DEVICES = st.builds(
    Device,
    vendor=TEXT,
    card=TEXT,
    id=TEXT,
    resource_name=TEXT | st.none(),
    first_sight_resource_name=TEXT | st.none(),
    shares=st.lists(TEXT, max_size=3),
    numa_nodes=st.lists(NUMBER, max_size=3),
    numa_source=TEXT,
    paths=PATHS,
    facts=st.dictionaries(TEXT, FACTS, max_size=5),
    awaited=st.sets(TEXT, max_size=3),
    distances=st.dictionaries(TEXT, NUMBER, max_size=3),
    functions=st.lists(st.builds(PciFunction, TEXT, TEXT | st.none(), TEXT | st.none()), max_size=3),
)


def known(device: Device) -> devices_pb2.Device:
    """As devices.pb has it."""
    message = devices_pb2.Device(
        vendor=device.vendor,
        card=device.card,
        id=device.id,
        resource_name=device.resource_name or "",
        first_sight_resource_name=device.first_sight_resource_name or "",
        shares=device.shares,
        numa_nodes=device.numa_nodes,
        numa_source=device.numa_source,
        distances=device.distances,
        awaited=sorted(device.awaited),
    )
    for function in device.functions:
        message.functions.add(path=function.path, driver=function.driver, physical=function.physical)
    describe(message, device)
    return message


def describe(message: devices_pb2.Device | devices_pb2.Platform, described: Device | Platform) -> None:
    """Add its paths and facts."""
    for path in described.paths:
        one = message.paths.add(
            path=path.path, role=path.role, is_node=path.is_node, is_required=path.is_required, target=path.target
        )
        if path.number is not None:
            one.number.CopyFrom(devices_pb2.Number(major=path.number[0], minor=path.number[1]))
        if path.access is not None:
            one.access.CopyFrom(devices_pb2.Access(group=path.access[0], mode=path.access[1]))
    for name, fact in described.facts.items():
        value = {"number": int, "boolean": "true".__eq__}.get(fact.kind, str)(fact.text)
        message.attributes[name].CopyFrom(devices_pb2.Fact(source=fact.source, **{fact.kind: value}))


def offered(device: Device, edits: bytes) -> tuple[spool_pb2.Offer, spool_pb2.Resource]:
    """As an offer and the resource of its child have it, without what the configuration decides."""
    of_both = {
        "id": device.id,
        "card": device.card,
        "vendor": device.vendor,
        "numa_nodes": device.numa_nodes,
        "distances": device.distances,
        "edits": spool_pb2.Edits.FromString(edits),
    }
    in_offer = spool_pb2.Device(attributes=device.attributes, **of_both)
    return spool_pb2.Offer(devices=[in_offer]), spool_pb2.Resource(devices=[spool_pb2.ListedDevice(**of_both)])


def check_one(content: bytes, message: Message) -> None:
    """Read again it is the message, and it says nothing twice; prost leaves out an empty key or value of a map."""
    assert type(message).FromString(content) == message
    assert len(content) <= message.ByteSize()


def check(device: Device, edits: bytes) -> None:
    offer, resource = offered(device, edits)
    more = {"resource_name": "a.b/c", "left_out": {"cdi": "x"}}
    inventory = devices_pb2.Inventory(devices=[devices_pb2.KnownDevice(device=known(device), **more)])
    check_one(device.in_inventory(encoded(devices_pb2.KnownDevice(**more))), inventory)
    check_one(device.in_offer(edits, b""), offer)
    check_one(device.in_resource(edits, b""), resource)
    offer.devices[0].rule = resource.devices[0].id = "x"
    assert spool_pb2.Offer.FromString(device.in_offer(edits, encoded(spool_pb2.Device(rule="x")))) == offer
    assert spool_pb2.Resource.FromString(device.in_resource(edits, encoded(spool_pb2.ListedDevice(id="x")))) == resource


@given(device=DEVICES, cdi_devices=st.lists(TEXT, max_size=2))
def test_any_device_is_encoded_as_the_library_writes_it(device, cdi_devices):
    """With the numbers, absent parts and empty texts that a real one has seldom."""
    check(device, encoded(spool_pb2.Edits(cdi_devices=cdi_devices)))


@given(platform=st.builds(Platform, paths=PATHS, facts=st.dictionaries(TEXT, FACTS, max_size=5)), vendor=TEXT)
def test_what_the_devices_of_a_vendor_share_is_encoded_as_the_library_writes_it(platform, vendor):
    """As devices.pb has it, which the next scanner reads."""
    inventory = devices_pb2.Inventory()
    describe(inventory.platforms[vendor], platform)
    check_one(platform.in_inventory(vendor), inventory)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_the_edits_of_every_vendor_are_encoded_as_the_library_writes_them(tmp_path, name):
    """Both ways of each device: by the kubelet's API and by CDI."""
    SimulatedNode.create(tmp_path / "node", preset(name))
    scanner = Scanner(str(tmp_path / "node"), resolve(Config()).native_json())
    scan = scanner.scan()
    for device in scan.devices:
        for way in ("device-plugin", "cdi"):
            edits = scanner.edits(device, scan.platforms.get(device.vendor), way, "a.b/c")
            assert edits is not None
            own = FakeEdits(
                tuple(edits.nodes), tuple(edits.mounts), edits.envs, edits.annotations, tuple(edits.cdi_devices)
            )
            check_one(edits.encoded(), spool_pb2.Edits.FromString(own.encoded()))
            check(device, edits.encoded())
