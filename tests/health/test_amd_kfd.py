"""Source `amd-kfd`: what AMD's driver tells of resets, and what comes of a device that refuses."""

import errno
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from devherd import spool
from devherd._native import kfd_slots
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.proto import health_pb2
from devherd.reasons.registry import MEANINGS
from devherd.sources import amd_kfd
from devherd.sources.amd_kfd import MASK, Reset, resets_in
from devherd.sources.request import requests_for
from devherd_sim.node import faults
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode

PROCESS = Path(__file__).with_name("listener_process.py")


@pytest.mark.parametrize(
    ("said", "resets"),
    [
        (b"3 1 ring gfx_0.0.0 timeout\n", [Reset(begins=True, cause="ring gfx_0.0.0 timeout")]),
        (b"4 1 \n", [Reset(begins=False)]),
        (b"3 a\n4 a\n", [Reset(begins=True), Reset(begins=False)]),
        (b"1 4d2:python3\n2 4:10\nc 100 -5 3\n", []),
        (b"\n \n3\n3 zz cause\nnoise 3 1\n\xff\xfe\n", []),
    ],
)
def test_lines_of_the_kernel_tell_of_resets(said, resets):
    """As kfd_smi_events.c prints them, with and without a cause; other events and noise tell of none."""
    assert list(resets_in(said)) == resets


@given(some.binary(max_size=400))
def test_no_noise_is_more_than_no_reset(said):
    """And what is a cause can be shown."""
    assert all(len(reset.cause) <= 100 and reset.cause.isprintable() for reset in resets_in(said))


def test_events_are_asked_for_by_their_numbers():
    """Of linux/kfd_ioctl.h: 3 is before a reset, 4 after it, a bit each."""
    assert MASK == 0b1100


def test_gpus_are_known_by_their_ids_and_processors_are_none(tmp_path):
    """Each partition has an id of its own, and the place of its GPU; what may not be read is left out."""
    node = SimulatedNode.create(tmp_path, preset("amd-8-cpx"))
    slots = kfd_slots(str(node.root))
    ids = [int(file.read_text()) for file in node.root.glob("sys/devices/virtual/kfd/kfd/topology/nodes/*/gpu_id")]
    assert sorted(slots) == sorted(number for number in ids if number)
    assert len({*slots.values()}) == 8
    assert all((node.root / f"sys/bus/pci/devices/{slot}.0").exists() for slot in slots.values())
    for properties in node.root.glob("sys/devices/virtual/kfd/kfd/topology/nodes/*/properties"):
        properties.unlink()
    assert kfd_slots(str(node.root)) == {}


@pytest.mark.parametrize(
    ("device", "number"),
    [("/dev/null", errno.ENOTTY), ("/nowhere/kfd", errno.ENOENT), ("/proc/self/mem", errno.ENOTTY)],
)
def test_a_device_that_is_no_kfd_is_refused(device, number):
    """With the kernel's own word; no descriptor is left."""
    before = sorted(path.name for path in Path("/proc/self/fd").iterdir())
    with pytest.raises(OSError, match=os.strerror(number)) as error:
        amd_kfd.open_listeners(Path(device), [4711])
    assert error.value.errno == number
    assert sorted(path.name for path in Path("/proc/self/fd").iterdir()) == before


def test_a_simulated_device_refuses_as_the_real_one(tmp_path):
    """Absent, there is nothing to be heard."""
    node = SimulatedNode.create(tmp_path, preset("amd-8"))
    amd_kfd.simulated_listeners(node.root).close()
    (node.root / "dev/kfd").unlink()
    with pytest.raises(PermissionError):
        amd_kfd.simulated_listeners(node.root)


class Source:
    """The process on a simulated node."""

    def __init__(self, directory: Path) -> None:
        self.node = SimulatedNode.create(directory / "node", preset("amd-8"))
        self.address = min(path.name for path in self.node.root.glob("sys/bus/pci/drivers/amdgpu/0000:*"))
        (directory / "requests").mkdir()
        config = resolve(Config.model_validate({"host_root": self.node.root, "health": {"amd_kfd": True}}))
        request = requests_for(config, None, "boot-1")["amd-kfd"]
        (directory / "requests/amd-kfd.json").write_text(request)
        self.findings_file = spool.path_of(directory / "findings", "amd-kfd")
        self.findings_file.parent.mkdir(parents=True)
        self._directory = directory

    def start(self) -> subprocess.Popen:
        """One more, after the other has ended."""
        command = [sys.executable, str(PROCESS), str(self._directory), "amd-kfd"]
        self.process = subprocess.Popen(command, stderr=(self._directory / "log").open("a"))
        return self.process

    def said(self) -> health_pb2.Findings:
        """The findings file."""
        return spool.read_or_empty(self.findings_file, health_pb2.Findings)

    def until(self, condition, what: str) -> None:
        """Wait for it."""
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, what
            time.sleep(0.02)


