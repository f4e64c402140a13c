"""The scanner hears of devices by uevents: nothing below sysfs is watched, where inotify reports nothing."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from answering import core_settings

from devherd import spool
from devherd._native import Scanner, UeventSocket
from devherd.config.loader import load, resolve
from devherd.config.model import Config
from devherd.config.resolved import write_resolved
from devherd.proto import spool_pb2
from devherd_sim.node.entry import Symlink
from devherd_sim.node.presets import PRESETS, preset
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.tree import put

PROGRAM = Path(__file__).with_name("scanner_process.py")
PORT = "dfl-port.0"
SECONDS_OF_SILENCE = 0.5


class Watched:
    """A scanner whose next rescan is a minute away, on a simulated node."""

    def __init__(self, directory: Path) -> None:
        self.node = SimulatedNode.create(directory / "host", preset("fpga-1"))
        self._resources = directory / "run/offers/device-plugin"
        self._resources.mkdir(parents=True)
        file = directory / "config.yaml"
        content = {"host_root": str(directory / "host"), "scan": {"period": "60s"}, "health": {"recover_after": 1}}
        file.write_text(json.dumps(content))
        config = resolve(load({"config": str(file), "run_dir": str(directory / "run")}, {}))
        write_resolved(directory / "run/config.json", config)
        with (directory / "log").open("wb") as log:
            self._process = subprocess.Popen([sys.executable, PROGRAM, directory / "run"], stderr=log)
        self.until(lambda: self.reasons() == [])

    def reasons(self) -> list[str] | None:
        """What is held against the port; None while it is not listed."""
        for _, found in spool.read_all(self._resources, spool_pb2.Resource):
            for device in found.devices:
                if device.id == PORT:
                    return list(device.reasons)
        return None

    def resources(self) -> list[tuple[str, spool_pb2.Resource]]:
        """All resources by key."""
        return list(spool.read_all(self._resources, spool_pb2.Resource))

    def until(self, condition) -> float:
        """Seconds until something is so."""
        began = time.monotonic()
        while not condition():
            assert time.monotonic() - began < 20, self.reasons()
            time.sleep(0.005)
        return time.monotonic() - began

    def is_unaware(self, reasons: list[str] | None) -> bool:
        """Whether the scanner goes on listing the port as before."""
        time.sleep(SECONDS_OF_SILENCE)
        return self.reasons() == reasons

    def end(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


@pytest.fixture
def watched(tmp_path):
    scanner = Watched(tmp_path)
    yield scanner
    scanner.end()


@pytest.mark.parametrize("action", ["add", "remove", "bind", "unbind", "change"])
def test_a_change_in_sysfs_is_seen_at_its_uevent_and_not_before(watched, action):
    """Whatever the event is about. Here sysfs is a disk on which inotify would tell; a real one never does."""
    entry = watched.node.root / "sys/class/fpga_region/region0"
    target = entry.readlink()

    entry.unlink()
    assert watched.is_unaware([])
    watched.node.uevents.send(action, entry.parent / target)
    watched.until(lambda: watched.reasons() == ["gone"])

    put(Symlink(str(entry.relative_to(watched.node.root)), str(target)), watched.node.root)
    assert watched.is_unaware(["gone"])
    watched.node.uevents.send(action, entry.parent / target)
    watched.until(lambda: watched.reasons() == [])


def test_what_somebody_loads_into_a_port_without_an_event_is_seen_within_seconds(watched):
    """The kernel sends none when a port is programmed; the next rescan is a minute away."""
    [(before, _)] = watched.resources()
    [file] = (watched.node.root / "sys/devices").glob(f"**/{PORT}/afu_id")
    file.write_text("f7df405cbd7acf7222f144b0b93acd18\n")
    watched.until(lambda: before not in dict(watched.resources()) and watched.reasons() == [])


def test_a_card_that_comes_goes_and_comes_again_is_seen_each_time(watched):
    """The simulated node sends what the kernel would."""
    [other] = watched.node.add_card()
    card = watched.node.pci_function_of(PORT)
    assert other != PORT
    watched.node.remove_card(PORT)
    watched.until(lambda: watched.reasons() == ["gone"])
    assert not card.exists()


def test_nothing_in_sysfs_or_procfs_is_watched_and_dev_is(tmp_path):
    """inotify(7): "/proc, /sys and /dev/pts are not monitorable"."""
    for name in PRESETS:
        root = tmp_path / name
        SimulatedNode.create(root, preset(name))
        paths = ["/sys/class/tty/*", "/proc/interrupts", "/dev/serial/*", "/run/x.sock"]
        groups = [{"paths": [{"path": path}]} for path in paths]
        config = Config(host_root=root, generic=[{"name": "a.example/x", "groups": groups}])
        native = Scanner(str(root), config.native_json())
        native.scan()
        watched = [str(Path(directory).relative_to(root)) for directory in native.watched_directories()]
        assert "dev" in watched
        assert [directory for directory in watched if directory.partition("/")[0] in ("sys", "proc")] == []


def test_the_directories_of_found_nodes_are_watched(tmp_path):
    """A node that somebody removes is noticed at once, whichever vendor's it is."""
    for name, directory in [("amd-1", "dev/dri"), ("intel-gpu-2", "dev/dri"), ("rdma-2", "dev/infiniband")]:
        root = tmp_path / name
        SimulatedNode.create(root, preset(name))
        native = Scanner(str(root), core_settings(root))
        native.scan()
        assert str(root / directory) in native.watched_directories()


def test_a_listener_that_does_not_read_delays_the_node_only_a_moment(tmp_path):
    """As the kernel, the node does not wait for it: what it loses, the periodic rescan finds."""
    node = SimulatedNode.create(tmp_path, preset("fpga-1"))
    deaf, hearing = UeventSocket(str(tmp_path)), UeventSocket(str(tmp_path))
    began = time.monotonic()
    for _ in range(3):
        node.add_card()
    assert time.monotonic() - began < 5
    assert hearing.drain()[0] == deaf.drain()[0] != []
    node.uevents.send("change", node.pci_function_of(PORT))
    [event], lost = hearing.drain()
    assert (event["ACTION"], event["SUBSYSTEM"], lost) == ("change", "pci", False)
    deaf.close()
    hearing.close()
