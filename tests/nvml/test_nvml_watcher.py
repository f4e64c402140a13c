"""Process `source:nvml` as a watcher: what it writes to `findings/nvml`, and what its troubles cost."""

import errno
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from not_tested import not_tested
from nvml_host import Host, Looking, until
from nvml_readings import FINE, NOTHING
from nvml_stub import Stub

from devherd import spool
from devherd.config.model import Config
from devherd.health.held import Now
from devherd.proto import health_pb2
from devherd.sources.nvml.apart import Apart
from devherd.sources.nvml.findings import Health, Unlisted
from devherd.sources.nvml.session import Session, Watcher
from devherd.waits import USUAL_WAITS
from devherd_sim.node import faults
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec

HANGS = "300ms"


@pytest.fixture
def watched(tmp_path, stub: Stub, monkeypatch):
    """A host with two GPUs, and a scanner beside the process that watches them."""
    monkeypatch.setenv("DEVHERD_NVML_STUB", str(stub.file))
    node = SimulatedNode.create(tmp_path / "node", NodeSpec(nvidia=NvidiaSpec(gpus=2)))
    made = Host(node, stub)
    config = Config.model_validate({"host_root": made.root, "scan": {"probe_timeout": HANGS}})
    look = Looking(config, tmp_path / "run")
    yield made, look
    look.end()


def said(look: Looking) -> health_pb2.Findings:
    """The findings file."""
    return spool.read_or_empty(spool.path_of(look.settings.findings_directory, "nvml"), health_pb2.Findings)


def found(look: Looking) -> list[tuple[str, str, str, int]]:
    """What it holds against which GPU."""
    return [(one.at.pci_address, one.reason, one.value, one.count) for one in said(look).findings]


def stated(look: Looking) -> set[tuple[str, str]]:
    """What it states about which GPU."""
    return {(one.at.pci_address, one.evidence) for one in said(look).evidence}


def test_an_xid_is_a_finding_as_soon_as_it_happens(watched):
    """Of the GPU that it is of; a second one is counted."""
    made, look = watched
    look.settled()
    assert found(look) == []
    made.stub.xid(1, 48)
    until(lambda: found(look) == [(made.addresses[1], "xid", "48", 1)], "the Xid is told")
    made.stub.xid(1, 48).xid(0, 13)
    expected = [(made.addresses[0], "xid", "13", 1), (made.addresses[1], "xid", "48", 2)]
    until(lambda: found(look) == expected, "and the next")
    assert not said(look).failed


def test_after_an_event_the_driver_is_asked_what_it_wants_done(watched):
    """At once, and not at the next periodic look: what stood is found, and where nothing is wanted that is stated."""
    made, look = watched
    made.stub.field(0, 230, 0).field(1, 230, 0)
    look.settled()
    first = {one.at.pci_address: one.monotonic_seconds for one in said(look).evidence}
    made.stub.field(1, 230, 1).xid(1, 95).xid(0, 94)
    until(lambda: (made.addresses[1], "recovery-action", "1", 0) in found(look), "the action is told")
    (other,) = (one for one in said(look).evidence if one.at.pci_address == made.addresses[0])
    assert other.monotonic_seconds > first[made.addresses[0]]


def test_what_nvlinks_lose_and_count_is_found_by_the_next_look_and_lost_links_also_by_another_process(watched):
    """A link that was up is down; one could not be recovered; what is counted is told beside the findings."""
    made, look = watched
    made.stub.field(0, 91, 1).field(0, 165, 1, link=0).field(0, 214, 3, link=0).field(0, 94, 7)
    look.settled()
    assert found(look) == []
    counted = {(one.name, one.kind): one.number for one in said(look).counts}
    assert counted == {
        ("nvlinks", "up"): 1,
        ("nvlinks", "down"): 0,
        ("nvlink-errors", "recovery-failed"): 3,
        ("pcie-replays", ""): 7,
    }
    made.stub.field(0, 165, 0, link=0).field(0, 214, 4, link=0).xid(1, 13)
    down = (made.addresses[0], "nvlink-down", "0", 0)
    until(
        lambda: {down, (made.addresses[0], "nvlink-errors", "recovery-failed", 1)} <= {*found(look)}, "both are found"
    )
    look.end()
    ended = time.time()
    until(lambda: look.scan() and said(look).timestamp_seconds > ended, "another process watches")
    until(lambda: down in found(look), "and knows that it was up")
    made.stub.field(0, 165, 1, link=0).xid(1, 13)
    until(lambda: down not in found(look), "it is up again")


