"""`<run-dir>/counts.pb`: what sources of the scan core read that is no finding, for metrics."""

import json
import time

import pytest

from devherd import spool
from devherd.config.loader import load, resolve
from devherd.proto import health_pb2
from devherd.scanner.files import ScannerFiles
from devherd_sim.node import faults
from devherd_sim.node.presets import preset
from devherd_sim.node.rdma import HARDWARE_COUNTERS, LINK_COUNTERS
from devherd_sim.node.simulated_node import SimulatedNode


class Scanner:
    """Rounds over a node."""

    def __init__(self, directory, name: str) -> None:
        self.node = SimulatedNode.create(directory / "host", preset(name))
        (directory / "run/offers/device-plugin").mkdir(parents=True)
        file = directory / "config.yaml"
        file.write_text(json.dumps({"host_root": str(directory / "host")}))
        config = resolve(load({"config": str(file), "run_dir": str(directory / "run")}, {}))
        self.settings = config.settings()
        self.files = ScannerFiles(config, self.settings)

    def look(self) -> None:
        """A scan, which begins all looks anew, and a poll."""
        self.files.observer.scan(time.monotonic())
        self.files.observer.poll(periodic=False)
        self.files.publish()

    def counts(self) -> dict[tuple[str, ...], int]:
        """By RDMA device, part, name and kind."""
        told = spool.read(self.settings.counts_file, health_pb2.Counts).counts
        return {(one.ibdev, one.part, one.name, one.kind): one.number for one in told}


@pytest.fixture
def rdma(tmp_path):
    """Two RDMA devices."""
    return Scanner(tmp_path, "rdma-2")


def test_each_counter_of_each_port_is_there_after_the_first_look(rdma):
    """What the card counted before devherd looked included."""
    faults.inject(rdma.node, "rdma-counter", "mlx5_1", "symbol_error 40")
    rdma.look()
    counts = {key: number for key, number in rdma.counts().items() if key[2] == "rdma-errors"}
    assert counts.keys() == {
        (device, "1", "rdma-errors", kind)
        for device in ("mlx5_0", "mlx5_1")
        for kind in (*LINK_COUNTERS, *HARDWARE_COUNTERS)
    }
    assert {key[0]: number for key, number in counts.items() if key[3] == "symbol_error"} == {"mlx5_0": 0, "mlx5_1": 40}


def test_a_file_that_could_not_be_written_is_written_with_the_next_round(rdma, monkeypatch):
    """The numbers are read once a minute: they must not be lost with a full disk."""

    def full(path, message):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(spool, "write", full)
    rdma.look()
    monkeypatch.undo()
    rdma.files.publish()
    assert rdma.counts()


def test_nothing_is_written_while_nothing_else_is_counted(rdma):
    """A poll each second costs no file, though each of them may read another card's numbers."""
    rdma.look()
    rdma.settings.counts_file.unlink()
    for _ in range(60):
        rdma.files.observer.poll(periodic=True)
        rdma.files.publish()
    assert not rdma.settings.counts_file.exists()
    faults.inject(rdma.node, "rdma-counter", "mlx5_1", "symbol_error 40")
    for _ in range(60):
        rdma.files.observer.poll(periodic=True)
        rdma.files.publish()
    assert rdma.counts()["mlx5_1", "1", "rdma-errors", "symbol_error"] == 40


def test_both_ends_of_a_link_tell_their_pci_errors_and_a_poll_without_another_writes_nothing(rdma):
    """While the kernel log is read they are read with each tenth poll, and nearly always say what they said before."""
    function = min(each.name for each in (rdma.node.root / "sys/bus/pci/drivers/mlx5_core").glob("*:*:*.*"))
    port = rdma.node.functions.path_of(function).parent.name
    for place, kind in ((function, "fatal 2"), (port, "correctable 3")):
        faults.inject(rdma.node, "aer", place, kind)
    rdma.look()
    told = spool.read(rdma.settings.counts_file, health_pb2.Counts).counts
    errors = {
        (one.part, one.kind): one.number for one in told if (one.pci_address, one.name) == (function, "pci-errors")
    }
    kinds = ("correctable", "nonfatal", "fatal")
    expected = {(end, kind): 0 for end in ("device", "port") for kind in kinds}
    assert errors == expected | {("device", "fatal"): 2, ("port", "correctable"): 3}
    rdma.settings.counts_file.unlink()
    for _ in range(10):
        rdma.files.observer.poll(periodic=True)
        rdma.files.publish()
    assert not rdma.settings.counts_file.exists()
    faults.inject(rdma.node, "aer", function, "fatal")
    for _ in range(10):
        rdma.files.observer.poll(periodic=True)
        rdma.files.publish()
    told = spool.read(rdma.settings.counts_file, health_pb2.Counts).counts
    assert [one.number for one in told if (one.pci_address, one.part, one.kind) == (function, "device", "fatal")] == [3]


def test_an_amd_gpu_has_those_of_its_blocks(tmp_path):
    """Of the card by its address, not of an RDMA device."""
    amd = Scanner(tmp_path, "amd-8")
    gpu = min(each.name for each in (amd.node.root / "sys/bus/pci/drivers/amdgpu").glob("*:*:*.*"))
    faults.inject(amd.node, "ras", gpu, "umc 3")
    amd.look()
    told = spool.read(amd.settings.counts_file, health_pb2.Counts).counts
    assert {
        (one.pci_address, one.part, one.kind): one.number for one in told if (one.pci_address, one.part) == (gpu, "umc")
    } == {
        (gpu, "umc", "uncorrected"): 3,
        (gpu, "umc", "corrected"): 0,
    }
