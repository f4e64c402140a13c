"""`health.sources`: a source that is switched off reads nothing, and what it has found is dropped."""

import json

import pytest

from devherd.config.loader import load, resolve
from devherd.reasons.registry import CAN_BE_OFF, MEANINGS
from devherd.scanner.kernel_log import KernelLogReader
from devherd.scanner.observer import Observer
from devherd_sim.node import faults
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode


class Node:
    """A node, and what an observer finds on it."""

    def __init__(self, directory, name: str) -> None:
        self._directory = directory
        self.node = SimulatedNode.create(directory / "host", preset(name))
        self.observer: Observer

    def config(self, *off: str, **health):
        """The configuration with these sources off."""
        file = self._directory / "config.yaml"
        options = {"sources": dict.fromkeys(off, False), **health}
        file.write_text(json.dumps({"host_root": str(self.node.root), "health": options}))
        return resolve(load({"config": str(file), "run_dir": str(self._directory / "run")}, {}))

    def start(self, *off: str, **health) -> "Node":
        """An observer that has looked once."""
        self.observer = Observer(self.config(*off, **health), nvml_answer=self._directory / "nvml.json")
        return self.look()

    def look(self) -> "Node":
        """A scan, and a look at everything."""
        self.observer.scan(0.0)
        self.observer.poll(periodic=False)
        return self

    def words(self) -> list[tuple[str, ...]]:
        """What stands against each device that something stands against."""
        return [(*one.reasons, *one.warnings) for one in self.observer.policy.verdicts().values()]

    def counted(self) -> set[str]:
        """The kinds of what has been counted."""
        return {f"{name} {kind}" for _, _, _, name, kind, _ in self.observer.poller.new_counts() or ()}


def test_counters_of_rdma_devices_are_not_read_where_their_source_is_off(tmp_path):
    """The kernel complains at each read of those of a restricted function."""
    assert "rdma-errors symbol_error" in Node(tmp_path / "on", "rdma-2").start().counted()
    off = Node(tmp_path / "off", "rdma-2").start("rdma-errors").counted()
    assert off == {"pci-errors correctable", "pci-errors fatal", "pci-errors nonfatal"}


def test_a_reload_switches_a_source_off_and_on_and_what_it_found_is_gone_at_once(tmp_path):
    """An event that it has counted is no longer held; others stay. On again, it starts from what is there."""
    node = Node(tmp_path, "rdma-2").start()
    for counter in ("local_link_integrity_errors", "link_downed"):
        faults.inject(node.node, "rdma-counter", "mlx5_0", counter)
    assert node.look().words() == [("link-downed", "link-errors")]
    node.observer.reconfigure(node.config("rdma-errors"))
    assert node.words() == [("link-downed",)]
    faults.inject(node.node, "rdma-counter", "mlx5_0", "local_link_integrity_errors")
    assert node.look().words() == [("link-downed",)]
    node.observer.reconfigure(node.config())
    faults.inject(node.node, "rdma-counter", "mlx5_0", "local_link_integrity_errors")
    assert node.look().words() == [("link-downed", "link-errors")]


def test_neither_the_kernel_log_nor_nvml_nor_a_monitor_is_opened(tmp_path):
    """Each in its own way: the log is not opened, and no process of the others is asked for."""
    on, off = Node(tmp_path / "on", "nvidia-8"), Node(tmp_path / "off", "nvidia-8")
    for node in (on, off):
        library = node.node.root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"  # the scan does not open it
        library.parent.mkdir(parents=True, exist_ok=True)
        library.write_bytes(b"")
    on.start()
    off.start("nvml", "kernel-log", "xpumd", "amd-kfd", amd_kfd=True)
    assert "nvml" in on.observer.requests
    assert off.observer.requests == {}
    assert off.observer.config.health.monitors["xpumd"] == ""
    log = KernelLogReader(off.observer.config, simulated=True)
    assert (log.readable, log.problems(), log.notices()) == (None, [], [])


@pytest.mark.parametrize("name", CAN_BE_OFF)
def test_every_source_that_reads_can_be_switched_off(tmp_path, name):
    """And says nothing then, whatever happens."""
    node = Node(tmp_path, "rdma-2").start(name)
    assert node.observer.config.health.sources_off == [name]
    assert node.words() == []


def test_what_the_scan_and_operators_say_cannot_be_switched_off():
    """A device that is not there is Unhealthy, and a cordon holds."""
    assert {source for source, _ in MEANINGS} - set(CAN_BE_OFF) == {
        "cdi",
        "cordon",
        "external",
        "inventory",
        "probe",
        "scan",
    }
