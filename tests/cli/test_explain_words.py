"""`devherd explain` of one word or none: what it may be, in which order it is looked for, and the exit codes."""

import json
import os
import shutil
import socket
import time

import offered
import pytest
import scratch
from command_line import devherd

from devherd import history, spool
from devherd.history import History
from devherd.proto import devices_pb2, health_pb2
from devherd.proto.spool_pb2 import (
    Child,
    Children,
    Device,
    Edits,
    Node,
    Offer,
    Problem,
    ResourceState,
    ScanSummary,
)

GPU, GENERIC = "nvidia.com/gpu", "example.com/serial"
CARDS = {"GPU-1af8": "0000:83:00.0", "GPU-1b00": "0000:84:00.0", "GPU-2e44": "10000:01:00.0"}
XID = health_pb2.Held(
    source="kernel-log",
    reason="xid",
    detail="NVRM: Xid (PCI:0000:83:00): 79, GPU has fallen off the bus.",
    file="/dev/kmsg",
    value="79",
    count=1,
    do="reboot the node",
    ends="by a boot of the host",
)
CORDON = health_pb2.Held(
    source="cordon",
    reason="cordoned",
    detail="bench",
    file="devherd cordon",
    value="by root",
    count=1,
    do="uncordon it",
    ends="by devherd uncordon nvidia.com/gpu GPU-1b00",
)


def gpu(device_id: str, *reasons: str) -> Device:
    facts = {"pci_address": CARDS[device_id]}
    if device_id == "GPU-1af8":
        facts |= {"slot": "4", "serial": "1652"}
    node = Node(host_path="/dev/nvidia0", container_path="/dev/nvidia0", permissions="rw")
    edits = Edits(nodes=[node] if device_id == "GPU-1af8" else [])
    card = CARDS[device_id]
    return Device(id=device_id, vendor="nvidia", card=card, reasons=reasons, replicas=2, attributes=facts, edits=edits)


def written(directory, *gpus: Device, held=()) -> None:
    """The files of an instance with these GPUs and a generic device, registered with the kubelet."""
    generic = Device(id="6f1a", vendor="generic", edits=Edits(nodes=[Node(host_path="/dev/ttyS0")]))
    offered.put(directory, Offer(name=GPU, vendor="nvidia", devices=gpus))
    offered.put(directory, Offer(name=GENERIC, vendor="generic", devices=[generic]))
    for name in (GPU, GENERIC):
        state = ResourceState(name=name, registered=True)
        spool.write(spool.path_of(directory / "state", spool.key_of(name)), state)
    verdicts = [health_pb2.Verdict(vendor="nvidia", card=CARDS[gpu], device=gpu, held=[one]) for gpu, one in held]
    spool.write(directory / "verdicts.pb", health_pb2.Verdicts(verdicts=verdicts))
    names = ("scanner", "exporter", f"resource:{spool.key_of(GPU)}", f"resource:{spool.key_of(GENERIC)}")
    children = [Child(name=name, state="RUNNING") for name in names]
    spool.write(directory / "children.pb", Children(children=children, supervisor_pid=os.getpid()))


@pytest.fixture
def run_dir():
    """The files of an instance with three GPUs that are well, and a socket where its supervisor would listen."""
    directory = scratch.directory()
    (directory / "state").mkdir()
    written(directory, *map(gpu, CARDS))
    left_out = devices_pb2.Device(vendor="nvidia", card="0000:90:00.0", id="GPU-9999")
    known = devices_pb2.KnownDevice(device=left_out, left_out={"device-plugin": "in MIG mode"})
    spool.write(directory / "devices.pb", devices_pb2.Inventory(devices=[known]))
    with socket.socket(socket.AF_UNIX) as supervisor:
        supervisor.bind(str(directory / "supervisor.sock"))
        supervisor.listen()
        yield directory
    shutil.rmtree(directory)


def explain(run_dir, *words: str):
    return devherd("explain", *words, "--run-dir", run_dir, "--kubelet-dir", run_dir / "kubelet")


@pytest.mark.parametrize(
    ("word", "device"),
    [
        ("GPU-1af8", "GPU-1af8"),
        ("GPU-1a", "GPU-1af8"),
        ("GPU-1af8::1", "GPU-1af8::1"),
        ("0000:83:00.0", "GPU-1af8"),
        ("83:00.0", "GPU-1af8"),
        ("83:00", "GPU-1af8"),
        ("PCI:0000:83:00", "GPU-1af8"),
        ("00000000:83:00.0", "GPU-1af8"),
        ("10000:01:00.0", "GPU-2e44"),
        ("4", "GPU-1af8"),
        ("1652", "GPU-1af8"),
        ("/dev/nvidia0", "GPU-1af8"),
        ("/dev/ttyS0", "6f1a"),
    ],
)
def test_a_device_is_found_by_whatever_somebody_has_of_it(run_dir, word, device):
    """The id from `kubectl`, the address from the kernel log or nvidia-smi, the slot in the rack, the serial."""
    outcome = explain(run_dir, word, "--output", "json")

    assert (outcome.code, outcome.stderr) == (0, "")
    told = json.loads(outcome.stdout)
    assert (told["kind"], told["device"], told["health"]) == ("device", device, "Healthy")


