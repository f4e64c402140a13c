"""Any host: the devices of a type are even, stand once in their pool, and none stands beside its parts."""

import re
import tempfile
from collections import defaultdict
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as some
from publishing import NODE, published

from devherd._native import Device, Fact, facts
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.dra.objects import slices_of
from devherd.dra.pools import TYPES, pools_of
from devherd.health.policy import Verdict
from devherd.inventory import Entry
from devherd.offers.rules import arrange
from devherd_sim.node.amd import AmdSpec
from devherd_sim.node.intel_gpu import IntelGpuSpec
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.rdma import RdmaSpec
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import DeviceSpec, FpgaSpec, NodeSpec, UsbSpec
from devherd_sim.node.xilinx_fpga import XilinxFpgaSpec

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)
"""https://semver.org, as the API server has it."""


def is_even(slices):
    """Checks the devices of all slices against what the API and CEL ask of them; returns their number."""
    kinds, names = defaultdict(set), defaultdict(list)
    for made in slices:
        devices = made["spec"].get("devices", [])
        driver = made["spec"]["driver"]
        assert len(devices) <= 64
        for device in devices:
            names[driver].append(device["name"])
            attributes = device["attributes"]
            assert LABEL.fullmatch(device["name"])
            assert len(attributes) + len(device.get("capacity", {})) <= 32
            assert len(device.get("taints", [])) <= 16
            for name, value in attributes.items():
                ((kind, content),) = value.items()
                assert {"string": str, "int": int, "bool": bool, "version": str}[kind] is type(content), (name, value)
                assert kind != "version" or SEMVER.fullmatch(content), value
                assert kind in ("int", "bool") or len(content.encode()) <= 64
            own = {name for name in device.get("capacity", {}) if not name.startswith("memorySlice")}
            shape = frozenset((name, *value) for name, value in attributes.items()), frozenset(own)
            kinds[driver, attributes["type"]["string"]].add(shape)
    for of_type, shapes in kinds.items():
        assert len(shapes) == 1, (of_type, shapes)
    for driver, listed in names.items():
        assert len(set(listed)) == len(listed), driver
    return sum(map(len, names.values()))


def beside_its_parts(pools):
    """The devices that stand in the pool of a part of theirs."""
    wrong = []
    for devices in pools.devices.values():
        whole = defaultdict(list)
        for device in devices:
            text = device.subject.text
            if device.type.name in ("gpu", "rdma") and (uuid := text("uuid") or text("pci_address")):
                whole[uuid].append(device.name)
        for device in devices:
            text = device.subject.text
            of = text("gpu_uuid") if device.type.name == "mig" else text("physfn")
            wrong += [(name, device.name) for name in whole.get(of, []) if name != device.name]
    return wrong


PROFILES = some.lists(some.sampled_from(["1g.10gb", "2g.20gb"]), max_size=3)
SPECS = some.builds(
    NodeSpec,
    fpga=some.lists(
        some.builds(FpgaSpec, driver=some.sampled_from(["dfl", "opae"]), vfs=some.sampled_from([0, 2])), max_size=2
    ),
    nvidia=some.none()
    | some.builds(
        NvidiaSpec,
        gpus=some.integers(1, 4),
        numa_nodes=some.integers(0, 2),
        nvml=some.booleans(),
        mig=some.lists(some.none() | PROFILES, max_size=4),
        uninitialised=some.lists(some.integers(0, 3), max_size=2, unique=True),
    ),
    amd=some.lists(
        some.builds(
            AmdSpec,
            model=some.sampled_from(["vega10", "mi210", "mi300x", "mi308x"]),
            cards=some.integers(1, 2),
            numa_nodes=some.integers(0, 2),
            compute_partition=some.sampled_from(["SPX", "CPX"]),
            driver=some.sampled_from(["amdgpu", "amdgpu", "vfio-pci"]),
        ),
        max_size=2,
    ),
    intel_gpu=some.lists(
        some.builds(
            IntelGpuSpec,
            driver=some.sampled_from(["i915", "xe"]),
            cards=some.integers(1, 2),
            vfs=some.sampled_from([0, 2]),
            vf_driver=some.sampled_from(["own", "vfio-pci"]),
            numa_nodes=some.integers(0, 1),
        ),
        max_size=2,
    ),
    xilinx_fpga=some.lists(
        some.builds(XilinxFpgaSpec, management=some.booleans(), serial_number=some.booleans()), max_size=2
    ),
    rdma=some.lists(
        some.builds(RdmaSpec, vfs=some.sampled_from([0, 2]), link_layer=some.sampled_from(["InfiniBand", "Ethernet"])),
        max_size=2,
    ),
    usb=some.just([UsbSpec(vendor="1a86", product="7523", function="serial")]),
    devices=some.just([DeviceSpec(path="/dev/kvm", number="10:232")]),
)
KVM = [{"name": "devic.es/kvm", "groups": [{"count": 10, "paths": [{"path": "/dev/kvm"}]}]}]
CONFIGS = some.fixed_dictionaries(
    {
        "vendors": some.fixed_dictionaries(
            {
                "nvidia": some.fixed_dictionaries({"mig_strategy": some.sampled_from(["none", "single", "mixed"])}),
                "amd": some.fixed_dictionaries({"naming": some.sampled_from(["single", "mixed"])}),
                "intel_gpu": some.fixed_dictionaries(
                    {"shared_devices": some.sampled_from([1, 3]), "monitoring": some.sampled_from([False, "single"])}
                ),
                "intel_fpga": some.fixed_dictionaries({"mode": some.sampled_from(["af", "region"])}),
                "rdma": some.fixed_dictionaries({"mode": some.sampled_from(["device", "sriov"])}),
            }
        ),
        "generic": some.just([*KVM, {"name": "example.com/kvm", "groups": KVM[0]["groups"]}]),
        "resources": some.sampled_from(
            [[], [{"match": {"numa_node": "0"}, "name": "example.com/near", "sharing": {"replicas": 3}}]]
        ),
    }
)


