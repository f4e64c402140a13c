"""The scanner as a process: a host tree in, spool files out."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from descriptors import none_for
from not_tested import not_tested
from test_host_events import provoke_event

from devherd import counters, spool
from devherd._native import DirectoryWatch
from devherd.config.loader import load, resolve
from devherd.config.model import Config
from devherd.config.resolved import write_resolved
from devherd.process import RENEW, Child, Heartbeats
from devherd.proto import spool_pb2
from devherd.scanner.files import ScannerFiles
from devherd.scanner.host_events import HostEvents
from devherd.scanner.loop import Loop, first_scan
from devherd.settings import Settings
from devherd.spool import listed
from devherd_sim.node.amd import AmdSpec
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec

PROGRAM = Path(__file__).with_name("scanner_process.py")
PATIENCE_SECONDS = 20.0


class ScannerProcess:
    """A scanner on a host tree of plain files."""

    def __init__(self, directory: Path) -> None:
        self.host = directory / "host"
        self.run_dir = directory / "run"
        self.config = directory / "config.yaml"
        self.log = directory / "log"
        for path in (self.host / "dev", self.host / "sys", self.run_dir / "offers/device-plugin"):
            path.mkdir(parents=True)
        (self.host / ".devherd-simulated-node").touch()
        self.process: subprocess.Popen[bytes] | None = None

    def configure(self, text: str) -> None:
        """Leave the configuration as the loader does."""
        self.config.write_text(f"host_root: {self.host}\n{text}")
        config = resolve(load({"config": str(self.config), "run_dir": str(self.run_dir)}, {}))
        write_resolved(self.run_dir / "config.json", config)

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([sys.executable, PROGRAM, self.run_dir], stderr=log)

    def signal(self, number: int) -> int | None:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_SECONDS) if number in (signal.SIGTERM, signal.SIGKILL) else None

    def spooled(self) -> dict[str, dict[str, list[str]]]:
        """Resource name → device id → reasons."""
        found = spool.read_all(self.run_dir / "offers/device-plugin", spool_pb2.Resource)
        return {one.name: {device_id: list(device.reasons) for device_id, device in listed(one)} for _, one in found}

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"{self.spooled()}\n{self.log.read_text()}"
            time.sleep(0.01)

    def counted(self, metric, *labels: str) -> float:
        """What the scanner has written of a counter, or of a histogram's sum."""
        written = spool.read_or_empty(self.run_dir / "scanner.pb", spool_pb2.ScannerState).counters
        return next((each.total for each in written if (each.metric, *each.labels) == (metric.name, *labels)), 0.0)


@pytest.fixture
def scanner(tmp_path):
    process = ScannerProcess(tmp_path)
    yield process
    if process.process is not None and process.process.poll() is None:
        process.signal(signal.SIGKILL)


SIMULATED = [{"name": "example.com/a", "count": 1}]
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
    said = "no device matches; a.example/x is not advertised"

    def times() -> int:
        return sum(said in line and "solved: " not in line for line in scanner.log.read_text().split("\n"))

    scanner.start()
    scanner.until(lambda: times() == 1)
    scanner.until((scanner.run_dir / "scan.pb").exists)
    written = (scanner.run_dir / "scan.pb").stat().st_mtime_ns
    scanner.until(lambda: (scanner.run_dir / "scan.pb").stat().st_mtime_ns > written + 200_000_000)
    scanner.signal(signal.SIGKILL)
    scanner.start()
    (scanner.host / "dev/x").touch()
    scanner.until(lambda: list(scanner.spooled()) == ["a.example/x"])
    scanner.until(lambda: scanner.log.read_text().count(f"solved: {said}") == 1)  # written after the offers
    assert times() == 1
    (scanner.host / "dev/x").unlink()
    scanner.until(lambda: times() == 2)


