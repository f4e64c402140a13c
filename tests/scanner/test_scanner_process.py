"""The scanner as a process: a host tree in, spool files out."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from devherd import spool
from devherd.proto import spool_pb2

PROGRAM = Path(__file__).with_name("scanner_process.py")
PATIENCE_SECONDS = 20.0


class ScannerProcess:
    """A scanner on a host tree of plain files."""

    def __init__(self, directory: Path) -> None:
        self.host = directory / "host"
        self.run_dir = directory / "run"
        self.config = directory / "config.yaml"
        self.log = directory / "log"
        for path in (self.host / "dev", self.host / "sys", self.run_dir / "resources"):
            path.mkdir(parents=True)
        (self.host / ".devherd-simulated-node").touch()
        self.process: subprocess.Popen[bytes] | None = None

    def configure(self, text: str) -> None:
        self.config.write_text(f"host_root: {self.host}\n{text}")

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([sys.executable, PROGRAM, self.run_dir, self.config], stderr=log)

    def signal(self, number: int) -> int | None:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_SECONDS) if number in (signal.SIGTERM, signal.SIGKILL) else None

    def spooled(self) -> dict[str, dict[str, list[str]]]:
        """Resource name → device id → reasons."""
        found = spool.read_all(self.run_dir / "resources", spool_pb2.Resource)
        return {one.name: {device.id: list(device.reasons) for device in one.devices} for _, one in found}

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"{self.spooled()}\n{self.log.read_text()}"
            time.sleep(0.01)


@pytest.fixture
def scanner(tmp_path):
    process = ScannerProcess(tmp_path)
    yield process
    if process.process is not None and process.process.poll() is None:
        process.signal(signal.SIGKILL)


KVM = "generic: [{name: devic.es/kvm, groups: [{count: 2, paths: [{path: /dev/kvm}]}]}]\n"
SLOW_SCAN = "scan: {period: 60s}\nhealth: {poll: 50ms, recover_after: 2}\n"


def reasons(scanner: ScannerProcess, name: str = "devic.es/kvm") -> list[list[str]]:
    return list(scanner.spooled().get(name, {}).values())


def test_a_node_that_vanishes_and_returns_is_told_without_waiting_for_a_rescan(scanner):
    """Events first: the rescan period here is a minute."""
    (scanner.host / "dev/kvm").touch()
    scanner.configure(KVM + SLOW_SCAN)
    scanner.start()
    scanner.until(lambda: reasons(scanner) == [[], []])

    (scanner.host / "dev/kvm").unlink()
    scanner.until(lambda: len(reasons(scanner)) == 2 and all(reasons(scanner)))
    (scanner.host / "dev/kvm").touch()
    scanner.until(lambda: reasons(scanner) == [[], []])

    assert scanner.signal(signal.SIGTERM) == 0


def test_a_device_that_appears_later_is_found(scanner):
    """A driver that loads late needs no restart."""
    scanner.configure(KVM + SLOW_SCAN)
    scanner.start()
    scanner.until((scanner.run_dir / "scan.pb").exists)

    (scanner.host / "dev/kvm").touch()

    scanner.until(lambda: reasons(scanner) == [[], []])


def test_a_resource_of_which_nothing_is_there_is_logged_once_and_not_with_each_scan(scanner):
    """Nor by the scanner's successor; when it was there in between, it is news again."""
    scanner.configure("scan: {period: 50ms}\ngeneric: [{name: a.example/x, groups: [{paths: [{path: /dev/x}]}]}]")
    said = "nothing on this host matches, so there is no a.example/x"
    scanner.start()
    scanner.until(lambda: scanner.log.read_text().count(said) == 1)
    written = (scanner.run_dir / "scan.pb").stat().st_mtime_ns
    scanner.until(lambda: (scanner.run_dir / "scan.pb").stat().st_mtime_ns > written + 200_000_000)
    scanner.signal(signal.SIGKILL)
    scanner.start()
    (scanner.host / "dev/x").touch()
    scanner.until(lambda: list(scanner.spooled()) == ["a.example/x"])
    assert scanner.log.read_text().count(said) == 1
    (scanner.host / "dev/x").unlink()
    scanner.until(lambda: scanner.log.read_text().count(said) == 2)


