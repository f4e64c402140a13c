"""What a vendor's monitor asks a card's firmware, devherd does not ask as well, as long as the monitor answers."""

import pytest

from devherd import spool
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.proto import health_pb2
from devherd.scanner.observer import Observer
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.tree import rewrite


class Node:
    """A node with AMD's GPUs, a scanner, and where AMD's exporter listens and what it says."""

    def __init__(self, directory) -> None:
        self.node = SimulatedNode.create(directory / "host", preset("amd-8"))
        self._findings = directory / "findings"
        socket = self.node.root / "var/lib/amd-metrics-exporter/amdgpu_device_metrics_exporter_grpc.socket"
        socket.parent.mkdir(parents=True)
        socket.touch()
        self.observer = Observer(resolve(Config(host_root=self.node.root)), findings=self._findings)
        self.observer.scan(0.0)
        self.look()

    def exporter_says(self, failed: str = "") -> None:
        """It answers, or does not."""
        file = spool.path_of(self._findings, "amd-exporter")
        file.parent.mkdir(parents=True, exist_ok=True)
        boot_id = ""
        spool.write(
            file, health_pb2.Findings(source="amd-exporter", boot_id=boot_id, timestamp_seconds=1e9, failed=failed)
        )

    def count_errors(self, count: int) -> None:
        """Uncorrectable ones, of the first GPU's memory."""
        file = min((self.node.root / "sys/devices").glob("pci*/**/ras/umc_err_count"))
        rewrite(file, f"ue: {count}\nce: 0\n".encode())

    def look(self) -> None:
        """At everything, as at once after an event."""
        self.observer.poll(periodic=False)

    def held(self) -> list[tuple[str, int]]:
        """Source and count of all that is held."""
        self.look()
        return [(one.finding.source, one.count) for _, held in self.observer.policy.all_held() for one in held]


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_the_error_counters_are_not_read_while_amds_exporter_answers(node):
    """Each read resets them in the card; what happened meanwhile is found once it is silent."""
    node.exporter_says()
    node.look()
    node.count_errors(2)
    assert node.held() == []

    node.exporter_says(failed="UNAVAILABLE: connection refused")

    assert node.held() == [("amd-ras", 2)]


def test_what_was_counted_before_it_answered_stays(node):
    """It says nothing of single events."""
    node.count_errors(1)
    assert node.held() == [("amd-ras", 1)]

    node.exporter_says()

    assert node.held() == [("amd-ras", 1)]