def test_where_the_kernel_reports_changes_a_host_on_which_all_is_well_is_scanned_each_half_minute(scanner):
    """Each five seconds while something is not well; and at once at an event of the kernel."""
    (scanner.host / ".devherd-simulated-node").unlink()
    (scanner.host / "dev/kvm").touch()
    scanner.configure("generic: [{name: devic.es/kvm, groups: [{paths: [{path: /dev/kvm, type: Mount}]}]}]\n")
    scanner.start()
    scanner.until(lambda: scanned(scanner).period_seconds > 0)
    if "no inotify" in scanner.log.read_text():
        not_tested("what inotify reports: no instance of it is left on this machine")
    scanner.until(lambda: scanned(scanner).period_seconds == 30)
    before = scanned(scanner).monotonic_seconds

    provoke_event()
    scanner.until(lambda: scanned(scanner).monotonic_seconds > before)

    (scanner.host / "dev/kvm").unlink()
    scanner.until(lambda: all(reasons(scanner)) and scanned(scanner).period_seconds == 5)


def scanned(scanner: ScannerProcess) -> spool_pb2.ScanSummary:
    """What the scanner has written about its last scan."""
    return spool.read_or_empty(scanner.run_dir / "scan.pb", spool_pb2.ScanSummary)


def test_polls_that_find_nothing_write_no_file(scanner):
    """But how long they took, each ten seconds."""
    (scanner.host / "dev/kvm").touch()
    scanner.configure(KVM + SLOW_SCAN)
    scanner.start()
    scanner.until(lambda: reasons(scanner) == [[], []] and scanner.counted(counters.SCANS, "generic") > 0)
    scanner.until(lambda: is_quiet(scanner.run_dir))  # not at once: what was counted meanwhile is written

    assert scanner.signal(signal.SIGTERM) == 0
    assert scanner.counted(counters.POLL_DURATION) > 0


def is_quiet(directory: Path) -> bool:
    """Whether forty polls write nothing."""
    before = written(directory)
    time.sleep(2)
    return written(directory) == before


def written(directory: Path) -> dict[str, int]:
    """When each file was written."""
    return {str(path): path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}


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
    before = spool.path_of(scanner.run_dir / "offers/device-plugin", "a.b_x").stat().st_ino

    scanner.configure("simulated: [{name: a.b/x, count: 1}, {name: a.b/z, count: 3}]\n" + SLOW_SCAN)
    scanner.signal(signal.SIGHUP)

    scanner.until(lambda: set(scanner.spooled()) == {"a.b/x", "a.b/z"})
    assert spool.path_of(scanner.run_dir / "offers/device-plugin", "a.b_x").stat().st_ino == before


def test_a_scanner_that_finds_no_configuration_waits_for_it(scanner):
    """A run directory that was swept away is filled again by others; until then the scanner lives and says why."""
    scanner.start()
    scanner.until(lambda: "config.json: No such file or directory; waiting for it" in scanner.log.read_text())

    scanner.configure("simulated: [{name: a.b/x, count: 1}]\n")

    scanner.until(lambda: set(scanner.spooled()) == {"a.b/x"})
    assert scanner.log.read_text().count("waiting for it") == 1


def test_a_configuration_that_cannot_be_read_at_a_reload_changes_nothing(scanner):
    """Also one that another version of devherd has left there."""
    scanner.configure("simulated: [{name: a.b/x, count: 1}]\n")
    scanner.start()
    scanner.until(lambda: set(scanner.spooled()) == {"a.b/x"})

    (scanner.run_dir / "config.json").write_text('{"colour": "green"}')
    scanner.signal(signal.SIGHUP)
    scanner.until(lambda: "not a resolved configuration: 'colour'" in scanner.log.read_text())

    assert set(scanner.spooled()) == {"a.b/x"}
    assert scanner.signal(signal.SIGTERM) == 0
    assert "Traceback" not in scanner.log.read_text()


