"""The pools from the scanner's two files are those that `devherd scan --as dra` shows, whatever the files have seen."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from publishing import NODE

from devherd import spool
from devherd.cli import scan_dra
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.dra.objects import slices_of
from devherd.dra.pool_files import PoolFiles, offers_from
from devherd.dra.pools import pools_of
from devherd.inventory import key_of
from devherd.offers import rules
from devherd.proto import devices_pb2, spool_pb2
from devherd.scanner.loop import first_scan
from devherd.scanner.once import scan_once
from devherd_sim.node.presets import PRESETS, preset
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.tree import write_tree

TREES = Path(__file__).parents[1] / "vendors/trees"
RULES = [
    {"match": {"vendor": "nvidia", "index": "0"}, "name": "example.com/first"},
    {"match": {"vendor": "amd"}, "sharing": {"replicas": 3}},
    {"match": {"vendor": "rdma"}, "advertise": False, "optional": True},
]


def scanner(root, run_dir, **more):
    """What a scanner writes of this tree for DRA, and its settings."""
    run_dir.mkdir(exist_ok=True)
    config = resolve(
        Config.model_validate({"host_root": str(root), "run_dir": str(run_dir), "front_end": "dra", **more})
    )
    first_scan(config)
    return config


def written(settings):
    """The offers of the file."""
    return spool.read(settings.offers_file, spool_pb2.Offers)


def shown(config):
    """The slices of `devherd scan --as dra`, and why devices are not in them."""
    report = scan_once(config)
    offers, _ = offers_from(report.inventory.entries, report.offers)
    pools = pools_of(offers, scan_dra._verdicts(report))
    return [*slices_of(pools, NODE)], pools.withheld


def as_in_files(config):
    """The same from the scanner's files."""
    files = PoolFiles(config.settings())
    assert files.look()
    return [*slices_of(files.pools, NODE)], files.pools.withheld


def from_rules(config):
    """The same without any encoding."""
    report = scan_once(config)
    pools = pools_of(rules.arrange(config, report.inventory.entries.values(), "cdi"), report.judged)
    return [*slices_of(pools, NODE)], pools.withheld


@pytest.mark.parametrize("more", [{}, {"resources": RULES}], ids=["alone", "with rules"])
@pytest.mark.parametrize("name", sorted(PRESETS))
def test_the_pools_of_each_simulated_node_are_those_of_scan_as_dra(name, more, tmp_path):
    """And no file has a device that the device plugin would serve, nor an offer that a resource child would read."""
    root = SimulatedNode.create(tmp_path / "node", preset(name)).root
    config = scanner(root, tmp_path / "run", **more)
    assert as_in_files(config) == shown(config) == from_rules(config)
    assert not spool.keys_in(config.settings().resources_directory)
    assert {offer.front_end for offer in written(config.settings()).offers} <= {"dra"}


@pytest.mark.parametrize("tree", sorted(path.name for path in TREES.glob("*.tree")))
def test_the_pools_of_each_tree_are_those_of_scan_as_dra(tree, tmp_path):
    """As the kernel lays devices out, not as the simulated node does."""
    (tmp_path / "node").mkdir()
    write_tree((TREES / tree).read_text(), tmp_path / "node")
    config = scanner(tmp_path / "node", tmp_path / "run")
    assert as_in_files(config) == shown(config) == from_rules(config)


def test_each_device_of_the_pools_has_the_edits_of_its_cdi_specs(tmp_path):
    """The ids name specs that are there before the offers; the pools know each device by its name, too."""
    root = SimulatedNode.create(tmp_path / "node", preset("amd-8")).root
    config = scanner(root, tmp_path / "run")
    files = PoolFiles(config.settings())
    files.look()
    devices = files.pools.devices["gpu.amd.com"]
    assert len(devices) == len(files.edits) == 8
    specs = "".join(path.read_text() for path in config.cdi_directory.glob("*.json"))
    for device in devices:
        assert files.device("gpu.amd.com", device.name) == device
        for name in files.edits[device.key].cdi_devices:
            assert f'"{name.rpartition("=")[2]}"' in specs
    assert files.device("gpu.amd.com", "gpu-none") is None
    assert files.device("gpu.nvidia.com", devices[0].name) is None


def test_a_sick_device_has_its_taint_and_is_new_once(tmp_path):
    """A look finds nothing new until a file changes."""
    node = SimulatedNode.create(tmp_path / "node", preset("intel-gpu-2"))
    config = scanner(node.root, tmp_path / "run")
    files = PoolFiles(config.settings())
    assert (files.look(), files.look()) == (True, False)
    (node.root / "dev/dri/card1").unlink()
    first_scan(config)
    assert (files.look(), files.look()) == (True, False)
    assert [bool(device.taints) for device in files.pools.devices["gpu.intel.com"]] == [False, True]
    first_scan(config)
    assert not files.look()


