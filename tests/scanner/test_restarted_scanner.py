"""What a scanner saw in this boot, and the next one has to know to judge what it sees: kept with the verdicts."""

import json
import time

import offered
import pytest

from devherd.config.loader import load, resolve
from devherd.scanner import files, observer
from devherd.scanner.files import ScannerFiles
from devherd_sim.node import faults
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.tree import rewrite

AT_ONCE = {"rules": [{"match": {"vendor": "rdma"}, "reason": "port-down", "after": "0s"}]}


class Node:
    """A node, and one scanner after the other that looks at it."""

    def __init__(self, directory, name: str, health: dict | None = None) -> None:
        self.directory = directory
        self.health = health or {}
        (directory / "run/offers/device-plugin").mkdir(parents=True)
        self.node = SimulatedNode.create(directory / "host", preset(name))
        self.files: ScannerFiles

    def start(self, **health) -> "Node":
        """A scanner starts; the one before it was killed, if there was one."""
        file = self.directory / "config.yaml"
        file.write_text(json.dumps({"host_root": str(self.directory / "host"), "health": self.health | health}))
        self.config = resolve(load({"config": str(file), "run_dir": str(self.directory / "run")}, {}))
        self.files = ScannerFiles(self.config, self.config.settings())
        self.files.observer.scan(time.monotonic())
        return self.look()

    def look(self) -> "Node":
        self.files.observer.poll(periodic=True)
        while self.files.observer.read_kernel_log():
            pass
        self.files.publish()
        return self

    def words(self) -> list[list[str]]:
        """Reasons and warnings of every device that has some, as it is offered."""
        found = offered.offers_in(self.config.settings().run_dir).values()
        devices = [device for offer in found for device in offer.devices]
        return [[*one.reasons, *one.warnings] for one in devices if one.reasons or one.warnings]

    def set(self, pattern: str, text: str) -> None:
        """Rewrite the first attribute at such a place."""
        place = min((self.node.root / "sys/devices").glob(pattern))
        rewrite(place, text.encode())


@pytest.fixture
def ports(tmp_path):
    """Two RDMA devices of one port each, and a scanner that has seen both active."""
    node = Node(tmp_path, "rdma-2", AT_ONCE).start()
    assert node.words() == []
    return node


PORT = "pci*/**/ports/1/state"


def test_a_port_that_goes_down_while_no_scanner_runs_is_down(ports):
    """It was active: the scanner before saw that."""
    ports.set(PORT, "1: DOWN\n")

    assert ports.start().words() == [["port-down"]]


def test_a_port_that_has_begun_to_be_down_goes_on_with_that_in_the_next_scanner(ports):
    """What waits for its `after` is neither forgotten nor frozen."""
    ports.set(PORT, "1: DOWN\n")
    ports.start(rules=[{"match": {"vendor": "rdma"}, "reason": "port-down", "after": "1h"}])
    assert ports.words() == []
    held = [one for _, held in ports.files.observer.policy.all_held() for one in held]
    assert [(one.finding.reason, one.is_waiting) for one in held] == [("port-down", True)]

    assert ports.start().look().words() == [["port-down"]]


def boot_again(monkeypatch):
    """The scanners that start now do so in another boot."""
    for module in (files, observer):
        monkeypatch.setattr(module, "boot_id", lambda _root: "another")


def test_a_boot_says_nothing_of_the_ports_before_it(ports, monkeypatch):
    """A cable may have been moved meanwhile."""
    ports.set(PORT, "1: DOWN\n")
    boot_again(monkeypatch)

    assert ports.start().words() == []


def test_a_reload_that_begins_the_looks_again_forgets_no_port(ports):
    """Another deadline of probes is another fence."""
    ports.set(PORT, "1: DOWN\n")
    file = ports.directory / "config.yaml"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"scan": {"probe_timeout": "1s"}}))
    ports.files.observer.reconfigure(resolve(load({"config": str(file), "run_dir": str(ports.directory / "run")}, {})))
    ports.files.observer.scan(time.monotonic())

    assert ports.look().words() == [["port-down"]]


LINK = "pci*/**/ports/1/counters/link_downed"


def test_a_link_that_goes_down_before_and_after_a_restart_flaps(tmp_path):
    """The base and the hour are those of the boot: two that no scanner saw, a third later. A fall ends nothing."""
    node = Node(tmp_path, "rdma-2").start()
    assert node.words() == []
    node.set(LINK, "4\n")
    assert node.start().words() == [["link-downed"]]
    node.set(LINK, "5\n")
    assert node.start().words() == [["link-flapping", "link-downed"]]
    node.set(LINK, "0\n")
    assert node.start().words() == [["link-flapping", "link-downed"]]


def test_links_that_went_down_in_an_earlier_boot_are_a_base(tmp_path, monkeypatch):
    """Its card and its driver began anew."""
    node = Node(tmp_path, "rdma-2").start()
    node.set(LINK, "9\n")
    boot_again(monkeypatch)

    assert node.start().words() == []


def test_a_link_is_compared_with_the_best_that_an_earlier_scanner_saw(tmp_path):
    """The width of a card that was in order is not taken from it by a restart."""
    node = Node(tmp_path, "fpga-1").start()
    assert node.words() == []
    node.set("pci*/**/dfl-port.0/../../../current_link_width", "1\n")

    assert node.start().words()[0] == ["link-degraded"]


def test_what_the_log_says_of_a_gpu_that_no_scan_has_found_outlives_the_scanner(tmp_path):
    """The driver speaks while it starts a GPU, and a scanner may be killed before the GPU is there; it counts once."""
    node = Node(tmp_path, "nvidia-8")
    late = sorted(path.name for path in (node.node.root / "proc/driver/nvidia/gpus").iterdir())[4]
    faults.inject(node.node, "unbind", late)
    node.start()
    node.node.kernel_log.write(f"NVRM: Xid (PCI:{late.rpartition('.')[0]}): 119, Timeout waiting for RPC from GSP")
    assert node.look().words() == []
    assert node.start().words() == []
    faults.clear(node.node, "unbind", late)

    assert node.start().words() == [["xid"]]

    assert node.start().words() == [["xid"]]
    [held] = [one for _, held in node.files.observer.policy.all_held() for one in held]
    assert held.count == 1


def test_the_name_that_the_driver_gave_a_gpu_outlives_the_scanner(tmp_path):
    """It says it once, before the GPU's first Xid; a GPU may be known by that name alone."""
    node = Node(tmp_path, "nvidia-8").start()
    entries = list(node.files.observer.inventory.entries.values())
    uuid = entries[0].device.attributes["uuid"]
    node.node.kernel_log.write(f"NVRM: GPU at PCI:0000:ff:1f: {uuid}")
    node.look()
    node.start()
    node.node.kernel_log.write("NVRM: Xid (PCI:0000:ff:1f): 119, Timeout waiting for RPC from GSP")

    assert node.look().words() == [["xid"]]