def test_a_process_that_is_killed_loses_no_xid_and_doubles_none(watched):
    """The next one goes on counting."""
    made, look = watched
    look.settled()
    made.stub.xid(1, 48)
    until(lambda: found(look) == [(made.addresses[1], "xid", "48", 1)], "the Xid is told")
    look.end()
    ended = time.time()
    until(lambda: look.scan() and said(look).timestamp_seconds > ended, "another process watches")
    assert found(look) == [(made.addresses[1], "xid", "48", 1)]
    made.stub.xid(1, 48)
    until(lambda: found(look) == [(made.addresses[1], "xid", "48", 2)], "the next is counted")


@pytest.mark.parametrize("function", ["nvmlEventSetWait_v2", "nvmlDeviceGetFieldValues", "nvmlDeviceRegisterEvents"])
def test_a_hang_while_the_gpus_are_watched_costs_the_process_and_no_device(watched, function):
    """What stood stays, the file says that NVML hangs; another process goes on when it is over."""
    made, look = watched
    made.stub.field(0, 144, 1)
    look.settled()
    stands = (made.addresses[0], "row-remap-pending", "1", 0)
    assert found(look) == [stands]
    made.stub.say("hang", function).xid(1, 13)
    if function == "nvmlDeviceRegisterEvents":
        faults.inject(made.node, "unbind", made.addresses[1])
    until(lambda: look.scan() and "did not answer within 3 s" in said(look).failed, "the hang is told")
    assert stands in found(look)
    made.stub.forget("hang").write()
    until(lambda: look.scan() and look.starts > 1 and not said(look).failed, "another process watches")
    assert stands in found(look)


def test_a_driver_whose_events_fail_is_looked_at_all_the_same(watched):
    """The source has not failed while looks succeed; when events work again they are heard."""
    made, look = watched
    made.stub.say("fail", "nvmlEventSetWait_v2", 999).write()
    look.settled()
    made.stub.field(1, 230, 2)
    until(lambda: found(look) == [(made.addresses[1], "recovery-action", "2", 0)], "it is looked at")
    assert not said(look).failed
    made.stub.forget("fail").write()

    def is_heard():
        made.stub.xid(0, 31)  # again and again: what happens before NVML is opened anew is lost
        time.sleep(0.2)
        return any(finding[:3] == (made.addresses[0], "xid", "31") for finding in found(look))

    until(is_heard, "it is heard")


def test_a_library_that_fails_altogether_is_the_sources_failure(watched):
    """As when the driver is unloaded under it: no GPU is blamed, and what stood stays."""
    made, look = watched
    made.stub.field(0, 230, 2)
    look.settled()
    made.stub.say("fail", "nvmlDeviceGetFieldValues", 999).say("fail", "nvmlDeviceGetGpuFabricInfoV", 999)
    made.stub.say("fail", "nvmlEventSetWait_v2", 1).say("fail", "nvmlInit_v2", 9).write()
    until(lambda: "driver is not loaded" in said(look).failed, "the failure is told")
    assert found(look) == [(made.addresses[0], "recovery-action", "2", 0)]
    made.stub.forget("fail").write()
    until(lambda: not said(look).failed, "NVML is opened again")
    assert found(look) == [(made.addresses[0], "recovery-action", "2", 0)]


@pytest.fixture
def apart():
    """The process that asks about single GPUs."""
    made = Apart()
    yield made
    made.close()


