"""Files for Multus: one for each RDMA function that is offered in the way of the SR-IOV plugin."""

import json
import time

import pytest

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.proto import spool_pb2
from devherd.scanner.files import ScannerFiles
from devherd.spool import read_or_empty
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode

DIRECTORY = "var/run/k8s.cni.cncf.io/devinfo/dp"
FUNCTIONS = [f"0000:01:00.{number}" for number in range(1, 5)]


@pytest.fixture
def node(tmp_path):
    """One card with four virtual functions."""
    return SimulatedNode.create(tmp_path / "node", preset("rdma-sriov"))


@pytest.fixture
def configured(node, tmp_path):
    """`configured(mode="sriov")`: the configuration with these options of RDMA devices."""

    def build(**options):
        rdma = {"enabled": True, **options}
        given = {"host_root": node.root, "run_dir": tmp_path / "run", "vendors": {"rdma": rdma}}
        return resolve(Config.model_validate(given | {"resources": [{"match": {"vendor": "rdma"}, "name": "a.b/c_d"}]}))

    return build


def started(config):
    """A scanner after its first round."""
    config.settings().run_dir.mkdir(exist_ok=True)
    work = ScannerFiles(config, config.settings())
    go_round(work)
    return work


def go_round(work):
    work.observer.scan(time.monotonic())
    work.observer.poll(periodic=True)
    work.publish()


def file_of(function):
    return f"a.b-c_d-{function}-device.json"


def test_each_function_has_a_file_as_the_sriov_plugin_writes_it(node, configured):
    """Its name is made of resource and device id, with dashes for slashes; anybody may read it and nobody write."""
    started(configured(mode="sriov"))

    files = {path.name: path for path in (node.root / DIRECTORY).iterdir()}
    assert sorted(files) == [file_of(function) for function in FUNCTIONS]
    path = files[file_of("0000:01:00.2")]
    assert json.loads(path.read_text()) == {
        "type": "pci",
        "version": "1.1.0",
        "pci": {"pci-address": "0000:01:00.2", "rdma-device": "mlx5_2"},
    }
    assert path.stat().st_mode & 0o777 == 0o444


def test_other_modes_have_none(node, configured):
    """Multus asks for PCI functions only."""
    started(configured())

    assert not (node.root / DIRECTORY).exists()


def test_a_file_that_somebody_has_taken_away_is_written_again(node, configured):
    """The plugin removes those of its names when it stops, after devherd has started."""
    work = started(configured(mode="sriov"))
    path = node.root / DIRECTORY / file_of(FUNCTIONS[0])
    before = path.read_text()
    path.unlink()

    go_round(work)

    assert path.read_text() == before


def test_files_go_with_the_resource_and_those_of_others_stay(node, configured):
    """A reload that gives the functions in another way leaves none behind; the plugin may have its own beside them."""
    work = started(configured(mode="sriov"))
    other = node.root / DIRECTORY / "intel.com-net-0000:05:00.1-device.json"
    other.write_text("{}")

    work.observer.reconfigure(configured())
    go_round(work)

    assert [path.name for path in (node.root / DIRECTORY).iterdir()] == [other.name]


def test_a_file_that_cannot_be_written_is_a_problem_and_the_functions_are_offered(node, configured):
    """A pod of devherd without the directory: RDMA works, the pod's network status says less."""
    blocked = node.root / "var/run/k8s.cni.cncf.io"
    blocked.parent.mkdir(parents=True)
    blocked.touch()
    config = configured(mode="sriov")

    work = started(config)

    summary = read_or_empty(config.settings().scan_file, spool_pb2.ScanSummary)
    [problem] = summary.problems
    assert (problem.vendor, problem.path) == ("rdma", "a.b/c_d")
    assert "device.json cannot be written: Not a directory" in problem.error
    [resource] = work.observer.offering.judged(work.observer.policy.verdicts()).offers
    assert [device.id for device in resource.devices] == FUNCTIONS
    assert {tuple(device.reasons) for device in resource.devices} == {()}
