"""Who really holds which device, beside the kubelet's own device manager: real processes, nodes and cgroups."""

import json
import os
import signal
import stat
import subprocess
import sys
import urllib.request
import uuid
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from not_tested import not_tested
from real_kubelet import pod
from resource_child import eventually

from devherd import spool
from devherd.proto import health_pb2, spool_pb2
from devherd_sim.kubelet import checkpoint
from devherd_sim.testbed import free_port

LEVER = "example.com/lever"
PATIENCE_SECONDS = 90.0
"""Two looks are 10 s apart, and a warning ends after two good ones."""
CONFIG = {
    "health": {"poll": "200ms", "recover_after": 2},
    "ledger": {"enabled": True, "ignore": ["monitor*"]},
    "generic": [{"name": LEVER, "groups": [{"paths": [{"path": "/dev/lever*"}]}]}],
}


def cgroups():
    """The hierarchy in which processes are put: version 2, or the freezer of version 1."""
    root = Path("/sys/fs/cgroup")
    return root if (root / "cgroup.procs").exists() else root / "freezer"


class Node:
    """The node with two levers, each the node of a terminal that nobody else has, and processes in pods' cgroups."""

    def __init__(self, herd, stack: ExitStack) -> None:
        self.herd = herd
        self._stack = stack
        self.terminals = []

    def start(self, **config):
        """With the kubelet and devherd."""
        self.herd.prepare("generic", CONFIG | config)
        dev = self.herd.directory / "node/dev"
        dev.mkdir(exist_ok=True)
        for number in range(2):
            master, slave = os.openpty()
            self._stack.callback(os.close, master)
            os.mknod(dev / f"lever{number}", stat.S_IFCHR | 0o600, os.fstat(slave).st_rdev)
            self.terminals.append(os.ttyname(slave))
            os.close(slave)
        self.herd.kubelet.start()
        self.herd.listen = f"127.0.0.1:{free_port()}"
        self.herd.start_herd()
        self.herd.until_capacity(LEVER, 2, 2)

    def pod(self):
        """A pod that holds a lever: its uid, and the number of the lever."""
        uid = str(uuid.uuid4())
        main = self.herd.kubelet.admit(pod(uid, {LEVER: 1})).main
        assert main.error == ""
        return uid, int(main.paths[0].removeprefix("/dev/lever"))

    @contextmanager
    def _cgroup(self, uid):
        place = cgroups() / "kubepods" / f"pod{uid}" / (uid.replace("-", "") * 2)
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            not_tested(f"cgroups cannot be made: {error}")
        yield place
        for each in (place, place.parent, place.parent.parent):
            with suppress(OSError):  # of another process or test
                each.rmdir()

    def process(self, lever, uid=""):
        """A process, in a pod's cgroup or in none, that has this lever open."""
        place = self._stack.enter_context(self._cgroup(uid)) if uid else None
        with Path(self.terminals[lever]).open("rb+", buffering=0) as node:
            made = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], stdin=node)
        self._stack.callback(self.end, made)
        eventually(lambda: Path(f"/proc/{made.pid}/comm").read_text().startswith("python"))  # named late in an exec
        if place:
            (place / "cgroup.procs").write_text(str(made.pid))
        return made

    @staticmethod
    def end(process):
        """Kill it, if it still runs."""
        process.send_signal(signal.SIGKILL)
        process.wait()

    def findings(self):
        """The ledger's findings that count: (lever, reason, action, detail), sorted."""
        verdicts = spool.read_or_empty(self.herd.directory / "run/verdicts.pb", health_pb2.Verdicts).verdicts
        return sorted(
            (int(self._lever(verdict.device)), held.reason, health_pb2.Action.Name(held.action), held.detail)
            for verdict in verdicts
            for held in verdict.held
            if held.source == "ledger" and not held.is_over
        )

    def _lever(self, device_id):
        offers = spool.read(self.herd.directory / "run/offers.pb", spool_pb2.Offers).offers
        (device,) = [device for offer in offers for device in offer.devices if device.id == device_id]
        return device.edits.nodes[0].host_path.removeprefix("/dev/lever")

    def ledger(self):
        """For each lever: its pods, and the processes that have it open."""
        kept = spool.read_or_empty(self.herd.directory / "run/ledger/current.pb", spool_pb2.Ledger)
        return {
            int(self._lever(one.device)): ([*one.pods], [each.pid for each in one.processes]) for one in kept.devices
        }

    def held(self, uid):
        """The ids of the devices of a pod, by the kubelet."""
        return self.herd.kubelet.ask("pod_devices", uid=uid)["main"][LEVER]

    def metrics(self):
        """By series."""
        with urllib.request.urlopen(f"http://{self.herd.listen}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return {series: float(value) for series, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

    def explained(self, device_id):
        """What `devherd explain` prints of it."""
        places = [f"--{name}={self.herd.directory / at}" for name, at in (("run-dir", "run"), ("kubelet-dir", "k"))]
        command = [sys.executable, "-m", "devherd", "explain", LEVER, device_id, *places]
        return subprocess.run(command, check=False, capture_output=True, text=True).stdout

    def looked(self, count=1):
        """Wait for so many further looks."""
        file = self.herd.directory / "run/findings/ledger/current.pb"
        for _ in range(count):
            last = spool.read_or_empty(file, health_pb2.Findings).timestamp_seconds
            eventually(
                lambda last=last: spool.read_or_empty(file, health_pb2.Findings).timestamp_seconds > last,
                PATIENCE_SECONDS,
            )
        assert spool.read(file, health_pb2.Findings).failed == ""


@pytest.fixture
def node(herd_node):
    """The node."""
    if os.geteuid() != 0:
        not_tested("only root makes device nodes and cgroups, and looks into the processes of others")
    with ExitStack() as stack:
        yield Node(herd_node, stack)


def test_a_pods_own_processes_are_no_conflict_and_are_in_the_ledger(node):
    """Nor a process on the host of a device that nobody holds, nor one that is ignored by its name."""
    node.start()
    uid, lever = node.pod()
    own, other = node.process(lever, uid), node.process(1 - lever)
    expected = {lever: ([f"default/{uid}"], [own.pid]), 1 - lever: ([], [other.pid])}
    eventually(lambda: node.ledger() == expected, PATIENCE_SECONDS)
    node.looked(2)
    assert node.findings() == []


def test_a_process_of_another_pod_and_one_of_none_are_warnings_with_their_ids_after_two_looks_until_they_end(node):
    """With its command, its pod and whom the kubelet has given the device to."""
    node.start()
    (first, lever), (second, _) = node.pod(), node.pod()
    node.process(lever, first)
    foreign, outside = node.process(lever, second), node.process(lever)
    name = Path(f"/proc/{foreign.pid}/comm").read_text().strip()
    path, holder = f"/dev/lever{lever}", f"the kubelet has given it to default/{first}"
    expected = sorted(
        (lever, "held-elsewhere", "WARN", f"process {pid} ({name}) of {whose} has {path} open; {holder}"[:200])
        for pid, whose in ((foreign.pid, f"pod default/{second}"), (outside.pid, "no pod"))
    )
    eventually(lambda: node.findings() == expected, PATIENCE_SECONDS)
    node.herd.until_capacity(LEVER, 2, 2)
    (device_id,) = node.held(first)
    labels = f'{{device_id="{device_id}",resource_name="{LEVER}"}}'
    assert node.metrics()[f"devherd_device_held_elsewhere{labels}"] == 1
    assert node.metrics()[f"devherd_device_open_processes{labels}"] == 3
    assert f"{foreign.pid} ({name}) of default/{second}" in node.explained(device_id)
    node.end(foreign)
    node.end(outside)
    eventually(lambda: node.findings() == [], PATIENCE_SECONDS)


def test_by_a_rule_a_process_left_over_from_a_pod_that_ended_makes_its_device_unhealthy(node):
    """So that the next pod does not get it; it is Healthy when the process has ended."""
    rules = [{"source": "ledger", "reason": "left-over-process", "action": "unhealthy"}]
    node.start(health=CONFIG["health"] | {"rules": rules})
    uid, lever = node.pod()
    left = node.process(lever, uid)
    eventually(lambda: lever in node.ledger(), PATIENCE_SECONDS)
    node.herd.kubelet.ask("free", uid=uid)
    node.herd.until_capacity(LEVER, 2, 2)
    eventually(lambda: node.herd.kubelet.capacity(LEVER) == (2, 1), PATIENCE_SECONDS)
    ((where, reason, action, detail),) = node.findings()
    assert (where, reason, action) == (lever, "left-over-process", "UNHEALTHY")
    assert f"process {left.pid} (" in detail
    assert f"of pod {uid} has /dev/lever{lever} open, and the pod does not hold the device any more" in detail
    node.end(left)
    eventually(lambda: node.herd.kubelet.capacity(LEVER) == (2, 2), PATIENCE_SECONDS)


def test_two_pods_that_an_edited_checkpoint_gives_one_device_are_both_named(node):
    """The kubelet believes it at its next start, and so does PodResources."""
    node.start()
    (first, lever), (second, _) = node.pod(), node.pod()
    kubelet = node.herd.kubelet
    kubelet.kill()
    content = json.loads(kubelet.checkpoint_file.read_bytes())
    entries = {entry["PodUID"]: entry for entry in content["Data"]["PodDeviceEntries"]}
    entries[second]["DeviceIDs"] = entries[first]["DeviceIDs"]
    content["Checksum"] = checkpoint.checksum(content["Data"])
    kubelet.checkpoint_file.write_text(json.dumps(content))
    pods = [{"pod_uid": uid, "name": "main", "id": f"{uid}/main", "running": True} for uid in (first, second)]
    kubelet.start(containers=pods)
    for uid in (first, second):
        kubelet.ask("activate", pod=pod(uid, {LEVER: 1}))
    processes = [node.process(lever, uid) for uid in (first, second)]
    eventually(
        lambda: [found[:3] for found in node.findings()] == [(lever, "held-elsewhere", "WARN")] * 2, PATIENCE_SECONDS
    )
    details = " ".join(detail for *_, detail in node.findings())
    assert all(f"process {process.pid} (" in details for process in processes)