def request_of(made: Host) -> dict[str, Any]:
    """A request about all GPUs of the host."""
    return {"library": str(made.stub.library), "gpus": dict.fromkeys(made.addresses), "patience_seconds": 6}


def test_a_sleeping_gpu_is_not_opened(watched, apart):
    """It would wake up: the other is watched, and nothing is asked of this one until it is awake."""
    made, _ = watched
    status = made.root / f"sys/bus/pci/devices/{made.addresses[0]}/power/runtime_status"
    status.write_text("suspended\n")
    made.stub.field(0, 230, 2).field(1, 230, 0)
    session = Session(request_of(made), made.root, apart)
    session.open(())
    assert [reading["pci_address"] for reading in session.look(())] == [made.addresses[1]]
    made.stub.xid(0, 13).xid(1, 13)
    events, _ = session.wait(60_000)
    assert [event["pci_address"] for event in events] == [made.addresses[1]]
    status.write_text("active\n")
    assert [reading["recovery_action"] for reading in session.look(())] == [2, 0]
    session.close()


def test_a_gpu_that_must_be_reset_is_let_go_of_between_looks(watched, apart):
    """Nothing can reset it while it is open: its events are not heard, those of the other are."""
    made, _ = watched
    request = request_of(made)
    made.stub.field(0, 230, 1).field(1, 230, 0)
    session = Session(request, made.root, apart)
    assert [reading["recovery_action"] for reading in session.look(())] == [1, 0]
    bad = {made.addresses[0]}
    assert not session.fits(bad)
    session.open(bad)
    assert session.fits(bad)
    made.stub.xid(0, 13).xid(1, 13)
    events, _ = session.wait(60_000)
    assert [event["pci_address"] for event in events] == [made.addresses[1]]
    made.stub.field(0, 230, 0)
    assert [reading["recovery_action"] for reading in session.look(bad)] == [0, 0]
    assert (session.fits(bad), session.fits(())) == (True, False)
    session.open(())
    made.stub.xid(0, 31)
    assert [event["pci_address"] for event in session.wait(60_000)[0]] == [made.addresses[0]]
    session.close()


def test_a_gpu_whose_mig_mode_is_to_change_is_let_go_of_until_it_has(watched, apart):
    """`nvidia-smi -mig 1` beside another client leaves it pending until a reset, which needs the GPU for itself."""
    made, _ = watched
    made.stub.say("mode", gpu=0, mig=0, pending=1).write()
    session, health = Session(request_of(made), made.root, apart), Health()
    health.take_readings(session.look(()), 1.0)
    assert health.apart == {made.addresses[0]}
    session.open(health.apart)
    made.stub.xid(0, 13).xid(1, 13)
    assert [event["pci_address"] for event in session.wait(60_000)[0]] == [made.addresses[1]]
    made.stub.forget("mode").say("mode", gpu=0, mig=1).write()
    health.take_readings(session.look(health.apart), 2.0)
    assert health.apart == frozenset()
    session.close()


def refuse_to_open(node: Path) -> None:
    """Have opening a node return EIO, as NVIDIA's driver does when it cannot start the GPU.

    Outside devpts the slave of a pseudo-terminal has no master: pts_unix98_lookup in drivers/tty/pty.c of the kernel.
    """
    node.unlink()
    try:
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(136, 0))
        os.close(os.open(node, os.O_RDWR))
    except OSError as error:
        if error.errno == errno.EIO:
            return
        not_tested(f"a node that returns EIO: {error}")
    raise AssertionError("it opens")


