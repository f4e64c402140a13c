"""`devherd cordon` and `devherd uncordon`: what they write for the scanner, and what they refuse."""

import shutil
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import offered
import pytest
from command_line import devherd

from devherd import spool
from devherd.cli.subject import Subject, devices_named
from devherd.proto import devices_pb2, health_pb2
from devherd.proto.spool_pb2 import Device, Offer

PLACE = {"pci_address": "0000:3b:00.0", "slot": "4", "serial": "1652", "uuid": "u-77", "index": "11"}
GPU = Offer(
    name="example.com/gpu",
    vendor="nvidia",
    devices=[
        Device(id="GPU-0", vendor="nvidia", card="0000:3b:00.0", attributes=PLACE),
        Device(id="GPU-1", vendor="nvidia", card="0000:5e:00.0", replicas=2, attributes={"slot": "4"}),
    ],
)


@pytest.fixture
def run_dir():
    """The files of an instance with one resource, and a socket where its supervisor would listen."""
    directory = Path(tempfile.mkdtemp(prefix="dh", dir="/tmp"))
    offered.put(directory, GPU)
    with socket.socket(socket.AF_UNIX) as supervisor:
        supervisor.bind(str(directory / "supervisor.sock"))
        supervisor.listen(128)
        yield directory
    shutil.rmtree(directory)


def file_in(run_dir) -> Path:
    return run_dir / "findings/cordon/current.pb"


def cordoned(run_dir) -> list[str]:
    return [found.at.device for found in spool.read(file_in(run_dir), health_pb2.Findings).findings]


def test_a_cordon_says_which_device_why_and_by_whom(run_dir):
    """So that whoever finds it may ask the right person."""
    words = ("cordon", "example.com/gpu", "GPU-0", "--reason", "runs hot", "--run-dir", run_dir)
    outcome = devherd(*words, environment={"SUDO_USER": "alice"})

    [finding] = spool.read(file_in(run_dir), health_pb2.Findings).findings
    assert (outcome.code, outcome.stderr) == (0, "")
    assert outcome.stdout == "example.com/gpu GPU-0 is cordoned; pods that hold it keep it\n"
    assert finding == health_pb2.Finding(
        at=health_pb2.Target(vendor="nvidia", card="0000:3b:00.0", device="GPU-0"),
        reason="cordoned",
        detail="runs hot",
        file="devherd cordon",
        value="by alice",
    )


def test_a_cordon_is_written_where_it_outlives_a_boot_and_goes_from_there(run_dir, tmp_path):
    """The run directory is in memory."""
    state = tmp_path / "lib/devherd"
    words = ("example.com/gpu", "GPU-0", "--run-dir", run_dir, "--state-dir", state)

    assert devherd("cordon", *words).code == 0
    assert (state / "cordons.pb").read_bytes() == file_in(run_dir).read_bytes()
    assert devherd("uncordon", *words).code == 0

    assert spool.read(state / "cordons.pb", health_pb2.Findings).findings == []


def test_a_cordon_that_a_boot_would_undo_says_so_and_is_in_force(run_dir, tmp_path):
    """Without a mount of the host's directory, in a pod."""
    (tmp_path / "file").touch()
    state = tmp_path / "file/devherd"

    outcome = devherd(
        "cordon", "example.com/gpu", "GPU-0", "--run-dir", run_dir, environment={"DEVHERD_STATE_DIR": state}
    )

    assert (outcome.code, cordoned(run_dir)) == (0, ["GPU-0"])
    assert outcome.stderr.startswith(
        f"devherd: a boot will undo this — cannot write {state}/cordons.pb: Not a directory"
    )


@pytest.mark.parametrize("name", ["GPU-1", "GPU-1::1"])
def test_a_shared_device_is_cordoned_whole_by_its_own_id_or_by_that_of_a_replica(run_dir, name):
    """A replica is no part of the device that could be kept back alone."""
    outcome = devherd("cordon", "example.com/gpu", name, "--run-dir", run_dir)

    assert outcome.stdout == "example.com/gpu GPU-1 is cordoned with its 2 replicas; pods that hold it keep it\n"
    assert cordoned(run_dir) == ["GPU-1"]


NAMES = ["GPU-0", "0000:3b:00.0", "3b:00", "00000000:3B:00.0", "1652", "u-77", "11"]


@pytest.mark.parametrize("words", [[name] for name in NAMES] + [["example.com/gpu", name] for name in NAMES])
def test_every_command_takes_every_name_of_a_device(run_dir, words):
    """Defect: `explain` took an address, and `cordon` of it was "arguments are required: DEVICE"."""
    held = health_pb2.Held(source="kernel-log", reason="xid", count=1)
    verdict = health_pb2.Verdict(vendor="nvidia", card="0000:3b:00.0", device="GPU-0", held=[held])
    spool.write(run_dir / "verdicts.pb", health_pb2.Verdicts(verdicts=[verdict]))
    said = [
        devherd(command, *words, *rest, "--run-dir", run_dir).stdout
        for command, *rest in (["cordon", "--reason", "hot"], ["uncordon"], ["clear", "xid"])
    ]

    assert said == [
        "example.com/gpu GPU-0 is cordoned; pods that hold it keep it\n",
        "example.com/gpu GPU-0 is no longer cordoned\n",
        "example.com/gpu GPU-0: xid is cleared\n",
    ]