def test_the_beginning_of_several_lists_them(run_dir):
    """The right one is copied from the list; whole ids are never ambiguous."""
    outcome = explain(run_dir, "GPU-1")

    assert outcome.code == 2
    assert "`GPU-1` is the beginning of 2 devices — choose from nvidia.com/gpu GPU-1af8, nvidia.com/gpu GPU-1b00" in (
        outcome.error_line
    )


def test_a_device_that_is_not_offered_says_why(run_dir):
    """It is on the host, and in no resource."""
    outcome = explain(run_dir, "GPU-9999")

    assert (outcome.code, outcome.stdout.splitlines()[0]) == (0, "GPU-9999 is not offered: in MIG mode")


def test_a_word_that_is_nothing_is_wrong_use_with_a_suggestion(run_dir):
    """A typo, or the wrong node."""
    outcome = explain(run_dir, "nvidia.com/gpus")

    assert outcome.code == 2
    assert "`nvidia.com/gpus` not found" in outcome.error_line
    assert "did you mean `nvidia.com/gpu`?" in outcome.error_line
    assert "by one word, or by RESOURCE DEVICE" in explain(run_dir, "a", "b", "c").error_line


def test_a_pod_without_a_kubelet_to_ask_and_without_a_history_is_unreachable(run_dir):
    """Nobody knows; the history alone is enough to answer."""
    assert explain(run_dir, "default/train").code == 4

    past = History(run_dir / "history", "resource:nvidia.com_gpu")
    details = {"namespace": "default", "pod": "train", "container": "main", "devices": "GPU-1af8::0"}
    past.note("allocation", "held by pod default/train, container main", resource_name=GPU, details=details)
    time.sleep(0.01)  # events have milliseconds
    past.note("verdict", "Unhealthy: xid", resource_name=GPU, device_id="GPU-1af8", reasons=("xid",))
    past.note("verdict", "Unhealthy: xid", resource_name=GPU, device_id="GPU-2e44", reasons=("xid",))
    time.sleep(0.01)
    details = {"namespace": "default", "pod": "next", "container": "main", "devices": "GPU-1af8::0"}
    past.note("allocation", "held by pod default/next, container main", resource_name=GPU, details=details)
    past.note("verdict", "Healthy", resource_name=GPU, device_id="GPU-1af8")
    past.keep()
    outcome = explain(run_dir, "default/train", "--output", "json")
    written(run_dir, gpu("GPU-1af8", "xid"), held=[("GPU-1af8", XID)])

    assert outcome.code == 0, "the device that it had is well again"
    assert explain(run_dir, "default/train").code == 1
    told = [(event["kind"], event["device_id"]) for event in json.loads(outcome.stdout)["events"]]
    assert told == [("allocation", None), ("verdict", "GPU-1af8")]
    assert len(history.events(run_dir)) == 5


def test_without_a_word_a_node_that_is_well_is_a_line(run_dir):
    """And the exit code 0."""
    outcome = explain(run_dir)

    assert (outcome.code, outcome.stdout) == (0, "all is well: 7 devices of 2 resources, all Healthy and registered\n")


def test_without_a_word_the_worst_comes_first_and_a_cordon_is_no_problem(run_dir):
    """A cordon is an operator's wish: it is shown with who, why and its end, and fails nothing."""
    written(run_dir, gpu("GPU-1b00", "cordoned"), held=[("GPU-1b00", CORDON)])
    cordoned = explain(run_dir)
    written(
        run_dir, gpu("GPU-1b00", "cordoned"), gpu("GPU-1af8", "xid"), held=[("GPU-1b00", CORDON), ("GPU-1af8", XID)]
    )
    ill = explain(run_dir)

    assert cordoned.code == 0
    assert cordoned.stdout.splitlines() == [
        "nvidia.com/gpu GPU-1b00 is cordoned by root: bench",
        "  ends by devherd uncordon nvidia.com/gpu GPU-1b00",
        "  where:   PCI address 0000:84:00.0",
        "  held by: unknown, the kubelet cannot be asked, or pods have it by claims",
        "  more:    devherd explain nvidia.com/gpu GPU-1b00",
    ]
    assert ill.code == 1
    assert ill.stdout.splitlines()[:5] == [
        "nvidia.com/gpu GPU-1af8 is Unhealthy: xid",
        "  do:      reboot the node",
        "  xid since 1970-01-01T00:00:00Z: NVRM: Xid (PCI:0000:83:00): 79, GPU has fallen off the bus.",
        "    ends by a boot of the host",
        "  where:   PCI address 0000:83:00.0, slot 4, serial 1652",
    ]
    assert explain(run_dir, GPU).code == 1
    assert explain(run_dir, GENERIC).code == 0
    assert explain(run_dir, "GPU-1b00").code == 0
    assert explain(run_dir, "GPU-1af8").code == 1