def test_gpus_that_nvml_does_not_list_are_lost_where_their_nodes_cannot_be_opened(watched, apart):
    """Defect: NVML that lists no GPU counted as an NVML that fails, and the GPUs were offered."""
    made, _ = watched
    nodes = {address: made.root / f"dev/nvidia{number}" for number, address in enumerate(made.addresses)}
    request = request_of(made) | {"gpus": {address: {"node": str(node)} for address, node in nodes.items()}}
    session, health = Session(request, made.root, apart), Health()
    health.take_readings(session.look(()), 1.0)
    assert health.message(Now(1.0, 1.0)).findings == []

    made.stub.say("absent", gpu=0).say("absent", gpu=1).write()
    session.close()
    readings = session.look(health.apart)
    assert [reading["unlisted"].listed for reading in readings] == [0, 0]
    assert [reading["unlisted"].error for reading in readings] != [errno.EIO] * 2
    for node in nodes.values():
        refuse_to_open(node)
    for moment in (31.0, 36.0):
        health.take_readings(session.look(health.apart), moment)
    lost = [(one.at.pci_address, one.reason, one.file) for one in health.message(Now(1.0, 1.0)).findings]
    assert lost == [(address, "gpu-lost", f"/dev/nvidia{number}") for number, address in enumerate(made.addresses)]

    made.stub.forget("absent").write()
    health.take_readings(session.look(health.apart), 66.0)
    assert health.message(Now(1.0, 1.0)).findings == []
    session.close()


def test_a_gpu_that_the_driver_cannot_start_is_lost_and_the_source_has_not_failed(monkeypatch):
    """A source that has failed adds nothing to a device."""
    gpu = OneGpu(monkeypatch)
    refusal = {"function": "nvmlDeviceGetHandleByPciBusId_v2", "code": 6, "meaning": "Not Found"}
    bad = {**NOTHING, "pci_address": "0000:3b:00.0", "refusal": refusal, "failures": [refusal], "has_node": True}
    gpu.readings = [bad | {"unlisted": Unlisted(0, 1, "/dev/nvidia0", errno.EIO)}]
    watcher = Watcher(health_pb2.Findings())
    watcher.begin({"gpus": {}}, gpu, gpu.readings, gpu.now)
    while gpu.now < 100 + 10:
        watcher.turn(lambda ask: ask())
    (lost,) = watcher.message().findings
    assert (lost.reason, watcher.failed) == ("gpu-lost", "")

    gpu.readings = [bad | {"unlisted": Unlisted(0, 1, "/dev/nvidia0", errno.EPERM)}]
    watcher = Watcher(health_pb2.Findings())
    watcher.begin({"gpus": {}}, gpu, gpu.readings, gpu.now)
    assert watcher.failed == (
        "no GPU can be looked at: NVML lists 0 of 1 GPUs: nvmlDeviceGetHandleByPciBusId_v2: Not Found, "
        "/dev/nvidia0: Operation not permitted"
    )


def test_a_gpu_that_was_lost_is_asked_by_a_new_handle(watched, apart):
    """The old one says that it is lost for ever; the other GPU is well all the time."""
    made, _ = watched
    made.stub.field(0, 230, 0).field(1, 230, 0).say("lost", gpu=0).write()
    session = Session(request_of(made), made.root, apart)
    lost, well = session.look(())
    assert ({failure["code"] for failure in lost["failures"]}, well["failures"]) == ({15}, [])
    made.stub.forget("lost").write()
    assert [reading["failures"] for reading in session.look({made.addresses[0]})] == [[], []]
    session.close()


def test_while_one_gpu_is_bad_the_others_stay_open_and_no_event_of_theirs_is_lost(watched, apart):
    """Defect: one bad GPU had the library opened anew twice each 30 s, with the events of all others lost meanwhile."""
    made, _ = watched
    made.stub.field(0, 230, 1).field(1, 230, 0)
    bad = {made.addresses[0]}
    session = Session(request_of(made), made.root, apart)
    session.open(bad)
    for number in range(1, 4):
        made.stub.xid(1, number)
        assert [reading["recovery_action"] for reading in session.look(bad)] == [1, 0]
        assert session.fits(bad)
    heard = []
    while len(heard) < 3:
        events, failure = session.wait(60_000)
        assert not failure
        heard += events
    assert [(event["pci_address"], event["data"]) for event in heard] == [
        (made.addresses[1], number) for number in range(1, 4)
    ]
    session.close()