def test_a_configuration_that_no_descriptor_was_left_for_is_loaded_once_there_is_one(scanner):
    """Defect: the old one stayed until somebody reloaded again, and nothing but a line of the log said so."""
    scanner.configure("simulated: [{name: a.b/x, count: 1}]\n")
    scanner.start()
    scanner.until(lambda: set(scanner.spooled()) == {"a.b/x"})
    with none_for(scanner.process.pid):
        scanner.configure("simulated: [{name: a.b/y, count: 1}]\n")
        scanner.process.send_signal(signal.SIGHUP)
        scanner.until(lambda: "not reloaded, the old one stays" in scanner.log.read_text())
    scanner.until(lambda: set(scanner.spooled()) == {"a.b/y"})
    assert scanner.log.read_text().count("not reloaded") == 1


def test_a_scanner_without_descriptors_goes_on_and_says_later_what_it_has_seen_meanwhile(scanner):
    """Defect: it crashed after its next scan, as it could not list the directories of findings."""
    (scanner.host / "dev/kvm").touch()
    scanner.configure(KVM)
    scanner.start()
    scanner.until(lambda: reasons(scanner) == [[], []])
    with none_for(scanner.process.pid):
        (scanner.host / "dev/kvm").unlink()
        scanner.until(lambda: "cannot write the spool: [Errno 24]" in scanner.log.read_text())
    scanner.until(lambda: all(reasons(scanner)))
    assert scanner.process.poll() is None


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


def test_a_scanner_killed_before_its_summary_is_written_still_knows_a_device_that_is_gone(scanner):
    """The options under which a device was found stand beside it: without them it would be taken for deselected."""
    (scanner.host / "dev/kvm").touch()
    scanner.configure(KVM + SLOW_SCAN)
    scanner.start()
    scanner.until(lambda: reasons(scanner) == [[], []])
    scanner.signal(signal.SIGKILL)
    (scanner.run_dir / "scan.pb").unlink(missing_ok=True)
    (scanner.host / "dev/kvm").unlink()

    scanner.start()

    scanner.until(lambda: reasons(scanner) == [["gone"], ["gone"]])


def test_what_is_offered_is_known_however_early_the_scanner_is_killed(tmp_path, monkeypatch):
    """devices.pb stands before the offer: a scanner killed between the two would forget the device."""
    order = []
    update = spool.update
    monkeypatch.setattr(spool, "update", lambda path, content: order.append(path.name) or update(path, content))
    config = Config.model_validate(
        {"run_dir": tmp_path / "run", "host_root": tmp_path / "host", "simulated": SIMULATED}
    )
    (tmp_path / "run").mkdir()

    first_scan(resolve(config))

    assert order.index("devices.pb") < order.index("current.pb")
    assert order.index("verdicts.pb") < order.index("current.pb")


def test_a_node_that_goes_while_the_configuration_is_reloaded_costs_no_device_what_containers_get(scanner, monkeypatch):
    """Until the next scan the devices are those of the old configuration: the new one has nothing for them."""
    (scanner.host / "dev/many").mkdir()
    for name in "abc":
        (scanner.host / "dev/many" / name).touch()
    resource = "generic: [{{name: devic.es/{}, groups: [{{paths: [{{path: /dev/many/*, type: Mount}}]}}]}}]\n"
    resource += "scan: {{period: 60s}}"
    scanner.configure(resource.format("old"))
    heartbeats = Heartbeats(1)
    loop = Loop(Child("scanner", Settings(run_dir=scanner.run_dir), heartbeats, heartbeats.claim()))
    published: list[tuple[str, set[int]]] = []
    publish = loop._files.publish

    def noted(*, looks: bool = True) -> bool:
        is_complete = publish(looks=looks)
        for _, one in spool.read_all(scanner.run_dir / "offers/device-plugin", spool_pb2.Resource):
            published.append((one.name, {len(device.edits.mounts) for device in one.devices}))
        return is_complete

    monkeypatch.setattr(loop._files, "publish", noted)
    with HostEvents(watch=DirectoryWatch()) as events:
        loop._go_round(events)
        (scanner.host / "dev/many/b").unlink()
        loop._go_round(events)
        assert published == [("devic.es/old", {1})] * 2
        scanner.configure(resource.format("new"))
        loop.ask_to_reload()
        (scanner.host / "dev/many/c").unlink()
        loop._go_round(events)
    assert published[2:] == [("devic.es/new", {1})]


