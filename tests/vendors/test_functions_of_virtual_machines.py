"""Physical functions whose virtual functions all belong to virtual machines: the reason is true, and a rule counts."""

from pathlib import Path
from typing import Any

import pytest

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.scanner.observer import Observer
from devherd.scanner.once import ScanReport, scan_once
from devherd_sim.node.intel_gpu import IntelGpuSpec
from devherd_sim.node.rdma import RdmaSpec
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec

ADDRESS = "0000:01:00.0"
NODES = {
    "an Intel GPU": (
        lambda driver: NodeSpec(intel_gpu=[IntelGpuSpec(driver="i915", vfs=3, vf_driver=driver)]),
        {"vendors": {}},
        "gpu.intel.com/i915",
    ),
    "an RDMA card": (
        lambda driver: NodeSpec(rdma=[RdmaSpec(vfs=3, vf_driver=driver)]),
        {"vendors": {"rdma": {"mode": "sriov"}}},
        "rdma/hca",
    ),
}
INSTEAD = "its virtual functions are offered instead"
ELSEWHERE = (
    "its virtual functions are under vfio-pci, and no devices here: a rule of `resources` that names its"
    " `pci_address` offers it"
)


@pytest.fixture(params=NODES)
def kind(request: pytest.FixtureRequest) -> str:
    """A vendor that leaves physical functions with virtual ones out, as its plugin does."""
    return request.param


def report(root: Path, kind: str, driver: str, **more: Any) -> ScanReport:
    spec, config, _ = NODES[kind]
    SimulatedNode.create(root, spec(driver))
    return scan_once(resolve(Config.model_validate({"host_root": root, **config, **more})))


def rule(**match: Any) -> dict[str, Any]:
    return {"resources": [{"match": match, "name": "example.com/physical"}]}


def offered(found: ScanReport) -> dict[str, int]:
    return {offer.name: len(offer.devices) for offer in found.offers}


def reasons(found: ScanReport) -> list[str]:
    return [why for entry in found.inventory.entries.values() for why in entry.left_out.values()]


def test_a_physical_function_whose_virtual_ones_are_devices_here_gives_way_to_them(kind: str, tmp_path: Path) -> None:
    """Also where a rule names it: the virtual functions are what was divided for containers."""
    found = report(tmp_path, kind, "own")
    assert (offered(found), reasons(found)) == ({NODES[kind][2]: 3}, [INSTEAD])
    found = report(tmp_path, kind, "own", **rule(pci_address=ADDRESS))
    assert (offered(found), reasons(found)) == ({NODES[kind][2]: 3}, [INSTEAD])


def test_a_physical_function_whose_virtual_ones_are_elsewhere_is_left_out_for_that_reason(
    kind: str, tmp_path: Path
) -> None:
    """Defect: it was said that they are offered instead, while vfio-pci had them."""
    found = report(tmp_path, kind, "vfio-pci")
    assert (offered(found), reasons(found)) == ({}, [ELSEWHERE])


def test_a_rule_that_names_it_offers_it(kind: str, tmp_path: Path) -> None:
    """Defect: no rule changed anything, and nothing told so. Only a rule that means it counts, not one for all."""
    found = report(tmp_path, kind, "vfio-pci", **rule(pci_address=ADDRESS))
    assert (offered(found), reasons(found), found.config_warnings) == ({"example.com/physical": 1}, [], [])
    vendor = found.offers[0].vendor.replace("-", "_")
    found = report(tmp_path, kind, "vfio-pci", **rule(vendor=vendor))
    assert (offered(found), reasons(found)) == ({}, [ELSEWHERE])


def test_a_rule_that_only_matches_what_is_left_out_gives_a_warning_with_the_reason(kind: str, tmp_path: Path) -> None:
    """Defect: `config check` was silent."""
    found = report(tmp_path, kind, "own", **rule(pci_address=ADDRESS))
    [warning] = found.config_warnings
    assert f"matches only {ADDRESS}, which is left out: {INSTEAD} — remove the rule" in warning


def test_a_rule_counts_from_the_reload_that_brings_it(kind: str, tmp_path: Path) -> None:
    """And no longer than it is there."""
    spec, config, _ = NODES[kind]
    SimulatedNode.create(tmp_path, spec("vfio-pci"))
    without = resolve(Config.model_validate({"host_root": tmp_path, **config}))
    named = resolve(Config.model_validate({"host_root": tmp_path, **config, **rule(pci_address=ADDRESS)}))
    observer = Observer(without)
    left_out = {"device-plugin": ELSEWHERE}
    for place, (given, expected) in enumerate([(without, [left_out]), (named, [{}]), (without, [left_out])]):
        observer.reconfigure(given)
        observer.scan(float(place))
        assert [entry.left_out for entry in observer.inventory.entries.values()] == expected