@pytest.mark.parametrize("words", [("GPU-1af8",), (GPU, "GPU-1af8"), ("83:00.0",), (GPU, "83:00.0"), (GPU, "4")])
@pytest.mark.parametrize(("reason", "held", "code"), [("xid", XID, 1), ("cordoned", CORDON, 0)])
def test_the_exit_code_is_that_of_the_device_however_it_is_named(run_dir, words, reason, held, code):
    """Defect: `explain RESOURCE DEVICE` exited with 0 for a device that was ill."""
    written(run_dir, gpu("GPU-1af8", reason), held=[("GPU-1af8", held)])

    assert explain(run_dir, *words).code == code


def test_a_slot_below_a_switch_is_said_to_be_shared(run_dir):
    """Defect: two GPUs were both "slot 4", as if one of them had to be there."""
    one, other = gpu("GPU-1af8"), gpu("GPU-1b00")
    alone = explain(run_dir, "GPU-1af8").stdout
    other.attributes["slot"] = "4"
    written(run_dir, one, other)

    assert "where:       PCI address 0000:83:00.0, slot 4, serial 1652" in alone
    assert "0000:84:00.0, slot 4 (shared with another card)" in explain(run_dir, "GPU-1b00").stdout
    both = json.loads(explain(run_dir, "4", "--output", "json").stdout)
    assert [device["is_slot_shared"] for device in both["devices"]] == [True, True]


def test_a_lost_device_that_no_pod_held_names_the_pod_that_had_it_before(run_dir):
    """Defect: a pod that was freed a second before the loss was named nowhere."""
    lost = health_pb2.LostDevice(vendor="nvidia", device="GPU-77aa", resource_name=GPU, since_timestamp_seconds=1.8e9)
    spool.write(run_dir / "lost.pb", health_pb2.Lost(devices=[lost]))
    past = History(run_dir / "history", "resource:nvidia.com_gpu")
    details = {"namespace": "default", "pod": "train", "container": "main", "devices": "GPU-77aa::1"}
    past.note("allocation", "held by pod default/train, container main", resource_name=GPU, details=details)
    past.keep()

    assert "last held by: no pod when it was lost; default/train had it since 20" in explain(run_dir, "GPU-77").stdout
    told = json.loads(explain(run_dir, "GPU-77", "--output", "json").stdout)
    assert told["devices"][0]["held_before"]["pod"] == "default/train"


def test_a_lost_device_is_found_by_whatever_somebody_has_of_it(run_dir):
    """Defect: five minutes after a card was lost, nobody knew it any more."""
    lost = health_pb2.LostDevice(
        vendor="nvidia",
        device="GPU-77aa",
        resource_name=GPU,
        since_timestamp_seconds=1_763_800_000,
        pci_address="0000:91:00.0",
        slot="7",
        serial="9911",
        pods=["default/train"],
    )
    spool.write(run_dir / "lost.pb", health_pb2.Lost(devices=[lost]))

    for word in ("GPU-77aa", "GPU-77", "0000:91:00.0", "91:00.0", "7", "9911"):
        outcome = explain(run_dir, word)
        assert outcome.code == 1, word
        assert outcome.stdout.startswith(f"{GPU} GPU-77aa is lost: no scan has found it since 2025-11-22T08:26:40Z")
        assert "last held by: default/train" in outcome.stdout
    assert "GPU-77aa is lost" in explain(run_dir).stdout
    assert explain(run_dir).code == explain(run_dir, GPU).code == 1
    assert json.loads(explain(run_dir, GPU, "--output", "json").stdout)["lost"][0]["slot"] == "7"


def test_what_is_no_device_is_found_by_the_address_that_status_prints(run_dir):
    """Defect: `not found`, and a healthy neighbour was suggested in its place."""
    refused, noted = "the driver cannot start it", "driven by vfio-pci, and not offered"
    summary = ScanSummary(
        problems=[Problem(vendor="nvidia", path="/proc/x", error=refused, device="0000:a1:00.0")],
        notices=[Problem(vendor="amd", path="/sys/y", error=noted, device="0000:b1:00.0")],
    )
    spool.write(run_dir / "scan.pb", summary)

    for word in ("0000:a1:00.0", "a1:00.0", "0000:a1:00", "PCI:0000:A1:00", "/proc/x"):
        outcome = explain(run_dir, word)
        assert (outcome.code, outcome.stdout.splitlines()[0]) == (1, f"0000:a1:00.0: {refused}"), word
    note = explain(run_dir, "b1:00.0", "--output", "json")
    assert note.code == 0
    assert json.loads(note.stdout) == {
        "kind": "problems",
        "problems": [
            {"vendor": "amd", "device": "0000:b1:00.0", "path": "/sys/y", "error": noted, "is_problem": False}
        ],
    }
    assert "did you mean `0000:a1:00.0`?" in explain(run_dir, "0000:a1:00.1").error_line
