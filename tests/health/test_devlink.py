"""What drivers say of the firmware of network cards by devlink: on a simulated node, from message to verdict."""

import os
import socket

import pytest

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.health.policy import FINE, Verdict
from devherd.inventory import Entry
from devherd.proto import spool_pb2
from devherd.reasons.registry import DEVLINK
from devherd.scanner import host_events
from devherd.scanner.host_events import HostChanges
from devherd.scanner.observer import Observer
from devherd_sim.node import faults
from devherd_sim.node.presets import preset
from devherd_sim.node.rdma import RdmaSpec
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec

ILL = Verdict(("firmware",))
NOTHING = HostChanges()


class Node:
    """A node with RDMA cards, and a scanner of it."""

    def __init__(self, directory, spec: NodeSpec) -> None:
        self.node = SimulatedNode.create(directory, spec)
        self.start()

    def start(self) -> None:
        self.observer = Observer(resolve(Config(host_root=self.node.root)))
        self.observer.scan(0.0)
        self.observer.poll(periodic=True)
        self.entries = sorted(self.observer.inventory.entries.values(), key=lambda entry: entry.key)

    @property
    def addresses(self) -> list[str]:
        return [entry.device.attributes["pci_address"] for entry in self.entries]

    def verdicts(self) -> list[Verdict]:
        return [self.observer.policy.verdict(entry.key) for entry in self.entries]

    def heard(self) -> list[Verdict]:
        self.observer.read_devlink()
        return self.verdicts()

    def ill(self) -> list[Entry]:
        return [entry for entry, verdict in zip(self.entries, self.heard(), strict=True) if verdict == ILL]

    def problems(self) -> list[spool_pb2.Problem]:
        return [problem for problem in self.observer.problems if problem.vendor == DEVLINK]

    def refuse(self, monkeypatch) -> None:
        """Have every socket refused from now on."""

        class Refused:
            is_open = False

            def __init__(self, *_):
                pass

            def close(self):
                pass

            def dump(self, _beat):
                raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(host_events, "Devlink", Refused)
        self.observer.devlink = host_events.DevlinkReader(None, 1.0)

    def polled(self, times: int = 1) -> list[Verdict]:
        for _ in range(times):
            self.observer.poll(periodic=True, changes=NOTHING)
        return self.verdicts()


@pytest.fixture
def rdma(tmp_path):
    return Node(tmp_path / "node", preset("rdma-2"))


def test_an_error_of_the_firmware_counts_when_it_is_said_and_goes_with_good_looks(rdma):
    """Without another scan, and the other card is not touched."""
    rdma.node.devlink.report(rdma.addresses[0], "fw_fatal", is_in_error=True)
    assert rdma.heard() == [ILL, FINE]
    assert rdma.polled(5) == [ILL, FINE]

    rdma.node.devlink.report(rdma.addresses[0], "fw_fatal", is_in_error=False)

    assert rdma.heard() == [ILL, FINE]
    assert rdma.polled(3) == [FINE, FINE]


def test_what_was_said_before_devherd_started_is_asked_for(rdma):
    """A scanner that starts knows it with its first look."""
    rdma.node.devlink.report(rdma.addresses[1], "fw_fatal", is_in_error=True)

    rdma.start()

    assert rdma.verdicts() == [FINE, ILL]
    [held] = rdma.observer.policy.held_against(rdma.entries[1].key)
    assert held.finding.file == f"devlink health show pci/{rdma.addresses[1]} reporter fw_fatal"


def test_a_driver_that_stays_with_an_error_for_good_only_warns(rdma):
    """`fw` of mlx5 has no way to recover: nobody could take its error back but by binding the driver again."""
    rdma.node.devlink.report(rdma.addresses[0], "fw", is_in_error=True, recovers=False)

    assert rdma.heard() == [Verdict((), ("firmware",)), FINE]


def test_reporters_of_queues_say_nothing_of_the_card(rdma):
    """A transmit queue that hung is recovered by its driver."""
    rdma.node.devlink.report(rdma.addresses[0], "tx", is_in_error=True)

    assert rdma.heard() == [FINE, FINE]