@settings(max_examples=25, deadline=None)
@given(SPECS, CONFIGS)
def test_the_devices_of_a_type_are_even_on_any_host_and_none_stands_beside_its_parts(spec, config):
    """Under any modes and rules; names are labels, each once, slices short, versions semver."""
    with tempfile.TemporaryDirectory() as directory:
        root = SimulatedNode.create(Path(directory) / "node", spec).root
        pools, classes, _ = published(root, config)
    is_even(slices_of(pools, NODE))
    assert beside_its_parts(pools) == []
    devices = [device for each in pools.devices.values() for device in each]
    for made in classes:
        if made.extended_resource_name and made.extended_resource_name not in ("nvidia.com/gpu", "amd.com/gpu"):
            selected = {device.subject.resource_name for device in devices if made.selects(device)}
            assert selected == {made.extended_resource_name}


KINDS = {one.name: one.kind for one in facts()}
VALUES = {
    "text": some.sampled_from(["", "a", "b c (d)", "x" * 64, "y" * 65, "é" * 33]),
    "number": some.integers(-1, 2**40).map(str),
    "boolean": some.sampled_from(["true", "false"]),
    "version": some.sampled_from(["8.0", "570.195.03", "6.19.14.31400000", "1.2.3-rc1+x", "new", "٣.1", "1" * 70]),
}


def value_of(name):
    """A value of the fact's kind, with the kind."""
    return VALUES[KINDS[name]].map(lambda value: (KINDS[name], value))


FACTS = some.lists(some.sampled_from(sorted(KINDS)), max_size=40, unique=True).flatmap(
    lambda names: some.fixed_dictionaries({name: value_of(name) for name in names})
)
MINIMAL = {
    name: ("number" if KINDS[name] == "number" else "text", value)
    for name, value in {
        "minor": "0", "card_minor": "1", "render_minor": "128", "pci_address": "0000:01:00.0", "device_id": "0x1234",
        "ibdev": "mlx5_0",
    }.items()
}  # fmt: skip


@some.composite
def entries(draw):
    """Devices of one vendor with any facts, known and awaited; most have what a name takes."""
    vendor = draw(some.sampled_from(sorted(TYPES)))
    made = []
    for number in range(draw(some.integers(1, 5))):
        known = {**(MINIMAL if draw(some.booleans()) else {}), **draw(FACTS)}
        device = Device(
            vendor=vendor,
            card=f"card {number}",
            id=draw(some.sampled_from([f"id-{number}", f"Id_{number}", "same", "_", "z" * 70])),
            resource_name=draw(some.sampled_from(["example.com/a", f"example.com/{'b' * 63}"])),
            facts={name: Fact(kind, value, "/file") for name, (kind, value) in known.items()},
            awaited=draw(some.sets(some.sampled_from(["brand", "memory_bytes"]), max_size=1)),
        )
        made.append(Entry(device, device.resource_name))
    return made


@settings(max_examples=300, deadline=None)
@given(entries(), some.lists(some.text(max_size=80), max_size=20, unique=True))
def test_devices_with_any_facts_are_published_evenly_or_withheld_with_a_reason(found, reasons):
    """None is lost, and none is published before what its table uses is known."""
    config = resolve(Config())
    key = found[0].key
    pools = pools_of(arrange(config, found, "cdi"), {key: Verdict(tuple(sorted(reasons)))})
    count = is_even(slices_of(pools, NODE))
    keys = {entry.key for entry in found}
    assert count + len(pools.withheld) == len(keys)
    assert all(pools.withheld.values())
    awaiting = {entry.key for entry in found if entry.device.awaited}
    for devices in pools.devices.values():
        assert not {device.key for device in devices if device.type.driver == "gpu.nvidia.com"} & awaiting