@pytest.mark.parametrize(
    ("word", "what"), [("4", "`4` names 2 devices"), ("GPU-", "`GPU-` is the beginning of 2 devices")]
)
@pytest.mark.parametrize("command", ["cordon", "uncordon", "clear"])
def test_a_name_of_several_devices_is_refused_with_all_of_them(run_dir, command, word, what):
    """Nothing is decided about a device that was not meant."""
    rest = ["xid"] * (command == "clear")
    outcome = devherd(command, word, *rest, "--run-dir", run_dir)

    assert outcome.code == 2
    assert outcome.error_line == (
        f"devherd: {what} — choose from example.com/gpu GPU-0, example.com/gpu GPU-1 — give the id of one"
    )
    assert not file_in(run_dir).exists() or cordoned(run_dir) == []


def test_a_number_that_is_one_cards_slot_and_anothers_index_names_both():
    """Defect: it was the slot's card without a word, though the map shows indices."""
    slot, index = (
        Subject(("nvidia", card, f"GPU-{card}"), f"GPU-{card}", facts={fact: devices_pb2.Fact(text="5")})
        for card, fact in (("0000:07:00.0", "slot"), ("0000:84:00.0", "index"))
    )
    assert devices_named([slot, index], "5") == [slot, index]


def test_a_resource_is_no_device(run_dir):
    """Not all of its devices are meant."""
    outcome = devherd("cordon", "example.com/gpu", "--run-dir", run_dir)

    assert outcome.code == 2
    assert "`example.com/gpu` is a resource — a device of it is wanted" in outcome.error_line


def test_options_may_stand_between_resource_and_device(run_dir):
    """As before there was one name for a device."""
    outcome = devherd("cordon", "example.com/gpu", "--reason", "hot", "GPU-0", "--run-dir", run_dir)

    assert (outcome.code, cordoned(run_dir)) == (0, ["GPU-0"])


def test_a_lost_device_is_uncordoned_by_the_address_that_it_had(run_dir):
    """As `devherd explain` finds it."""
    devherd("cordon", "GPU-0", "--run-dir", run_dir)
    offered.take_away(run_dir, GPU.name)
    lost = health_pb2.LostDevice(
        vendor="nvidia", card="0000:3b:00.0", device="GPU-0", resource_name=GPU.name, pci_address="0000:3b:00.0"
    )
    spool.write(run_dir / "lost.pb", health_pb2.Lost(devices=[lost]))

    assert devherd("uncordon", "3b:00.0", "--run-dir", run_dir).code == 0
    assert cordoned(run_dir) == []


def test_uncordon_gives_one_device_back_and_says_when_there_was_nothing_to_give(run_dir):
    """The others stay cordoned."""
    for name in ("GPU-0", "GPU-1"):
        devherd("cordon", "example.com/gpu", name, "--run-dir", run_dir)

    first, second = (devherd("uncordon", "example.com/gpu", "GPU-0", "--run-dir", run_dir) for _ in range(2))

    assert (first.code, first.stdout) == (0, "example.com/gpu GPU-0 is no longer cordoned\n")
    assert (second.code, second.stdout) == (0, "example.com/gpu GPU-0 was not cordoned\n")
    assert cordoned(run_dir) == ["GPU-1"]


def test_a_cordoned_device_that_is_no_longer_offered_can_be_uncordoned(run_dir):
    """Or its cordon would wait for it for ever."""
    devherd("cordon", "example.com/gpu", "GPU-0", "--run-dir", run_dir)
    offered.take_away(run_dir, GPU.name)

    wrong = devherd("uncordon", "example.com/gpu", "GPU-7", "--run-dir", run_dir)
    right = devherd("uncordon", "example.com/gpu", "GPU-0", "--run-dir", run_dir)

    assert (wrong.code, right.code) == (2, 0)
    assert "no cordoned device is called `GPU-7` — choose from GPU-0 — did you mean `GPU-0`?" in wrong.error_line
    assert cordoned(run_dir) == []


@pytest.mark.parametrize("command", ["cordon", "uncordon"])
@pytest.mark.parametrize(
    ("resource", "device", "complaint"),
    [
        ("example.com/gpus", "GPU-0", "did you mean `example.com/gpu`?"),
        ("example.com/gpu", "GPU-7", "choose from GPU-0, GPU-1::0, GPU-1::1"),
    ],
)
def test_a_device_that_is_not_there_is_an_error_with_those_that_are(run_dir, command, resource, device, complaint):
    """A mistyped name must not pass for a cordon."""
    outcome = devherd(command, resource, device, "--run-dir", run_dir)

    assert outcome.code == 2
    assert complaint in outcome.error_line
    assert not file_in(run_dir).exists()


def test_cordons_that_cannot_be_read_are_left_alone(run_dir):
    """Writing over them would end those of others."""
    file_in(run_dir).parent.mkdir(parents=True)
    file_in(run_dir).write_bytes(b"\xff")

    outcome = devherd("cordon", "example.com/gpu", "GPU-0", "--run-dir", run_dir)

    assert outcome.code == 4
    assert "cannot read the cordons" in outcome.error_line
    assert file_in(run_dir).read_bytes() == b"\xff"


def test_cordons_made_at_the_same_time_are_all_kept(run_dir):
    """A script may cordon a whole node at once."""
    many = Offer(name="example.com/many", devices=[Device(id=f"d{number}") for number in range(12)])
    offered.put(run_dir, many)

    def cordon(device) -> None:
        assert devherd("cordon", many.name, device.id, "--run-dir", run_dir).code == 0

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(cordon, many.devices))

    assert sorted(cordoned(run_dir)) == sorted(device.id for device in many.devices)


def test_without_an_instance_it_exits_with_4():
    """As every command that talks to the running instance."""
    outcome = devherd("cordon", "a.b/c", "d", "--run-dir", "/tmp/devherd-that-never-ran")
    assert outcome.code == 4
    assert "no instance runs in /tmp/devherd-that-never-ran" in outcome.error_line
