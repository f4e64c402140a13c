"""`devherd clear`: what it writes for the scanner, and what it refuses."""

import shutil
import socket
import tempfile
from pathlib import Path

import offered
import pytest
from command_line import devherd

from devherd import spool
from devherd.health.cordon import with_statement
from devherd.health.held import Now
from devherd.proto import health_pb2
from devherd.proto.spool_pb2 import Device, Offer

CARD = "0000:3b:00.0"
GPU = Offer(name="example.com/gpu", vendor="nvidia", devices=[Device(id="GPU-0", vendor="nvidia", card=CARD)])
FATAL = health_pb2.Held(source="pci-aer-fatal", reason="pci-aer", file="/sys/aer_dev_fatal", count=1)
MISSING = health_pb2.Held(source="node", reason="node-missing", file="/dev/nvidia0", count=1)
FLAPPING = health_pb2.Held(source="pci-config", reason="off-bus", damped_seconds=600, count=3)
PAST = health_pb2.Held(source="pci-aer-nonfatal", reason="pci-aer", count=1, is_over=True)


@pytest.fixture
def run_dir():
    """The files of an instance with one device, and a socket where its supervisor would listen."""
    directory = Path(tempfile.mkdtemp(prefix="dh", dir="/tmp"))
    offered.put(directory, GPU)
    with socket.socket(socket.AF_UNIX) as supervisor:
        supervisor.bind(str(directory / "supervisor.sock"))
        supervisor.listen()
        yield directory
    shutil.rmtree(directory)


def cleared(run_dir, reason: str, *held: health_pb2.Held):
    """The outcome of the command while this is held against the device."""
    verdict = health_pb2.Verdict(vendor="nvidia", card=CARD, device="GPU-0", held=held)
    spool.write(run_dir / "verdicts.pb", health_pb2.Verdicts(boot_id="boot-1", verdicts=[verdict]))
    return devherd("clear", "example.com/gpu", "GPU-0", reason, "--run-dir", run_dir)


def stated(run_dir) -> list[tuple[str, str, str, str]]:
    path = spool.path_of(run_dir / "findings", "operator")
    said = spool.read(path, health_pb2.Findings)
    return [(said.boot_id, one.at.device, one.evidence, one.reason) for one in said.evidence]


def test_an_event_is_taken_back_in_its_boot_and_what_else_is_held_is_named(run_dir):
    """Who clears one reason of two must not believe that the device is free."""
    outcome = cleared(run_dir, "pci-aer", FATAL, MISSING)

    assert (outcome.code, outcome.stderr) == (0, "")
    assert outcome.stdout == "example.com/gpu GPU-0: pci-aer is cleared; still held against it: node-missing\n"
    assert stated(run_dir) == [("boot-1", "GPU-0", "operator", "pci-aer")]


def test_what_is_held_because_it_comes_and_goes_is_taken_back(run_dir):
    """A card that has been seated anew."""
    outcome = cleared(run_dir, "off-bus", FLAPPING)

    assert outcome.stdout == "example.com/gpu GPU-0: off-bus is cleared\n"


def test_what_stands_on_a_card_that_sleeps_is_taken_back(run_dir):
    """Nobody looks at it, so no good look would ever end it."""
    outcome = cleared(run_dir, "off-bus", health_pb2.Held(source="pci-config", reason="off-bus", is_unseen=True))

    assert outcome.stdout == "example.com/gpu GPU-0: off-bus is cleared\n"
    assert stated(run_dir) == [("boot-1", "GPU-0", "operator", "off-bus")]


def test_what_is_worse_than_it_was_in_this_boot_is_taken_back(run_dir):
    """An operator has changed the cable or the switch: that is how it shall be."""
    slow = health_pb2.Held(source="rdma-rate", reason="link-degraded", file="/sys/rate", count=1)
    outcome = cleared(run_dir, "link-degraded", slow)

    assert outcome.stdout == "example.com/gpu GPU-0: link-degraded is cleared\n"


def test_what_stands_while_it_is_seen_cannot_be_taken_back(run_dir):
    """It would be seen again in a second."""
    outcome = cleared(run_dir, "node-missing", MISSING)

    assert (outcome.code, outcome.stdout) == (2, "")
    assert "`node-missing` cannot be cleared" in outcome.stderr
    assert not (run_dir / "findings").exists()


@pytest.mark.parametrize(("reason", "suggestion"), [("pci-ear", "did you mean `pci-aer`?"), ("gone", "")])
def test_a_reason_that_is_not_held_is_refused_with_those_that_are(run_dir, reason, suggestion):
    """Also what is over already."""
    outcome = cleared(run_dir, reason, FATAL)

    assert (outcome.code, outcome.stdout) == (2, "")
    assert "pci-aer" in outcome.stderr
    assert suggestion in outcome.stderr
    assert cleared(run_dir, "pci-aer", PAST).code == 2


def test_only_the_last_statement_of_a_kind_is_kept_and_none_of_another_boot():
    """CLOCK_MONOTONIC of another boot would end what has not happened yet."""
    gpu, other = ("nvidia", CARD, "GPU-0"), ("nvidia", CARD, "GPU-1")
    said = health_pb2.Findings()
    for key, reason, second in ((gpu, "xid", 1.0), (other, "xid", 2.0), (gpu, "xid", 3.0)):
        said = with_statement(said, key, reason, Now(1_000.0 + second, second, "boot-1"))
    assert [(one.at.device, one.monotonic_seconds) for one in said.evidence] == [("GPU-1", 2.0), ("GPU-0", 3.0)]

    said = with_statement(said, gpu, "xid", Now(2_000.0, 1.0, "boot-2"))
    assert [(one.at.device, one.monotonic_seconds) for one in said.evidence] == [("GPU-0", 1.0)]
