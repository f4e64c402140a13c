"""Cards and paths at which the kernel hangs: FUSE files in the place of attributes and nodes, of several vendors."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hurried import hurried
from not_tested import not_tested

from devherd.config.model import Config
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode

HANGING_FILE = Path(__file__).parents[1] / "faults" / "hanging_file.py"
FUSE = "unshare --user --map-root-user --mount true && test -w /dev/fuse"
PCI = "sys/devices/pci0000:00"
HUNG = {
    "intel-fpga": ["0000:00:01.0/0000:01:00.0/numa_node"],
    "nvidia": ["0000:00:01.2/0000:03:00.0/0000:04:00.0/0000:05:00.0/numa_node"],
    "amd": ["0000:00:02.2/0000:0b:00.0/numa_node", "0000:00:02.3/0000:0c:00.0/numa_node"],
    "intel-gpu": ["0000:00:02.6/0000:0f:00.0/numa_node"],
    "xilinx-fpga": ["0000:00:03.0/0000:11:00.1/numa_node"],
    "rdma": ["0000:00:03.1/0000:12:00.0/numa_node", "0000:00:03.2/0000:13:00.0/numa_node"],
}
"""Attributes of the node `everything` that are read in each scan. They read as 0 as long as they do not hang."""
PROBE_TIMEOUT = 2.0
SCANS = """
import json, sys, time
from devherd._native import Poller, Scanner
scanner = Scanner(*sys.argv[1:])
poller = Poller(scanner)
while sys.stdin.readline():
    start = time.monotonic()
    beats = [start]
    beat = lambda: beats.append(time.monotonic())
    scan = scanner.scan(beat)
    poller.watch(scan, [])
    faults = poller.poll(beat)
    beats.append(time.monotonic())
    unseen = sorted([part.vendor, part.card or "", part.finding.reason if part.finding else ""] for part in scan.unseen)
    gap = max(later - earlier for earlier, later in zip(beats, beats[1:]))
    print(json.dumps([beats[-1] - start, gap, unseen, len(scan.devices)]), flush=True)
"""


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The root of a node with devices of every vendor."""
    root = SimulatedNode.create(tmp_path / "node", preset("everything")).root
    for path in attributes(root):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    return root


def attributes(root: Path) -> list[Path]:
    """The files that will hang."""
    return [root / PCI / name for names in HUNG.values() for name in names]


@contextmanager
def hanging_files(first: Path, *others: Path) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The process that serves them, which takes `hang` and `flow`, and the command that enters its namespaces."""
    if subprocess.run(["sh", "-c", FUSE], capture_output=True, check=False).returncode:
        not_tested("no right to mount FUSE files in a namespace")
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, HANGING_FILE, first, "0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "mounted\n"
        enter = ["nsenter", f"--target={server.pid}", "--user", "--mount", "--preserve-credentials", "--wdns=/"]
        for other in others:
            subprocess.run([*enter, "mount", "--bind", first, other], check=True)
        try:
            yield server, enter
        finally:
            server.kill()


def tell(process: subprocess.Popen[str], order: str) -> str:
    """One line to a process, and its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{order}\n")
    process.stdin.flush()
    return process.stdout.readline()


def test_hung_cards_of_six_vendors_cost_one_deadline_and_the_scanners_heart_beats(node: Path) -> None:
    """One vendor after another they took 12 s, and a scanner that is silent for 10 s is replaced."""
    settings = Config.model_validate({"scan": {"probe_timeout": PROBE_TIMEOUT}}).native_json()
    cards = sorted([vendor, Path(name).parts[-2], "probe-timeout"] for vendor, names in HUNG.items() for name in names)
    with hanging_files(*attributes(node)) as (server, enter):
        command = [*enter, sys.executable, "-c", SCANS, str(node), settings]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as scanning:
            _, _, unseen, before = json.loads(tell(scanning, "scan"))
            assert unseen == []
            tell(server, "hang")
            seconds, longest_silence, unseen, seen = json.loads(tell(scanning, "scan"))
            assert unseen == cards
            assert 0 < before - seen < before / 2
            assert seconds < PROBE_TIMEOUT * 2.5
            assert longest_silence < PROBE_TIMEOUT
            assert json.loads(tell(scanning, "scan"))[2] == cards
            tell(server, "flow")
            deadline = time.monotonic() + 20
            while (latest := json.loads(tell(scanning, "scan")))[2] != []:
                assert time.monotonic() < deadline, latest
            assert latest[3] == before
            assert scanning.stdin is not None
            scanning.stdin.close()


