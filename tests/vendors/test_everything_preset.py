"""The simulated node with everything: what each vendor's part gives alone, all of them give together."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from amd_host import advertised_by_the_vendors_plugin
from hypothesis import given, settings
from hypothesis import strategies as st
from whole_scan import inventory

from devherd._native import Scanner
from devherd.config.model import Config
from devherd.config.vendors import Vendors
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec

SECTIONS = {"intel_fpga": "fpga"} | {name: name for name in Vendors.model_fields if name != "intel_fpga"}
SPEC = preset("everything")
COUNTS = {
    "amd.com/gpu": 22,
    "amd.com/xilinx_u200_xdma_201830_2-1561465320": 2,
    "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs": 1,
    "fpga.intel.com/af-695.f7d.aVKNtusxV3qMNmj5-qCB9vffQFy9es9yIvFEsLk6zRg": 3,
    "gpu.intel.com/i915": 1,
    "gpu.intel.com/xe": 2,
    "nvidia.com/gpu": 8,
    "rdma/hca": 5,
}


def counts(scan: dict[str, Any]) -> dict[str, int]:
    """Resource name → how many devices."""
    return {resource["name"]: len(resource["devices"]) for resource in scan["resources"]}


def alone(root: Path, vendor: str) -> dict[str, Any]:
    """The scan of one vendor and no other."""
    return inventory(root, **{name: {"enabled": name == vendor} for name in SECTIONS})


def test_the_command_tells_the_devices_of_every_vendor(tmp_path: Path):
    """`devherd scan --output json`, by resource; nobody stands in another's way."""
    SimulatedNode.create(tmp_path, SPEC)
    command = [sys.executable, "-m", "devherd", "scan", "--host-root", str(tmp_path), "--output", "json"]
    printed = json.loads(subprocess.run(command, capture_output=True, check=True, text=True, timeout=60).stdout)
    assert (counts(printed), printed["problems"]) == (COUNTS, [])
    assert {device["health"] for resource in printed["resources"] for device in resource["devices"]} == {"Healthy"}


def test_all_vendors_together_tell_what_each_tells_alone(tmp_path: Path):
    """Whole devices are compared: no vendor's devices look different because others are there."""
    SimulatedNode.create(tmp_path, SPEC)
    one_by_one = [resource for vendor in SECTIONS for resource in alone(tmp_path, vendor)["resources"]]
    assert inventory(tmp_path)["resources"] == sorted(one_by_one, key=lambda resource: resource["name"])


@pytest.mark.parametrize("vendor", SECTIONS)
def test_a_vendors_cards_give_the_same_resources_on_a_node_of_their_own(vendor: str, tmp_path: Path):
    """The other cards of the everything node cost it nothing and add nothing."""
    section = SECTIONS[vendor]
    SimulatedNode.create(tmp_path / "own", NodeSpec.model_validate({section: SPEC.model_dump()[section]}))
    SimulatedNode.create(tmp_path / "shared", SPEC)
    assert counts(inventory(tmp_path / "own")) == counts(alone(tmp_path / "shared", vendor)) != {}


def test_the_amd_gpus_are_those_of_the_vendors_plugin_beside_other_vendors_cards(tmp_path: Path):
    """The DRM devices of NVIDIA, Intel and Xilinx are none of them."""
    SimulatedNode.create(tmp_path, SPEC)
    (gpus,) = alone(tmp_path, "amd")["resources"]
    nodes = {device["id"]: [node["host_path"] for node in device["nodes"]] for device in gpus["devices"]}
    assert nodes == advertised_by_the_vendors_plugin(tmp_path)


def some_vendors(sections: frozenset[str], partitions: str) -> NodeSpec:
    """The everything node with these sections alone, its second kind of AMD GPUs split so."""
    whole, split = SPEC.amd
    amd = [whole, split.model_copy(update={"compute_partition": partitions})]
    told = SPEC.model_dump() | {"amd": [each.model_dump() for each in amd]}
    return NodeSpec.model_validate({section: told[section] for section in sections})


@settings(max_examples=6, deadline=None)
@given(
    st.lists(
        st.tuples(st.frozensets(st.sampled_from(sorted(SECTIONS.values()))), st.sampled_from(["SPX", "CPX"])),
        min_size=2,
        max_size=4,
    )
)
def test_a_scanner_that_has_seen_vendors_come_and_go_tells_what_a_new_one_tells(
    hosts: list[tuple[frozenset[str], str]],
):
    """What is remembered between scans is never what was: devices with all they list, problems, what is unseen."""
    with tempfile.TemporaryDirectory() as directory:
        before, *specs = (some_vendors(*host) for host in hosts)
        node = SimulatedNode.create(Path(directory), before)
        told = Config.model_validate({"host_root": directory}).native_json()
        old = Scanner(directory, told)
        old.scan()
        for spec in specs:
            node.change(before, spec)
            before = spec
            seen, fresh = old.scan(), Scanner(directory, told).scan()
            seen = old.scan() if seen.look_again else seen
            assert (seen.devices, seen.problems, seen.unseen) == (fresh.devices, fresh.problems, fresh.unseen)