def test_files_of_different_moments_leave_the_pools_as_they_were_until_both_agree(tmp_path):
    """The scanner writes the devices first; whoever looks in between sees what was."""
    root = SimulatedNode.create(tmp_path / "node", preset("amd-8")).root
    settings = scanner(root, tmp_path / "run").settings()
    devices = spool.read(settings.devices_file, devices_pb2.Inventory)
    offers = written(settings)
    files = PoolFiles(settings)
    files.look()
    before = files.pools
    fewer = devices_pb2.Inventory(devices=devices.devices[:-1])
    spool.write(settings.devices_file, fewer)
    assert not files.look()
    assert files.pools is before
    del offers.offers[0].devices[-1]
    spool.write(settings.offers_file, offers)
    assert files.look()
    assert len(files.pools.devices["gpu.amd.com"]) == 7
    early = PoolFiles(settings)
    spool.write(settings.devices_file, devices_pb2.Inventory(devices=devices.devices[:1]))
    assert not early.look()
    assert early.pools is None


@pytest.mark.parametrize("content", [None, b"", b"\xff\xff"], ids=["removed", "empty", "torn"])
@pytest.mark.parametrize("which", ["devices_file", "offers_file"])
def test_a_file_that_cannot_be_read_leaves_the_pools_and_comes_back(which, content, tmp_path):
    """No pool is taken for empty."""
    root = SimulatedNode.create(tmp_path / "node", preset("amd-1")).root
    config = scanner(root, tmp_path / "run")
    settings = config.settings()
    files, none = PoolFiles(settings), PoolFiles(settings)
    files.look()
    before = files.pools
    path = getattr(settings, which)
    good = path.read_bytes()
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert not files.look()
    assert files.pools is before
    assert not none.look()
    assert none.pools is None
    path.write_bytes(good)
    assert not files.look()
    assert none.look()


def test_the_offers_of_the_device_plugin_are_no_pools(tmp_path):
    """A run directory from before another start: its devices are not published."""
    root = SimulatedNode.create(tmp_path / "node", preset("amd-1")).root
    settings = scanner(root, tmp_path / "run", front_end="device_plugin").settings()
    assert spool.keys_in(settings.resources_directory) == {"amd.com_gpu"}
    files = PoolFiles(settings)
    assert files.look()
    assert (files.pools.devices, files.edits) == ({}, files.edits)
    assert not any(files.pools.devices.values())
    config = scanner(root, tmp_path / "run")
    assert spool.keys_in(settings.resources_directory) == set()
    assert files.look()
    assert as_in_files(config) == shown(config)


def test_ten_thousand_shares_of_a_device_are_no_problem_of_a_list_that_nobody_sends(tmp_path):
    """The kubelet's limit is on the device plugin's messages."""
    root = SimulatedNode.create(tmp_path / "node", preset("amd-8-cpx")).root
    shared = {"resources": [{"match": {"vendor": "amd"}, "sharing": {"replicas": 10_000}}]}
    config = scanner(root, tmp_path / "run", **shared)
    assert not spool.read(config.settings().scan_file, spool_pb2.ScanSummary).problems
    slices, _ = as_in_files(config)
    assert {device["capacity"]["shares"]["value"] for made in slices for device in made["spec"]["devices"]} == {"10k"}


@given(steps=st.lists(st.sampled_from(["reload", "sick", "well"]), max_size=6))
@hypothesis_settings(deadline=None, max_examples=8)
def test_after_any_changes_the_pools_are_those_of_a_look_at_the_node(steps, tmp_path_factory):
    """Hot plug, health, rules: a reader that saw every version has what a new one has."""
    directory = tmp_path_factory.mktemp("node")
    node = SimulatedNode.create(directory / "node", preset("amd-8"))
    more, card = {}, node.root / "dev/dri/card1"
    config = scanner(node.root, directory / "run")
    files = PoolFiles(config.settings())
    for step in steps:
        if step == "sick":
            card.unlink(missing_ok=True)
        elif step == "well":
            SimulatedNode.create(directory / "node", preset("amd-8"))
        elif step == "reload":
            more = {} if more else {"resources": RULES}
        config = scanner(node.root, directory / "run", **more)
        files.look()
        fresh = PoolFiles(config.settings())
        fresh.look()
        assert [*slices_of(files.pools, NODE)] == [*slices_of(fresh.pools, NODE)]
        assert files.edits == fresh.edits
        keys = {key_of(device) for offer in written(config.settings()).offers for device in offer.devices}
        assert {one.key for devices in files.pools.devices.values() for one in devices} <= keys
        assert not spool.keys_in(config.settings().resources_directory)


def test_a_device_whose_cdi_spec_cannot_be_written_is_tainted(tmp_path):
    """A container could not start with it."""
    root = SimulatedNode.create(tmp_path / "node", preset("intel-gpu-2")).root
    directory = root / "var/run/cdi"
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.write_text("in the way")
    files = PoolFiles(scanner(root, tmp_path / "run").settings())
    files.look()
    taints = {taint for device in files.pools.devices["gpu.intel.com"] for taint in device.taints}
    assert taints == {"devherd.io/cdi-unwritable"}


def test_a_restarted_scanner_says_nothing_again_of_devices_that_dra_has(tmp_path, caplog):
    """Its predecessor has logged them; the counters go on, too."""
    root = SimulatedNode.create(tmp_path / "node", preset("intel-gpu-2")).root
    (root / "dev/dri/card1").unlink()
    with caplog.at_level("INFO", "devherd.scanner"):
        config = scanner(root, tmp_path / "run")
        assert len([one for one in caplog.messages if " is Unhealthy" in one]) == 1
        before = written(config.settings())
        caplog.clear()
        scanner(root, tmp_path / "run")
    assert [one for one in caplog.messages if " is Unhealthy" in one] == []
    assert written(config.settings()) == before
