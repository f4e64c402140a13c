"""The vendor table of the scan core, and what is written by hand beside it."""

import json

import pytest

from devherd._native import Device, Scanner, facts, vendors
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.config.vendors import Vendors
from devherd.inventory import Entry
from devherd.offers import rules
from devherd_sim.node.presets import PRESETS, preset
from devherd_sim.node.simulated_node import SimulatedNode

NAMED_AT_THE_TOP = ("classes", "generic", "simulated")


def test_every_row_has_its_section_in_the_configuration():
    """And no section is without a row."""
    assert [row.section for row in vendors()] == [*Vendors.model_fields, *NAMED_AT_THE_TOP]


def test_the_scan_core_takes_every_option_that_the_models_give_and_no_other(tmp_path):
    """It has no defaults: one that is missing is refused as one that it does not know."""
    settings = json.loads(Config().native_json())
    assert list(settings["vendors"]) == [row.section for row in vendors()]
    assert Scanner(str(tmp_path), json.dumps(settings)).scan().vendors == [row.name for row in vendors()]
    for section in Vendors.model_fields:
        options = settings["vendors"][section]
        for change in ({"unheard_of": 1}, {"enabled": None}):
            changed = {key: value for key, value in (options | change).items() if value is not None}
            wrong = settings | {"vendors": settings["vendors"] | {section: changed}}
            with pytest.raises(ValueError, match=r"unknown field `unheard_of`|missing field `enabled`"):
                Scanner(str(tmp_path), json.dumps(wrong))


@pytest.mark.parametrize("section", Vendors.model_fields)
def test_a_vendor_that_is_switched_off_is_not_asked(tmp_path, section):
    """`enabled: false` in the configuration, each by itself."""
    config = Config.model_validate({"vendors": {section: {"enabled": False}}})
    asked = Scanner(str(tmp_path), config.native_json()).scan().vendors
    assert asked == [row.name for row in vendors() if row.section != section]


def preferred(vendor, *, replicas=1, **options):
    """The order of preference of a resource with one device of a vendor."""
    entry = Entry(Device(id="a", vendor=vendor), "a.example/x")
    sections = {vendor.replace("-", "_"): options} if options else {}
    config = {"vendors": sections, "resources": [{"sharing": {"replicas": replicas}}]}
    [offer] = rules.arrange(resolve(Config.model_validate(config)), [entry]).offers
    return offer.preferred.upper()


def test_the_preference_of_each_vendor_is_that_of_its_own_plugin():
    """Alone, shared, and where an option of the plugin says otherwise."""
    found = {row.name: (preferred(row.name), preferred(row.name, replicas=2)) for row in vendors()}
    close = ("ALIGNED", "DISTRIBUTED")
    assert found == {row.name: ("PACKED", "PACKED") for row in vendors()} | {
        "nvidia": close,
        "amd": close,
        "intel-gpu": ("DISTRIBUTED", "DISTRIBUTED"),
    }
    packed = {"shared_devices_allocation_policy": "packed"}
    assert (preferred("nvidia", **packed), preferred("nvidia", replicas=2, **packed)) == ("ALIGNED", "PACKED")
    assert preferred("intel-gpu", allocation_policy="packed") == "PACKED"
    assert preferred("intel-gpu", allocation_policy="balanced") == "DISTRIBUTED"


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_each_fact_of_a_device_is_declared_and_of_its_kind(tmp_path, name):
    """A name has one kind for all vendors, so that whoever publishes attributes can give them types."""
    kinds = {fact.name: fact.kind for fact in facts()}
    SimulatedNode.create(tmp_path, preset(name))
    scan = Scanner(str(tmp_path), resolve(Config()).native_json()).scan()
    assert scan.devices or name == "generic"  # whose devices the configuration names
    found = {(name, fact.kind) for device in scan.devices for name, fact in device.facts.items()}
    assert found <= set(kinds.items())


def test_a_function_is_below_the_root_that_kubernetes_names(tmp_path):
    """`pcie_root` is the first directory below /sys/devices, also behind switches and for virtual functions."""
    SimulatedNode.create(tmp_path, preset("everything"))
    scan = Scanner(str(tmp_path), resolve(Config()).native_json()).scan()
    with_function = [device for device in scan.devices if "pci_address" in device.attributes and device.functions]
    assert len(with_function) > 20
    for device in with_function:
        root = device.attributes.get("pcie_root")
        assert all(function.path.startswith(f"/sys/devices/{root}/") for function in device.functions), device
