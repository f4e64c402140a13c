"""With DRA, a device that is gone stays listed as long as a claim has it: its CDI spec and its taint stay, too."""

import shutil

import pytest

from devherd import spool
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.dra.pools import pools_of
from devherd.inventory import CDI
from devherd.proto import spool_pb2
from devherd.reasons.registry import GONE
from devherd.scanner.observer import HOLDERS, Observer
from devherd_sim.node import faults
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode

DRIVER, FIRST, SECOND = "gpu.amd.com", "gpu-0-128", "gpu-1-129"


def prepared(*devices, driver=DRIVER):
    """The records of claims for these devices."""
    claims = [
        spool_pb2.PreparedClaim(
            driver=driver,
            uid=f"uid-{device}",
            namespace="default",
            name=device,
            devices=[spool_pb2.PreparedDevice(pool="node-1", device=device)],
        )
        for device in devices
    ]
    return spool_pb2.PreparedClaims(claims=claims)


@pytest.fixture
def watched(tmp_path):
    """An observer whose first GPU is gone since second 2; its key; the file of claims."""
    node = SimulatedNode.create(tmp_path / "node", preset("amd-8"))
    claims = tmp_path / "claims.pb"
    config = resolve(Config.model_validate({"host_root": str(node.root), "front_end": "dra"}))
    observer = Observer(config, holders=tmp_path / "holders.pb", claims=claims)
    observer.scan(1.0)
    published = pools_of(observer.offering.without_health().offers, {}).devices[DRIVER]
    [key] = [one.key for one in published if one.name == FIRST]
    entry = observer.inventory.entries[key]
    names = observer.offering.edits_of(entry, entry.resource_name, way=CDI).cdi_devices
    faults.inject(node, "remove", key[2])
    observer.scan(2.0)
    observer.poll(periodic=False)
    assert observer.policy.verdicts()[key].reasons == (GONE,)
    return observer, key, claims, names


def is_there(observer, clock, key):
    """Whether a scan at this second keeps the device, and its spec on the host."""
    observer.scan(clock)
    return key in observer.inventory.entries


def specs(observer):
    """All text of the specs."""
    return "".join(path.read_text() for path in observer.config.cdi_directory.glob("*.json"))


def test_a_gone_device_stays_while_a_claim_has_it_and_goes_with_the_last(watched):
    """However long that is; without a claim as long as any other."""
    observer, key, claims, names = watched
    [name] = [each.rpartition("=")[2] for each in names if each.rpartition("=")[2] in specs(observer)][:1]
    late = 3.0 + observer.config.health.forget_after
    spool.write(claims, prepared(FIRST, SECOND))
    assert is_there(observer, late, key)
    assert is_there(observer, 10 * late, key)
    assert f'"{name}"' in specs(observer)
    assert HOLDERS not in observer.requests
    spool.write(claims, prepared(SECOND))
    assert not is_there(observer, 10 * late + 1, key)
    assert f'"{name}"' not in specs(observer)


@pytest.mark.parametrize("others", [None, prepared(SECOND), prepared(FIRST, driver="x.y")])
def test_claims_of_other_devices_keep_none(watched, others):
    """Nor does a driver of another name."""
    observer, key, claims, _ = watched
    if others is not None:
        spool.write(claims, others)
    forget_after = observer.config.health.forget_after
    assert is_there(observer, 1.0 + forget_after, key)
    assert not is_there(observer, 2.0 + forget_after, key)


def test_records_that_cannot_be_read_keep_every_gone_device(watched):
    """Until they can be: a claim may have it."""
    observer, key, claims, _ = watched
    late = 2.0 + observer.config.health.forget_after
    for damaged in (b"\xff\xff", b""):
        claims.write_bytes(damaged)
        assert is_there(observer, late, key)
    claims.unlink()
    assert not is_there(observer, late + 1, key)


@pytest.mark.parametrize("half", ["drm", "drm/card0", "drm/renderD128", "numa_node", "vendor"])
def test_a_held_device_stays_published_though_a_scan_read_half_of_its_card_during_the_removal(tmp_path, half):
    """Its name is made of facts that the half lacks. It is tainted, and its spec stays."""
    node = SimulatedNode.create(tmp_path / "node", preset("amd-8"))
    config = resolve(Config.model_validate({"host_root": str(node.root), "front_end": "dra"}))
    observer = Observer(config)
    observer.scan(1.0)
    held = {(DRIVER, FIRST)}
    [before] = [each for each in published(observer, held) if each.name == FIRST]
    path = (node.root / "sys/bus/pci/devices" / before.key[2] / half).resolve()
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    observer.scan(2.0)
    faults.inject(node, "remove", before.key[2])
    observer.scan(3.0)
    observer.poll(periodic=False)
    [gone] = [each for each in published(observer, held) if each.name == FIRST]
    assert gone.taints
    assert (gone.key, gone.attributes, gone.capacities) == (before.key, before.attributes, before.capacities)


def published(observer, held):
    """The devices of the pool."""
    return pools_of(observer.offering.without_health().offers, observer.policy.verdicts(), held).devices[DRIVER]