def test_a_bad_gpu_that_hangs_is_no_trouble_of_the_others(watched, apart):
    """Its process is ended after half of what an attempt may take, each time anew; when it answers again it is read."""
    made, _ = watched
    request = request_of(made) | {"patience_seconds": 0.1}
    made.stub.field(0, 230, 1).field(1, 230, 0).say("hang", "nvmlDeviceGetHandleByPciBusId_v2", gpu=0).write()
    session = Session(request, made.root, apart)
    bad = {made.addresses[0]}
    for _ in range(2):
        assert [reading["pci_address"] for reading in session.look(bad)] == [made.addresses[1]]
        assert session.unanswered == {made.addresses[0]: "NVML did not answer within 0.5 s"}
    made.stub.forget("hang").say("crash", "nvmlInit_v2").write()
    assert [reading["pci_address"] for reading in session.look(bad)] == [made.addresses[1]]
    assert session.unanswered == {made.addresses[0]: "NVML crashed"}
    made.stub.forget("crash").say("fail", "nvmlInit_v2", 9).write()
    assert [reading["pci_address"] for reading in session.look(bad)] == [made.addresses[1]]
    assert "driver is not loaded" in session.unanswered[made.addresses[0]]
    made.stub.forget("fail").write()
    assert [reading["recovery_action"] for reading in session.look(bad)] == [1, 0]
    assert session.unanswered == {}
    session.close()


def is_loaded(made: Host) -> bool:
    """Whether this process has the library, and with it the GPUs, open."""
    return str(made.stub.library.resolve()) in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("keeps_open", [True, False])
def test_where_the_configuration_says_so_nothing_is_open_between_two_looks(watched, apart, keeps_open):
    """A driver can be replaced, a GPU reset, put to sleep or into MIG mode: nobody has it."""
    made, _ = watched
    request = request_of(made) | {"keep_open": keeps_open}
    made.stub.field(0, 230, 1).field(1, 230, 0)
    session = Session(request, made.root, apart)

    session.open(())
    for _ in range(2):
        assert [reading["recovery_action"] for reading in session.look(())] == [1, 0]
        assert is_loaded(made) is keeps_open
    assert session.fits({made.addresses[0]}) is not keeps_open

    session.close()
    assert not is_loaded(made)


def test_a_process_that_keeps_nothing_open_finds_what_stands_with_each_look(tmp_path, stub, monkeypatch):
    """From the configuration to the process: an Xid is the kernel log's to tell."""
    monkeypatch.setenv("DEVHERD_NVML_STUB", str(stub.file))
    made = Host(SimulatedNode.create(tmp_path / "node", NodeSpec(nvidia=NvidiaSpec(gpus=2))), stub)
    vendors = {"nvidia": {"keep_open": False}}
    look = Looking(Config.model_validate({"host_root": made.root, "vendors": vendors}), tmp_path / "run")
    made.stub.field(0, 230, 2).field(1, 230, 0)
    try:
        look.settled()
        until(lambda: found(look) == [(made.addresses[0], "recovery-action", "2", 0)], "what stands is told")
        assert not said(look).failed
        until(lambda: look.process_has_closed(made.stub.library), "the library is let go of")
    finally:
        look.end()


class OneGpu:
    """A session whose clock goes on while it is asked."""

    def __init__(self, monkeypatch):
        self.now, self.events, self.asked = 100.0, [], []
        self.readings, self.failure = [], ""
        self.is_fit, self.keeps_open, self.unanswered = True, True, {}
        monkeypatch.setattr("devherd.sources.nvml.session.time.monotonic", lambda: self.now)

    def wait(self, _):
        self.now += 0.25
        return self.events, self.failure

    def fits(self, _apart):
        return self.is_fit

    def look(self, _apart, *, anew):
        self.asked.append(("look", self.now, anew))
        return self.readings

    def open(self, _apart):
        self.asked.append(("open", self.now))
        self.is_fit = True


