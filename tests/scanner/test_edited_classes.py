"""A class that is edited while devherd runs: what is in use stays, and other classes notice nothing."""

import pytest
from class_trees import accelerators, misc, written
from remembered import remembered

from devherd import spool
from devherd.config.loader import resolve, valid
from devherd.process import HOLDERS
from devherd.proto import spool_pb2
from devherd.scanner.observer import Observer

KVM, NPU = ("classes", "kvm", "kvm"), ("classes", "0000:00:0b.0", "accel0-0")


def config_of(root, classes):
    """The configuration in force with these classes."""
    return resolve(valid("c.yaml", f"host_root: {root}\nclasses: {classes}\n"))


BOTH = "{define: {kvm: {find: {class: misc, name: kvm}, plugin: {resource: a.b/kvm}}}, enable: intel-npu}"
NARROWED = BOTH.replace("name: kvm}", "name: kvm, attr: {none: x}}")
RENAMED = BOTH.replace("a.b/kvm", "a.b/other")


@pytest.fixture
def root(tmp_path):
    """A host with two devices of different classes."""
    return written(tmp_path / "host", accelerators(), misc({"kvm": "kvm"}))


def observer(root, tmp_path, **known):
    """Both are found."""
    holders = tmp_path / "holders.pb"
    made = Observer(config_of(root, BOTH), holders=holders, **known)
    made.scan(0.0)
    made.poll(periodic=True)
    return made, holders


def offered(observer):
    """Resource → ids."""
    return {
        offer.name: [device.entry.device.id for device in offer.devices]
        for offer in observer.offering.without_health().offers.offers
    }


def test_a_device_that_an_edited_class_still_finds_only_changes_its_resource(root, tmp_path):
    """As under a rule that changes."""
    one, _ = observer(root, tmp_path)
    before = one.inventory.entries[KVM].found_since

    one.reconfigure(config_of(root, RENAMED))
    one.scan(1.0)

    assert offered(one) == {"a.b/other": ["kvm"], "npu.intel.com/accel": ["accel0-0"]}
    assert one.inventory.entries[KVM].found_since == before
    assert HOLDERS not in one.requests


@pytest.mark.parametrize("edited", [NARROWED, "{enable: intel-npu}"])
def test_a_device_that_an_edited_class_no_longer_finds_stays_while_a_pod_holds_it(root, tmp_path, edited):
    """Whether the class finds less or is gone. It is not lost: somebody wanted it so."""
    one, holders = observer(root, tmp_path)

    one.reconfigure(config_of(root, edited))
    one.scan(1.0)
    one.poll(periodic=True)
    assert HOLDERS in one.requests
    assert offered(one)["a.b/kvm"] == ["kvm"]

    held = spool_pb2.Holders()
    held.devices.add(resource_name="a.b/kvm", device_id="kvm", pods=["default/vm"])
    spool.write(holders, held)
    one.scan(10_000.0)
    assert offered(one)["a.b/kvm"] == ["kvm"]
    assert not one.gone.lost

    spool.write(holders, spool_pb2.Holders())
    one.scan(10_001.0)
    assert offered(one) == {"npu.intel.com/accel": ["accel0-0"]}
    one.scan(10_002.0)
    assert not one.gone.lost
    assert one.inventory.entries[NPU].gone_since is None


def test_a_scanner_that_restarts_meanwhile_still_knows_that_the_class_was_edited(root, tmp_path):
    """Otherwise it would miss a device that nobody wants any more."""
    one, holders = observer(root, tmp_path)
    one.reconfigure(config_of(root, "{enable: intel-npu}"))
    one.scan(1.0)

    later = Observer(config_of(root, "{enable: intel-npu}"), inventory=remembered(one), holders=holders)
    spool.write(holders, spool_pb2.Holders())
    later.scan(2.0)

    assert offered(later) == {"npu.intel.com/accel": ["accel0-0"]}
    assert not later.gone.lost


def test_a_device_of_another_class_that_has_gone_stays_listed_when_a_class_is_edited(root, tmp_path):
    """Each class is configured by itself."""
    one, _ = observer(root, tmp_path)
    (root / "sys/class/accel/accel0").unlink()
    one.scan(1.0)

    one.reconfigure(config_of(root, RENAMED))
    one.scan(2.0)

    assert one.inventory.entries[NPU].gone_since == 1.0