@pytest.fixture
def source(tmp_path):
    made = Source(tmp_path)
    made.start()
    made.until(lambda: made.said().source, "it listens")
    yield made
    made.process.kill()
    made.process.wait()


def test_a_gpu_that_is_being_reset_is_a_finding_until_it_is_done(source):
    """Each reset is one event with its cause, and its end takes back what was before it."""
    assert ("amd-kfd", "gpu-reset") in MEANINGS
    slot = source.address.rpartition(".")[0]
    for times in (1, 2):
        faults.inject(source.node, "gpu-reset", source.address, f"hang {times}")
        source.until(lambda times=times: [one.count for one in source.said().findings] == [times], "it begins")
        [finding] = source.said().findings
        assert (finding.at.pci_address, finding.reason, finding.value) == (slot, "gpu-reset", f"hang {times}")
        assert list(source.said().evidence) == []
        faults.clear(source.node, "gpu-reset", source.address)
        source.until(lambda: source.said().evidence, "it is over")
        [end] = source.said().evidence
        assert (end.at.pci_address, end.evidence, end.reason) == (slot, "source-cleared", "gpu-reset")
        assert end.monotonic_seconds > finding.last_monotonic_seconds


def test_another_process_knows_what_was_over_and_counts_on(source):
    """A reset after the restart is a new one."""
    faults.inject(source.node, "gpu-reset", source.address)
    source.until(lambda: source.said().findings, "it begins")
    faults.clear(source.node, "gpu-reset", source.address)
    source.until(lambda: source.said().evidence, "it is over")
    source.process.kill()
    source.process.wait()
    written = source.said().timestamp_seconds
    source.start()
    source.until(lambda: source.said().timestamp_seconds > written, "another listens")
    assert [one.count for one in source.said().findings] == [1]
    assert len(source.said().evidence) == 1
    faults.inject(source.node, "gpu-reset", source.address)
    source.until(lambda: [one.count for one in source.said().findings] == [2], "the next is counted")
    assert list(source.said().evidence) == []


def test_nobody_is_asked_where_there_is_no_kfd_or_nobody_wants_it(tmp_path):
    """A node without AMD GPUs needs no such process."""
    node = SimulatedNode.create(tmp_path / "node", preset("nvidia-1"))
    config = resolve(Config.model_validate({"host_root": node.root, "health": {"amd_kfd": True}}))
    assert "amd-kfd" not in requests_for(config, None, "boot-1")
    amd = SimulatedNode.create(tmp_path / "amd", preset("amd-8"))
    wanted, not_wanted = (
        resolve(Config.model_validate({"host_root": amd.root, "health": wish})) for wish in ({"amd_kfd": True}, {})
    )
    assert json.loads(requests_for(wanted, None, "boot-1")["amd-kfd"])["socket"] == str(amd.root / "dev/kfd")
    assert "amd-kfd" not in requests_for(not_wanted, None, "boot-1")


def test_a_gpu_that_refuses_costs_no_other_and_the_device_stays_open(monkeypatch):
    """Defect: one that was gone left all unheard. While the device is open, the kernel frees nothing of the others."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)

    def listener(_kfd, gpu):
        if gpu == 6:
            raise OSError(errno.EINVAL, "no such GPU")
        ends[0].setblocking(False)
        return os.dup(ends[0].fileno())

    monkeypatch.setattr(amd_kfd, "_listener", listener)
    made = amd_kfd.open_listeners(Path("/dev/null"), [7, 6, 5])
    try:
        assert list(made.by_gpu) == [5, 7]
        ends[1].send(b"3 1 hang\n")
        assert list(made.read()) == [(5, b"3 1 hang\n")]
        assert Path(f"/proc/self/fd/{made.device}").readlink() == Path("/dev/null")
    finally:
        made.close()
        assert made.device is None
        for end in ends:
            end.close()


def test_a_reset_whose_end_nobody_heard_is_over_when_the_device_can_be_opened(source):
    """Defect: it stayed for good. KFD lets nobody open its device while it resets a GPU."""
    faults.inject(source.node, "gpu-reset", source.address)
    source.until(lambda: source.said().findings, "it begins")
    source.process.kill()
    source.process.wait()
    source.start()
    source.until(lambda: source.said().evidence, "it is over")
    assert [one.reason for one in source.said().evidence] == ["gpu-reset"]