def test_a_bad_gpu_is_let_go_of_before_anything_else(monkeypatch):
    """By a question of its own, with a deadline of its own: the others are opened anew, which takes its time."""
    gpu = OneGpu(monkeypatch)
    watcher = Watcher(health_pb2.Findings())
    watcher.begin({"gpus": {}}, gpu, [], gpu.now)
    gpu.now, gpu.is_fit = 130.0, False
    for _ in range(3):
        watcher.turn(lambda ask: ask())
    assert gpu.asked == [("open", 130.0), ("look", 130.0, False)]


def test_a_watcher_that_keeps_nothing_open_rests_until_the_next_look(monkeypatch):
    """It does not wait for events, for which it would have to be open."""
    gpu = OneGpu(monkeypatch)
    gpu.keeps_open = False
    watcher = Watcher(health_pb2.Findings())
    watcher.begin({"gpus": {}}, gpu, [], gpu.now)
    assert watcher.is_resting()
    gpu.now += USUAL_WAITS.nvml_look
    assert not watcher.is_resting()
    assert watcher.turn(lambda ask: ask())
    assert (gpu.asked, watcher.is_resting()) == ([("look", gpu.now, False)], True)


def test_gpus_are_looked_at_twice_a_minute_and_a_second_after_an_event(monkeypatch):
    """However many events there are in that second."""
    gpu = OneGpu(monkeypatch)
    watcher = Watcher(health_pb2.Findings())
    watcher.begin({"gpus": {}}, gpu, [], gpu.now)
    while gpu.now < 100 + 2 * USUAL_WAITS.nvml_look + 1:
        watcher.turn(lambda ask: ask())
    assert gpu.asked == [("look", 130.0, False), ("look", 160.0, False)]
    event = {"pci_address": "0000:3b:00.0", "kind": 8, "data": 13, "gpu_instance": None, "compute_instance": None}
    gpu.events = [event]
    for _ in range(6):
        watcher.turn(lambda ask: ask())
    assert gpu.asked[2:] == [("look", 162.25, False)]
    assert watcher.message().findings[0].count == 5


def test_waits_that_failed_are_forgotten_when_they_work_again(monkeypatch):
    """Defect: from the sixth failed wait of a process's life on, each cost half a minute without events."""
    gpu = OneGpu(monkeypatch)
    watcher = Watcher(health_pb2.Findings())
    watcher.begin({"gpus": {}}, gpu, [], gpu.now)
    deaf = []
    for _ in range(8):
        gpu.failure = "it fails"
        watcher.turn(lambda ask: ask())
        deaf.append(watcher._look_at - gpu.now)
        gpu.failure, gpu.now = "", watcher._look_at
        while gpu.now < watcher._look_at + USUAL_WAITS.nvml_look + 1:
            watcher.turn(lambda ask: ask())
            if len(gpu.asked) > 1 and gpu.asked[-1][2] is False:
                break
        gpu.asked.clear()
    assert deaf == [1.0] * 8


def test_a_gpu_that_is_refused_once_is_looked_at_again_five_seconds_later(monkeypatch):
    """By then it is lost, or it was being reset; after that it is asked as often as the others."""
    gpu = OneGpu(monkeypatch)
    refusal = {"function": "nvmlDeviceGetHandleByPciBusId_v2", "code": 999, "meaning": "Unknown Error"}
    bad = {**NOTHING, "pci_address": "0000:3b:00.0", "refusal": refusal, "failures": [refusal], "has_node": True}
    gpu.readings = [bad, {**FINE, "pci_address": "0000:5e:00.0", "has_node": True}]
    watcher = Watcher(health_pb2.Findings())
    watcher.begin({"gpus": {}}, gpu, gpu.readings, gpu.now)
    while gpu.now < 100 + 40:
        watcher.turn(lambda ask: ask())
    assert gpu.asked == [("look", 105.0, False), ("look", 135.0, False)]
    (lost,) = watcher.message().findings
    assert (lost.at.pci_address, lost.reason, watcher.failed) == ("0000:3b:00.0", "gpu-lost", "")
