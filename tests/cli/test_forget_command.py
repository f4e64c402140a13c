"""`devherd forget` without an instance, and what it refuses; tests/system/test_lost.py has it beside a running one."""

import json
from pathlib import Path

import pytest
from command_line import devherd

from devherd import spool
from devherd.proto import health_pb2

GPU = "nvidia.com/gpu"


def lost(name: str, place: str, slot: str, serial: str) -> health_pb2.LostDevice:
    return health_pb2.LostDevice(
        vendor="nvidia",
        card=place,
        device=name,
        resource_name=GPU,
        since_timestamp_seconds=1000.0,
        pci_address=place,
        slot=slot,
        serial=serial,
    )


@pytest.fixture
def places(tmp_path):
    """After a boot: the run directory is empty, the state directory has three lost devices."""
    for name in ("run", "state"):
        (tmp_path / name).mkdir()
    devices = [
        lost("GPU-1a", "0000:01:00.0", "1", "S1"),
        lost("GPU-1b", "0000:02:00.0", "2", "S2"),
        lost("GPU-2", "0000:03:00.0", "3", "S3"),
    ]
    spool.write(tmp_path / "state/lost.pb", health_pb2.Lost(devices=devices))
    return tmp_path


def forget(places: Path, *words: str):
    return devherd("forget", *words, "--run-dir", places / "run", "--state-dir", places / "state")


def left(places: Path) -> list[str]:
    return [one.device for one in spool.read_or_empty(places / "state/lost.pb", health_pb2.Lost).devices]


@pytest.mark.parametrize("name", ["GPU-2", "0000:03:00.0", "03:00", "3", "S3", f"{GPU} GPU-2", f"{GPU} 3"])
def test_a_lost_device_is_forgotten_by_any_of_its_names(places, name):
    """Its id, PCI address, slot or serial number; without an instance, as on a node that is being repaired."""
    outcome = forget(places, *name.split())
    assert (outcome.code, outcome.stdout, outcome.stderr) == (0, f"{GPU} GPU-2 is forgotten\n", "")
    assert left(places) == ["GPU-1a", "GPU-1b"]
    told = devherd("events", "--output", "json", "--run-dir", places / "run").stdout
    assert [(json.loads(line)["kind"], json.loads(line)["device_id"]) for line in told.splitlines()] == [
        ("lost", "GPU-2")
    ]


def test_a_forgotten_device_that_a_pod_holds_is_said_to_stay_until_the_pod_has_ended(places):
    """Defect: forget said that it was forgotten, and explain went on as before without a word of the pod."""
    kept = places / "state/lost.pb"
    known = spool.read(kept, health_pb2.Lost)
    known.devices[2].MergeFrom(health_pb2.LostDevice(is_listed=True, pods=["default/train"]))
    spool.write(kept, known)
    assert forget(places, "GPU-2").stdout == (
        f"{GPU} GPU-2 is forgotten; it stays in the kubelet's list, Unhealthy, until its pod has ended: default/train\n"
    )


def test_all_are_forgotten_at_once_and_no_file_is_left(places):
    """And a second time there is nothing to do."""
    assert forget(places, "--all").stdout.count("is forgotten") == 3
    assert list((places / "state").iterdir()) == []
    assert forget(places, "--all").stdout == "no device is lost\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("GPU-1",),
            f"`GPU-1` is the beginning of 2 devices — choose from {GPU} GPU-1a, {GPU} GPU-1b — give the id of one",
        ),
        (("GPU-9",), "no lost device is called `GPU-9` — choose from GPU-1a, GPU-1b, GPU-2 — did you mean `GPU-2`?"),
        ((), "what to forget is not clear — one device or `--all` — see `devherd status`"),
        (("GPU-2", "--all"), "what to forget is not clear — one device or `--all` — see `devherd status`"),
    ],
)
def test_what_names_no_single_lost_device_is_refused(places, words, text):
    """Nothing is forgotten by mistake."""
    outcome = forget(places, *words)
    assert (outcome.code, outcome.stderr) == (2, f"devherd: {text}\n")
    assert left(places) == ["GPU-1a", "GPU-1b", "GPU-2"]