def test_a_scanner_beats_for_each_device_while_it_publishes(tmp_path):
    """With tens of thousands a publication takes seconds: without a beat it would be ended, and begin anew for ever."""
    settings = Settings(run_dir=tmp_path / "run", kubelet_dir=tmp_path / "kubelet")
    settings.run_dir.mkdir()
    config = resolve(
        Config.model_validate({"host_root": tmp_path, "simulated": [{"name": "example.com/a", "count": 50}]})
    )
    beats = []
    work = ScannerFiles(config, settings, lambda: beats.append(1))
    work.observer.scan(time.monotonic())
    before = len(beats)

    assert work.publish()

    assert len(beats) - before >= 50


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_restarted_scanner_counts_on_where_the_last_one_stopped(scanner, end):
    """Scans, polls and changes of health: what it wrote last is what its successor begins with."""
    (scanner.host / "dev/kvm").touch()
    scanner.configure(KVM + SLOW_SCAN)
    scanner.start()
    scanner.until(lambda: reasons(scanner) == [[], []])
    (scanner.host / "dev/kvm").unlink()
    devices = ["devic.es/kvm", next(iter(scanner.spooled()["devic.es/kvm"]))]
    scanner.until(lambda: scanner.counted(counters.HEALTH_CHANGES, *devices) == 1)
    scanner.signal(end)
    scans, polls = scanner.counted(counters.SCANS, "generic"), scanner.counted(counters.POLL_DURATION)
    assert scans > 0

    scanner.start()
    scanner.until(lambda: scanner.counted(counters.SCANS, "generic") > scans)
    (scanner.host / "dev/kvm").touch()
    scanner.until(lambda: scanner.counted(counters.HEALTH_CHANGES, *devices) == 2)
    assert scanner.counted(counters.POLL_DURATION) > polls > 0


def test_a_spool_that_cannot_be_written_is_said_and_healed(scanner):
    """Something in its way must not end the scanner."""
    scanner.configure("simulated: [{name: a.b/x, count: 1}]\n" + SLOW_SCAN)
    spool_directory = scanner.run_dir / "offers/device-plugin"
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

    path = scanner.run_dir / "offers/device-plugin"
    shutil.rmtree(path) if what == "directory" else spool.path_of(path, "a.b_x").unlink()

    scanner.until(lambda: set(scanner.spooled()) == {"a.b/x"})


def test_what_was_changing_during_a_scan_is_looked_at_again_soon(scanner):
    """No event tells of KFD's topology, one look does not believe it, and the next regular one is a minute away."""
    gpu = AmdSpec(model="mi300x", compute_partition="CPX")
    before = NodeSpec(amd=[gpu])
    node = SimulatedNode.create(scanner.host, before)
    scanner.configure("scan: {period: 60s}\n")
    scanner.start()
    scanner.until(lambda: len(scanner.spooled().get("amd.com/gpu", {})) == 8)

    node.change(before, NodeSpec(amd=[gpu.model_copy(update={"compute_partition": "SPX"})]))
    scanner.signal(signal.SIGHUP)

    scanner.until(lambda: list(scanner.spooled()["amd.com/gpu"].values()).count(["gone"]) == 7)


def test_what_was_counted_last_is_kept_when_the_scanner_ends_for_a_new_sandbox(scanner, monkeypatch):
    """Counts are written each second at most: the end of a process is no reason to lose some."""
    scanner.configure(KVM)
    heartbeats = Heartbeats(1)
    loop = Loop(Child("scanner", Settings(run_dir=scanner.run_dir), heartbeats, heartbeats.claim()))

    def has_to_be_renewed():
        loop._observer.counters.add(counters.KERNEL_LOG_LOST, amount=7)
        return True

    monkeypatch.setattr(loop, "_has_to_be_renewed", has_to_be_renewed)
    assert loop.run() == RENEW
    assert scanner.counted(counters.KERNEL_LOG_LOST) == 7
