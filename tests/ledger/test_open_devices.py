"""Which device a node is, and who has it open: real processes and real nodes."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from not_tested import not_tested

from devherd.ledger import processes
from devherd.ledger.processes import NotSeenError, opened, own_nodes
from devherd.proto import devices_pb2

HANGING_FILE = Path(__file__).parents[1] / "faults" / "hanging_file.py"
NOBODY = 1 << 30
"""A supervisor that is none."""


@contextmanager
def terminal():
    """A device that nobody else has: the path of a terminal, and its number."""
    master, slave = os.openpty()
    number = os.fstat(slave).st_rdev
    name = os.ttyname(slave)
    os.close(slave)
    try:
        yield name, (os.major(number), os.minor(number))
    finally:
        os.close(master)


@contextmanager
def holding(name, *, title=""):
    """A process that has the terminal open, and whose title begins so."""
    with Path(name).open("rb+", buffering=0) as node:
        work = "import sys; sys.stdout.write('x'); sys.stdout.flush(); import signal; signal.pause()"
        process = subprocess.Popen(
            [title or sys.executable, "-c", work], executable=sys.executable, stdin=node, stdout=subprocess.PIPE
        )
    process.stdout.read(1)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_who_has_a_node_open_is_found_by_its_number_and_not_any_more_when_it_has_ended():
    """Name, time of start and cgroup come with it."""
    with terminal() as (name, number):
        with holding(name) as process:
            (one,) = opened({number}, (), NOBODY)
            assert (one.number, one.pid, one.command) == (
                number,
                process.pid,
                Path(f"/proc/{process.pid}/comm").read_text().strip(),
            )
            assert int(one.started) > 0
        assert opened({number}, (), NOBODY) == []


READS = "import os, sys; file = os.open(sys.argv[1], os.O_RDONLY); print('opened', flush=True); os.read(file, 1)"


@contextmanager
def hung(name, file):
    """A process that has the terminal open and reads a file whose server, another one, has taken the request."""
    file.touch()
    namespaces = ["--user", "--mount"]
    server = subprocess.Popen(
        ["unshare", "--map-root-user", *namespaces, sys.executable, HANGING_FILE, file, "text"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        if server.stdout.readline() != "mounted\n":
            not_tested("no right to mount FUSE files in a namespace")
        _tell(server, "hang")
        enter = ["nsenter", f"--target={server.pid}", *namespaces, "--preserve-credentials", "--wdns=/"]
        with Path(name).open("rb+", buffering=0) as node:
            reader = subprocess.Popen(
                [*enter, sys.executable, "-c", READS, file], stdin=node, stdout=subprocess.PIPE, text=True
            )
        assert reader.stdout.readline() == "opened\n"
        while Path(f"/proc/{reader.pid}/wchan").read_text() != "request_wait_answer":
            time.sleep(0.01)
        _tell(server, "hang")  # it takes requests before orders
        yield reader
    finally:
        server.kill()
        server.communicate()
    reader.communicate()


def _tell(server, order):
    server.stdin.write(f"{order}\n")
    server.stdin.flush()
    assert server.stdout.readline() == "done\n"


def test_a_process_that_was_killed_and_waits_in_the_kernel_is_known_as_such(tmp_path):
    """As one whose device does not answer: nothing ends it."""
    with terminal() as (name, number), hung(name, tmp_path / "hangs") as process:
        [one] = opened({number}, (), NOBODY)
        assert (one.pid, one.is_killed) == (process.pid, False)
        process.kill()
        [one] = opened({number}, (), NOBODY)
        assert (one.pid, one.is_killed) == (process.pid, True)
    assert process.returncode == -signal.SIGKILL


def test_what_is_ignored_by_name_and_what_is_devherds_does_not_count():
    """Children of the supervisor, and processes of another instance by their titles."""
    with terminal() as (name, number):
        with holding(name):
            assert opened({number}, ["py*"], NOBODY) == []
            assert opened({number}, (), os.getpid()) == []
        with holding(name, title="devherd: source nvml"):
            assert opened({number}, (), NOBODY) == []


def test_in_a_container_of_its_own_nothing_is_known_instead_of_nothing_open(monkeypatch, tmp_path):
    """Or else a device that is in use would be taken for free."""
    for pid in ("1", "self"):
        (tmp_path / pid / "ns").mkdir(parents=True)
        (tmp_path / pid / "ns/mnt").symlink_to("mnt:[4026532001]")
    (tmp_path / "self/ns/pid").symlink_to("pid:[4026532002]")
    (tmp_path / "self/status").write_text("CapEff:\t000001ffffffffff\n")
    monkeypatch.setattr(processes, "_PROC", tmp_path)
    monkeypatch.setattr(processes, "is_in_container", lambda: True)
    with pytest.raises(NotSeenError, match="only the processes of devherd's own container can be seen"):
        opened({(1, 3)}, (), NOBODY)


def test_without_the_rights_nothing_is_known_instead_of_nothing_open(monkeypatch, tmp_path):
    """The reason names what is missing."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self/status").write_text("Name:\tpre-start\nCapEff:\t0000000000000004\n")
    monkeypatch.setattr(processes, "_PROC", tmp_path)
    with pytest.raises(NotSeenError, match="CAP_SYS_PTRACE missing: add the component `ledger` in a pod"):
        opened({(1, 3)}, (), NOBODY)


def inventory(*devices):
    """An inventory; a device is its id and its paths, with a number or none."""
    message = devices_pb2.Inventory()
    for device_id, paths in devices:
        device = message.devices.add().device
        device.vendor, device.card, device.id = "generic", "card", device_id
        for path, number in paths.items():
            node = device.paths.add(path=path, is_node=True)
            if number:
                node.number.major, node.number.minor = number
    return message


def test_a_node_counts_for_the_one_device_that_has_it(tmp_path):
    """Not one that several have, nor a driver's own node, even if one device alone is there."""
    found = own_nodes(
        inventory(
            (
                "mig-1",
                {"/dev/nvidia0": (195, 0), "/dev/nvidia-caps/nvidia-cap1": (235, 1), "/dev/nvidiactl": (195, 255)},
            ),
            ("mig-2", {"/dev/nvidia0": (195, 0), "/dev/nvidia-caps/nvidia-cap2": (235, 2)}),
            ("amd", {"/dev/kfd": (234, 0), "/dev/dri/renderD128": (226, 128)}),
        ),
        tmp_path,
    )
    assert {number: (key[2], path) for number, (key, path) in found.items()} == {
        (235, 1): ("mig-1", "/dev/nvidia-caps/nvidia-cap1"),
        (235, 2): ("mig-2", "/dev/nvidia-caps/nvidia-cap2"),
        (226, 128): ("amd", "/dev/dri/renderD128"),
    }


def test_the_number_of_a_node_that_may_have_any_is_looked_up():
    """A generic device's; what is no device, or is not there, has none."""
    paths = {"/dev/full": None, "/proc/self/stat": None, "/dev/nothing": None}
    assert [*own_nodes(inventory(("full", paths)), Path("/"))] == [(1, 7)]