def test_without_events_the_periodic_rescan_sees_everything(scanner):
    """The safety net holds alone."""
    scanner.configure(KVM + "scan: {period: 100ms, events: false}\nhealth: {poll: 100ms, recover_after: 1}\n")
    scanner.start()
    scanner.until((scanner.run_dir / "scan.pb").exists)

    (scanner.host / "dev/kvm").touch()
    scanner.until(lambda: reasons(scanner) == [[], []])
    (scanner.host / "dev/kvm").unlink()

    scanner.until(lambda: len(reasons(scanner)) == 2 and all(reasons(scanner)))


def test_a_good_reload_touches_only_what_it_changes(scanner):
    """The other resource's file keeps its inode: its child is not even woken."""
    scanner.configure("simulated: [{name: a.b/x, count: 1}, {name: a.b/y, count: 1}]\n" + SLOW_SCAN)
    scanner.start()
    scanner.until(lambda: set(scanner.spooled()) == {"a.b/x", "a.b/y"})
    before = (scanner.run_dir / "resources/a.b_x.pb").stat().st_ino

    scanner.configure("simulated: [{name: a.b/x, count: 1}, {name: a.b/z, count: 3}]\n" + SLOW_SCAN)
    scanner.signal(signal.SIGHUP)

    scanner.until(lambda: set(scanner.spooled()) == {"a.b/x", "a.b/z"})
    assert (scanner.run_dir / "resources/a.b_x.pb").stat().st_ino == before


def test_a_bad_reload_changes_nothing_and_says_which_key(scanner):
    """The old configuration stays in force, also over a restart of the scanner."""
    scanner.configure("simulated: [{name: a.b/x, count: 1}]\n")
    scanner.start()
    scanner.until(lambda: set(scanner.spooled()) == {"a.b/x"})

    scanner.configure("simulatd: []\n")
    scanner.signal(signal.SIGHUP)
    scanner.until(lambda: "simulatd: unknown key; did you mean `simulated`?" in scanner.log.read_text())
    scanner.signal(signal.SIGKILL)
    summary = scanner.run_dir / "scan.pb"
    summary.unlink()
    scanner.start()
    scanner.until(summary.exists)

    assert "going on with the last good one" in scanner.log.read_text()
    assert set(scanner.spooled()) == {"a.b/x"}
    assert scanner.signal(signal.SIGTERM) == 0
    assert "Traceback" not in scanner.log.read_text()


def test_a_killed_scanner_still_knows_a_device_that_is_gone(scanner):
    """Gone devices stay Unhealthy in the list over a restart of the scanner."""
    (scanner.host / "dev/kvm").touch()
    scanner.configure(KVM + SLOW_SCAN)
    scanner.start()
    scanner.until(lambda: reasons(scanner) == [[], []])
    scanner.signal(signal.SIGKILL)
    (scanner.host / "dev/kvm").unlink()

    scanner.start()

    scanner.until(lambda: reasons(scanner) == [["gone"], ["gone"]])


def test_a_spool_that_cannot_be_written_is_said_and_healed(scanner):
    """Something in its way must not end the scanner."""
    scanner.configure("simulated: [{name: a.b/x, count: 1}]\n" + SLOW_SCAN)
    spool_directory = scanner.run_dir / "resources"
    spool_directory.rmdir()
    spool_directory.touch()
    scanner.start()
    scanner.until(lambda: "cannot write the spool" in scanner.log.read_text())

    spool_directory.unlink()

    scanner.until(lambda: set(scanner.spooled()) == {"a.b/x"})


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_spool_that_somebody_removed_is_written_again(scanner, what):
    """Its children would take a missing file for a resource that is gone for good."""
    scanner.configure("simulated: [{name: a.b/x, count: 1}]\n" + SLOW_SCAN)
    scanner.start()
    scanner.until(lambda: set(scanner.spooled()) == {"a.b/x"})

    path = scanner.run_dir / "resources"
    shutil.rmtree(path) if what == "directory" else (path / "a.b_x.pb").unlink()

    scanner.until(lambda: set(scanner.spooled()) == {"a.b/x"})