def test_virtual_functions_go_with_the_firmware_of_their_physical_one(tmp_path):
    """It serves them, too; what a driver says of one of them is about that alone."""
    card, others = RdmaSpec(vfs=2, link_layer="Ethernet"), RdmaSpec(cards=4)
    rdma = Node(tmp_path / "node", NodeSpec(rdma=[card, others]))
    [parent] = {entry.device.attributes.get("physfn", "") for entry in rdma.entries} - {""}
    virtual = [entry.device.attributes["pci_address"] for entry in rdma.entries if "physfn" in entry.device.attributes]
    rdma.node.devlink.report(virtual[0], "fw_fatal", is_in_error=True)
    assert [one.device.attributes["pci_address"] for one in rdma.ill()] == virtual[:1]

    rdma.node.devlink.report(parent, "fw_fatal", is_in_error=True)

    assert {one.device.attributes["pci_address"] for one in rdma.ill()} == {parent, *virtual}


def test_a_driver_that_keeps_the_kernel_waiting_is_no_fault_of_the_cards(rdma, monkeypatch):
    """What was known stays, the problem is said once it is, and goes when the kernel answers."""
    rdma.node.devlink.report(rdma.addresses[0], "fw_fatal", is_in_error=True)
    assert rdma.heard() == [ILL, FINE]
    dump = rdma.node.root / ".devherd-devlink"
    content = dump.read_bytes()
    dump.unlink()
    os.mkfifo(dump)
    monkeypatch.setattr(host_events, "DUMP_SECONDS", 0.0)
    rdma.observer.devlink = host_events.DevlinkReader(rdma.node.root, 0.05)

    assert rdma.polled(5) == [ILL, FINE]

    assert "a driver keeps it waiting" in rdma.observer.policy.seen.failed[DEVLINK]
    assert [problem.path for problem in rdma.problems()] == ["netlink"]
    writer = os.open(dump, os.O_WRONLY)
    os.write(writer, content)
    os.close(writer)
    dump.unlink()
    dump.write_bytes(content)
    assert rdma.polled(3) == [ILL, FINE]


def test_where_netlink_is_refused_that_is_a_problem_with_its_cure(rdma, monkeypatch):
    """And no card's; another attempt follows."""
    rdma.refuse(monkeypatch)

    assert rdma.polled(2) == [FINE, FINE]

    [problem] = rdma.problems()
    assert "Operation not permitted: let devherd open netlink sockets" in problem.error


def test_the_problem_that_nothing_is_heard_goes_with_the_last_network_card(rdma, monkeypatch):
    """There is nobody left of whom anything could be said; with a card that comes it is said again."""
    rdma.refuse(monkeypatch)
    rdma.polled()
    assert rdma.problems()
    cards, none = preset("rdma-2"), NodeSpec()
    rdma.node.change(cards, none)

    rdma.observer.scan(1.0)
    rdma.polled()
    assert (rdma.problems(), rdma.observer.devlink.failed) == ([], "")

    rdma.node.change(none, cards)
    rdma.observer.scan(2.0)
    rdma.polled()
    assert len(rdma.problems()) == 1


def test_what_is_heard_ends_with_the_last_network_card_and_goes_on_with_the_next(rdma):
    """No socket is kept for nobody, and no word of before counts."""
    rdma.node.devlink.report(rdma.addresses[0], "fw_fatal", is_in_error=True)
    assert rdma.heard() == [ILL, FINE]
    cards, none = preset("rdma-2"), NodeSpec()
    rdma.node.change(cards, none)
    rdma.observer.scan(1.0)
    rdma.polled()
    assert (rdma.observer.devlink.readable, rdma.observer.devlink.reporters) == (None, [])
    rdma.node.devlink.report(rdma.addresses[0], "fw_fatal", is_in_error=False)
    rdma.node.devlink.report(rdma.addresses[1], "fw_fatal", is_in_error=True)

    rdma.node.change(none, cards)
    rdma.observer.scan(2.0)

    assert rdma.polled(3) == [FINE, ILL]


def test_a_host_without_network_cards_is_not_asked(tmp_path):
    """No socket, no thread."""
    node = Node(tmp_path / "node", preset("nvidia-8"))

    assert node.observer.devlink.readable is None


def test_the_fault_is_injected_and_taken_back(rdma):
    """`devherd sim fault DIR firmware AT`."""
    faults.inject(rdma.node, "firmware", rdma.addresses[0])
    assert rdma.heard() == [ILL, FINE]

    faults.clear(rdma.node, "firmware", rdma.addresses[0])

    rdma.observer.read_devlink()
    assert rdma.polled(3) == [FINE, FINE]


def test_a_message_wakes_whoever_waits(rdma):
    """Its socket is among those that the scanner waits for."""
    rdma.node.devlink.report(rdma.addresses[0], "fw_fatal", is_in_error=True)

    listening = socket.socket(fileno=os.dup(rdma.observer.devlink.readable.fileno()))
    with listening:
        listening.settimeout(5)
        assert listening.recv(4096, socket.MSG_PEEK)