def test_a_scanner_that_waits_longer_than_the_silence_limit_is_not_replaced(node: Path, tmp_path: Path) -> None:
    """The limit is 2 s here and a probe may take 5: it lives through the wait, and the devices become Unhealthy."""
    config, log = tmp_path / "config.yaml", tmp_path / "log"
    (tmp_path / "kubelet" / "device-plugins").mkdir(parents=True)
    options = {
        "host_root": str(node),
        "kubelet_dir": str(tmp_path / "kubelet"),
        "run_dir": str(tmp_path / "run"),
        "listen": "",
        "scan": {"probe_timeout": 5, "period": "500ms"},
    }
    config.write_text(json.dumps(options))

    def asked(*command: str) -> str:
        arguments = [sys.executable, "-m", "devherd", *command[:1], "--run-dir", str(tmp_path / "run"), *command[1:]]
        return subprocess.run(arguments, capture_output=True, text=True, check=False).stdout

    def until(wanted: str, *command: str) -> None:
        deadline = time.monotonic() + 40
        while wanted not in asked(*command):
            assert time.monotonic() < deadline, f"{asked(*command)}\n{log.read_text()}"
            time.sleep(0.2)

    with hanging_files(*attributes(node)) as (server, enter), log.open("w") as stderr:
        command = [*enter, *hurried(silence=2.0), "run", f"--config={config}"]
        with subprocess.Popen(command, stderr=stderr) as herd:
            try:
                until("RUNNING", "ctl", "status", "scanner")
                until("0000:0b:00.0", "status", "--output", "json")
                pid = asked("ctl", "pid", "scanner")
                tell(server, "hang")
                until("probe-timeout", "status", "--output", "json")
                assert asked("ctl", "pid", "scanner") == pid
                assert "heartbeat" not in log.read_text()
            finally:
                tell(server, "flow")
                herd.terminate()
                assert herd.wait(30) == 0, log.read_text()


POLLS = """
import json, sys, time
from pathlib import Path
from devherd.config.model import Config
from devherd.config.loader import resolve
from devherd.scanner.observer import Observer
config = {"host_root": sys.argv[1], "scan": {"probe_timeout": float(sys.argv[2])}}
beats = []
observer = Observer(resolve(Config.model_validate(config)), beat=lambda: beats.append(time.monotonic()))
while sys.stdin.readline():
    beats[:] = [time.monotonic()]
    scan = observer.scan(beats[0])
    observer.poll(periodic=True)
    beats.append(time.monotonic())
    gap = max(later - earlier for earlier, later in zip(beats, beats[1:]))
    failed = dict(observer.policy.seen.failed)
    print(json.dumps([gap, failed, len(scan.devices), len(observer.policy.verdicts())]), flush=True)
"""


def test_a_listing_of_drivers_dumps_that_hangs_fails_its_source_alone(node: Path) -> None:
    """The scanner's heart goes on beating, no device is blamed, and the listing goes on when the kernel answers."""
    dumps = node / "sys/class/devcoredump"
    dumps.mkdir(parents=True)
    hangs = "a read has not come back within 1 s; look for blocked tasks in the kernel log"
    with hanging_files(dumps) as (server, enter):
        command = [*enter, sys.executable, "-c", POLLS, str(node), "1"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as polling:
            _, failed, devices, ill = json.loads(tell(polling, "poll"))
            assert (failed, devices > 0) == ({}, True)
            tell(server, "hang")
            for _ in range(2):
                gap, failed, *others = json.loads(tell(polling, "poll"))
                assert (failed, others) == ({"device-dump": f"/sys/class/devcoredump: {hangs}"}, [devices, ill])
                assert gap < PROBE_TIMEOUT
            tell(server, "flow")
            deadline = time.monotonic() + 20
            while json.loads(tell(polling, "poll"))[1]:
                assert time.monotonic() < deadline
            assert polling.stdin is not None
            polling.stdin.close()


@pytest.mark.parametrize("pattern", ["/dev/many/d*", "/dev/many/d0"])
def test_a_file_system_that_hangs_at_a_path_in_memory_ends_no_scan(pattern: str, tmp_path: Path) -> None:
    """Such a path is looked at without a deadline as long as that asks memory alone: the mount on it is not asked."""
    many = tmp_path / "node/dev/many"
    many.mkdir(parents=True)
    for name in ("d0", "d1"):
        (many / name).touch()
    generic = [{"name": "example.com/many", "groups": [{"paths": [{"path": pattern}]}]}]
    config = {"host_root": tmp_path / "node", "scan": {"probe_timeout": PROBE_TIMEOUT}, "generic": generic}
    settings = json.dumps(
        json.loads(Config.model_validate(config).native_json())
        | {"simulated_host": True, "probe_timeout": PROBE_TIMEOUT}
    )
    with hanging_files(many / "d0") as (server, enter):
        command = [*enter, sys.executable, "-c", SCANS, str(tmp_path / "node"), settings]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as scanning:
            for _ in range(2):
                _, _, unseen, _ = json.loads(tell(scanning, "scan"))
                assert unseen == []
            tell(server, "freeze")
            (many / "d2").touch()
            _, longest_silence, unseen, _ = json.loads(tell(scanning, "scan"))
            assert unseen == [["generic", "example.com/many group 0", "probe-timeout"]]
            assert longest_silence < PROBE_TIMEOUT
            tell(server, "flow")
            assert scanning.stdin is not None
            scanning.stdin.close()
