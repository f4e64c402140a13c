"""Sources `amd-exporter` and `xpumd`, before servers that answer as the vendors' monitors do, and as they fail."""

import contextlib
import json
import os
import queue
import random
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
import scratch
from descriptors import descriptors
from not_tested import not_tested

from devherd import spool
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.kubelet.deadline import MuteError
from devherd.proto import health_pb2, xpumd_pb2
from devherd.proto.amd_exporter_pb2 import GPUState, GPUStateResponse, NICState, NICStateResponse
from devherd.proto.xpumd_pb2 import DeviceHealth, DeviceHealthResponse, DeviceInformation, HealthStatus, PciInfo
from devherd.reasons import registry
from devherd.reasons.registry import ALL_AT_ONCE
from devherd.sources import monitors
from devherd.sources.request import order_in, requests_for

PROCESS = Path(__file__).with_name("listener_process.py")


class Monitor:
    """The process of a source, and a server in the place of what it asks."""

    def __init__(self, directory: Path, source: str, method: str) -> None:
        self.directory = directory
        self.socket = directory / "monitor.sock"
        self.log = directory / "log"
        self.answer: list[GPUState] | list[NICState] | grpc.StatusCode = []
        """What `List` answers at each call."""
        self.stream: queue.SimpleQueue[DeviceHealthResponse | None] = queue.SimpleQueue()
        """What the stream sends; None ends it."""
        self._source = source
        self._method = method
        self._server: grpc.Server | None = None
        self._process: subprocess.Popen | None = None

    def serve(self) -> None:
        service, method = self._method.strip("/").split("/")
        make = grpc.unary_unary_rpc_method_handler
        handler = (
            make(self._list, bytes, lambda answer: answer.SerializeToString())
            if method == "List"
            else grpc.unary_stream_rpc_method_handler(self._watch, bytes, DeviceHealthResponse.SerializeToString)
        )
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def _list(self, _request, context) -> GPUStateResponse | NICStateResponse:
        if isinstance(self.answer, grpc.StatusCode):
            context.abort(self.answer, "health status not available")
        if self._method == monitors.LIST_NICS:
            return NICStateResponse(NICState=self.answer)
        return GPUStateResponse(GPUState=self.answer)

    def _watch(self, _request, _context):
        while (message := self.stream.get()) is not None:
            yield message

    def hang_up(self) -> None:
        self.stream.put(None)
        if self._server is not None:
            self._server.stop(0).wait()

    def listen(self, **parts) -> None:
        defaults = {
            "command": [],
            "socket": str(self.socket),
            "interval": 0.1,
            "timeout": 5.0,
            "max_age": 60.0,
            "on_silence": "drop",
            "boot_id": "boot-1",
        }
        requests = self.directory / "run/requests"
        requests.mkdir(parents=True, exist_ok=True)
        (self.directory / "run/findings").mkdir(exist_ok=True)
        spool.update(requests / f"{self._source}.json", json.dumps(defaults | parts).encode())
        with self.log.open("ab") as log:
            command = [sys.executable, PROCESS, self.directory / "run", self._source]
            self._process = subprocess.Popen(command, stderr=log)

    @property
    def file(self) -> Path:
        return spool.path_of(self.directory / "run/findings", self._source)

    def until(self, condition) -> health_pb2.Findings:
        deadline = time.monotonic() + 20
        while not condition(said := spool.read_or_empty(self.file, health_pb2.Findings)):
            assert time.monotonic() < deadline, f"{said}\n{self.log.read_text()}"
            time.sleep(0.01)
        return said

    def until_it_holds(self, *values: str) -> health_pb2.Findings:
        wanted = sorted(values)
        return self.until(
            lambda said: said.source and not said.failed and sorted(one.value for one in said.findings) == wanted
        )

    def end(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)
        self.hang_up()


@contextlib.contextmanager
def monitor(source: str, method: str):
    directory = scratch.directory()
    made = Monitor(directory, source, method)
    yield made
    made.end()
    assert "Traceback" not in made.log.read_text()
    shutil.rmtree(directory)


@pytest.fixture
def exporter():
    with monitor("amd-exporter", monitors.LIST) as made:
        yield made


@pytest.fixture
def intels():
    with monitor("xpumd", monitors.WATCH) as made:
        yield made


def test_an_interface_of_a_network_card_that_the_exporter_calls_unhealthy_is_unhealthy_alone():
    """It names the function, by a service and a message of its own; all of them at once are a warning."""
    with monitor("amd-nic-exporter", monitors.LIST_NICS) as made:
        functions = ["0000:43:00.0", "0000:43:00.1", "0000:63:00.0"]
        words = ("healthy", "unhealthy", "healthy")
        made.answer = [NICState(Device=at, Health=word) for at, word in zip(functions, words, strict=True)]
        made.serve()
        made.listen()
        [found] = made.until_it_holds("unhealthy").findings
        assert (found.at.vendor, found.at.pci_address, found.reason) == ("rdma", functions[1], "external")
        made.answer = [NICState(Device=at, Health="healthy") for at in functions]
        made.until_it_holds()
        made.answer = [NICState(Device=at, Health="unhealthy") for at in functions]
        made.until_it_holds(*[ALL_AT_ONCE] * 3)


def said_of(states) -> list[tuple[str, str]]:
    """Device and health of each."""
    return [(state.Device, state.Health) for state in states]


def gpus(**health: str) -> list[GPUState]:
    """GPUs by the hexadecimal number of their bus."""
    return [GPUState(Device=f"0000:{bus[1:]}:00.0", Health=word) for bus, word in health.items()]


def stands(states, before=()) -> dict[str, str]:
    """What stands by address, after what stood before."""
    found = monitors.amd_exporter_findings(said_of(states), before, "socket")
    return {f"{one.at.pci_address} {one.at.partition}".strip(): one.value for one in found.values()}


def after(states, before=()) -> list[health_pb2.Finding]:
    return list(monitors.amd_exporter_findings(said_of(states), before, "socket").values())


def test_a_gpu_that_the_exporter_calls_unhealthy_is_held_with_all_its_partitions():
    """`healthy`, `unknown` and words of later releases are not unhealthy."""
    said = gpus(b05="unhealthy", b27="healthy", b47="unknown", b65="UNHEALTHY")

    assert stands(said) == {"0000:05:00": "unhealthy"}


def test_a_partition_or_virtual_function_is_held_alone():
    """The exporter writes a partition's number in the place of the function."""
    said = [GPUState(Device="0000:05:00.3", Health="unhealthy"), *gpus(b05="healthy")]

    assert stands(said) == {"0000:05:00.0 3": "unhealthy", "0000:05:00.3": "unhealthy"}


def test_all_gpus_unhealthy_at_once_is_told_apart():
    """Its agent has failed, more likely: each is a warning. Those that were unhealthy before stay so."""
    all_ill = gpus(b05="unhealthy", b27="unhealthy", b47="unhealthy")
    one_ill = gpus(b05="unhealthy", b27="healthy", b47="healthy")

    assert set(stands(all_ill).values()) == {ALL_AT_ONCE}
    assert set(stands(all_ill, after(all_ill)).values()) == {ALL_AT_ONCE}
    assert stands(all_ill, after(one_ill)) == {
        "0000:05:00": "unhealthy",
        "0000:27:00": ALL_AT_ONCE,
        "0000:47:00": ALL_AT_ONCE,
    }
    assert stands(one_ill, after(all_ill)) == {"0000:05:00": "unhealthy"}


def partitions(*healths: str, bus: str = "27") -> list[GPUState]:
    """The partitions of a GPU that all have the address of the first."""
    return [GPUState(Device=f"0000:{bus}:00.0", Health=word) for word in healths]


def test_of_partitions_that_share_an_address_the_worst_word_counts_in_any_order():
    """AMD's gpuagent prints one address for all of them where the kernel does not put their number in the function.

    The exporter lists them from a map, in random order: the same answer has to give the same verdict each time.
    """
    chance = random.Random(23)
    for number_of_partitions, word, kept in ((8, "unhealthy", "unhealthy"), (8, "unknown", None), (2, "", None)):
        said = partitions(word, *["healthy"] * (number_of_partitions - 1)) + gpus(b05="healthy")
        for _ in range(50):
            chance.shuffle(said)
            assert stands(said).get("0000:27:00") == kept
            assert stands(said, after(partitions("unhealthy"))) == {"0000:27:00": "unhealthy"}


def test_all_partitions_of_the_only_gpu_of_a_node_are_unhealthy_and_not_doubted():
    """They share the GPU's counters: this is what an error of its memory looks like, and no failure of the agent."""
    functions = [GPUState(Device=f"0000:27:00.{number}", Health="unhealthy") for number in range(8)]

    assert set(stands(functions).values()) == {"unhealthy"}
    assert stands(partitions(*["unhealthy"] * 8)) == {"0000:27:00": "unhealthy"}


def test_all_at_once_counts_gpus_and_not_their_partitions():
    """Of two GPUs, one in eight partitions and one in one, each is half of all."""
    eight = [GPUState(Device=f"0000:27:00.{number}", Health="unhealthy") for number in range(8)]
    one = gpus(b05="unhealthy")

    assert set(stands(eight + one).values()) == {ALL_AT_ONCE}
    assert set(stands(eight + one, after(one)).values()) == {"unhealthy"}
    assert set(stands(eight + one, after(eight)).values()) == {"unhealthy"}
    assert set(stands(eight + gpus(b05="healthy")).values()) == {"unhealthy"}


def test_gpus_that_fail_one_after_the_other_are_each_unhealthy():
    """Also the last of them; and the only one of a node."""
    two = after(gpus(b05="unhealthy", b27="unhealthy", b47="healthy"))

    assert set(stands(gpus(b05="unhealthy", b27="unhealthy", b47="unhealthy"), two).values()) == {"unhealthy"}
    assert stands(gpus(b05="unhealthy")) == {"0000:05:00": "unhealthy"}


def test_a_gpu_of_which_nothing_is_known_stays_as_it_was():
    """Not knowing is neither health nor sickness."""
    ill = after(gpus(b05="unhealthy", b27="healthy"))

    assert stands(gpus(b05="unknown", b27="unknown"), ill) == {"0000:05:00": "unhealthy"}


def test_the_exporter_is_asked_again_and_again(exporter):
    """By the vendor's own call."""
    exporter.answer = gpus(b05="unhealthy", b27="healthy")
    exporter.serve()
    exporter.listen()

    [finding] = exporter.until_it_holds("unhealthy").findings
    exporter.answer = gpus(b05="healthy", b27="healthy")
    exporter.until_it_holds()

    assert (finding.at.vendor, finding.reason, finding.file) == ("amd", "external", str(exporter.socket))


def test_one_ill_partition_of_eight_with_one_address_is_unhealthy_in_every_answer(exporter):
    """In whatever order the exporter lists them."""
    exporter.answer = partitions("unhealthy", *["healthy"] * 7) + gpus(b05="healthy")
    exporter.serve()
    exporter.listen()
    said = exporter.until_it_holds("unhealthy")

    for _ in range(8):
        exporter.answer = exporter.answer[1:] + exporter.answer[:1]
        said = exporter.until(lambda now, last=said: now.look_monotonic_seconds != last.look_monotonic_seconds)
        assert [(one.at.pci_address, one.value) for one in said.findings] == [("0000:27:00", "unhealthy")]


def test_each_answer_of_the_exporter_is_a_look_of_its_own(exporter):
    """Also one that says the same; while it does not answer nobody looks."""
    exporter.answer = gpus(b05="healthy")
    exporter.serve()
    exporter.listen()

    first = exporter.until_it_holds()
    second = exporter.until(lambda said: said.look_monotonic_seconds != first.look_monotonic_seconds)
    exporter.answer = grpc.StatusCode.UNAVAILABLE
    failing = exporter.until(lambda said: said.failed)
    time.sleep(0.5)

    assert 0 < first.look_monotonic_seconds < second.look_monotonic_seconds
    assert exporter.until(lambda said: said.failed).look_monotonic_seconds == failing.look_monotonic_seconds


def test_an_exporter_that_fails_changes_no_gpu_and_is_let_go_after_its_time(exporter):
    """As it does until its first look, or when it is gone."""
    exporter.answer = gpus(b05="unhealthy", b27="healthy")
    exporter.serve()
    exporter.listen(max_age=2.0)
    exporter.until_it_holds("unhealthy")

    exporter.answer = grpc.StatusCode.UNAVAILABLE
    failing = exporter.until(lambda said: said.failed)
    let_go = exporter.until(lambda said: said.lets_go)
    exporter.answer = gpus(b05="unhealthy", b27="healthy")
    exporter.until_it_holds("unhealthy")

    assert failing.failed == "UNAVAILABLE: health status not available"
    assert [one.value for one in failing.findings] == ["unhealthy"]
    assert (failing.lets_go_after_seconds, let_go.lets_go_after_seconds) == (2.0, 0.0)
    assert list(let_go.findings) == []


def test_an_exporter_that_was_uninstalled_is_forgotten(exporter):
    """Nobody has to say that it is not wanted any more."""
    exporter.answer = gpus(b05="unhealthy", b27="healthy")
    exporter.serve()
    exporter.listen(max_age=1.0, is_optional=True)
    exporter.until_it_holds("unhealthy")

    exporter.hang_up()
    exporter.socket.unlink(missing_ok=True)
    let_go = exporter.until(lambda said: said.lets_go)

    assert list(let_go.findings) == []


def test_a_socket_of_another_user_is_not_asked(exporter):
    """Whoever answers there could empty the node."""
    if os.geteuid() != 0:
        not_tested("only root gives files away")
    exporter.serve()
    os.chown(exporter.socket, 1234, 1234)
    exporter.listen()

    said = exporter.until(lambda said: said.failed)

    assert said.failed == f"{exporter.socket} belongs to user 1234; have root own it"


def health(**severities: int) -> DeviceHealthResponse:
    domains = [HealthStatus(name=name, severity=severity, message="hot") for name, severity in severities.items()]
    info = DeviceInformation(pci=PciInfo(bdf="0000:03:00.0"))
    return DeviceHealthResponse(devices=[DeviceHealth(info=info, health=domains)])


def test_a_warning_of_xpumd_warns_and_what_is_critical_or_failed_does_not(intels):
    """By domain; one that is not mentioned or of unknown state says nothing."""
    intels.serve()
    intels.listen()

    intels.stream.put(
        health(
            memory=xpumd_pb2.SEVERITY_LEVEL_WARNING,
            core=xpumd_pb2.SEVERITY_LEVEL_CRITICAL,
            fan=xpumd_pb2.SEVERITY_LEVEL_UNKNOWN,
            power=xpumd_pb2.SEVERITY_LEVEL_OK,
        )
    )
    said = intels.until_it_holds("critical", "warning")
    intels.stream.put(health(core=xpumd_pb2.SEVERITY_LEVEL_FAILED))
    intels.until_it_holds("failed")
    intels.stream.put(health())
    intels.until_it_holds()

    assert [(one.file, one.detail, one.value) for one in said.findings] == [
        (f"{intels.socket}#core", "core: hot", "critical"),
        (f"{intels.socket}#memory", "memory: hot", "warning"),
    ]
    assert said.findings[0].at == health_pb2.Target(vendor="intel-gpu", pci_address="0000:03:00.0")


def test_xpumd_is_called_again_when_its_stream_ends(intels):
    """The plugin gives up for good after some attempts."""
    intels.serve()
    intels.listen()
    intels.stream.put(health(core=xpumd_pb2.SEVERITY_LEVEL_FAILED))
    intels.until_it_holds("failed")

    intels.stream.put(None)
    ended = intels.until(lambda said: said.failed)
    intels.stream.put(health())
    intels.until_it_holds()

    assert ended.failed == "it ended the stream"
    assert [one.value for one in ended.findings] == ["failed"]


def test_an_xpumd_that_has_measured_nothing_yet_says_nothing(intels):
    """Its first message may be empty: no device is well by it."""
    intels.serve()
    intels.listen()
    intels.stream.put(health(core=xpumd_pb2.SEVERITY_LEVEL_FAILED))
    intels.until_it_holds("failed")

    intels.stream.put(DeviceHealthResponse())
    intels.stream.put(health(core=xpumd_pb2.SEVERITY_LEVEL_FAILED, fan=xpumd_pb2.SEVERITY_LEVEL_FAILED))
    said = intels.until_it_holds("failed", "failed")

    assert len(said.findings) == 2


def asked(tmp_path, **options) -> dict[str, str]:
    """The socket that is asked, by source."""
    config = resolve(Config.model_validate({"host_root": tmp_path, "health": options}))
    requests = requests_for(config, tmp_path / "findings", "boot-1")
    return {source: order_in(text.encode()).socket for source, text in requests.items()}


def test_a_monitor_is_asked_where_it_is_or_where_the_configuration_says(tmp_path):
    """And not while it is not installed, nor where it is not wanted."""
    usual = tmp_path / "run/xpumd/intelxpuinfo.sock"
    nowhere = asked(tmp_path)
    usual.parent.mkdir(parents=True)
    usual.touch()

    assert nowhere == {}
    assert asked(tmp_path) == {"xpumd": str(usual)}
    assert asked(tmp_path, xpumd=False) == {}
    assert asked(tmp_path, amd_exporter="/srv/x.sock", xpumd=False) == {"amd-exporter": str(tmp_path / "srv/x.sock")}


def test_a_monitor_that_has_spoken_is_asked_until_what_it_said_is_let_go(tmp_path):
    """Its socket goes with it: what it said must not go as quickly."""
    (tmp_path / "findings").mkdir()
    spool.write(spool.path_of(tmp_path / "findings", "xpumd"), health_pb2.Findings(source="xpumd"))

    assert list(asked(tmp_path)) == ["xpumd"]
    with descriptors(0):
        assert list(asked(tmp_path)) == ["xpumd"]

    let_go = health_pb2.Findings(source="xpumd", failed="no report for 180 s", lets_go=True)
    spool.write(spool.path_of(tmp_path / "findings", "xpumd"), let_go)

    assert asked(tmp_path) == {}


def test_every_monitor_that_the_registry_names_can_be_asked():
    """By a class of its own or that of another one; its key in the configuration is read by the same name."""
    assert monitors.WAYS.keys() == registry.MONITORS.keys()


def test_a_stream_that_grpc_does_not_end_ends_the_process(monkeypatch):
    """Defect: without threads gRPC ended no call, so xpumd would have been silent for ever."""
    never = threading.Event()

    class Call:
        def __iter__(self):
            return self

        def __next__(self):
            never.wait()
            raise StopIteration

        def cancel(self):
            pass

    class Channel:
        def unary_stream(self, *_, **__):
            return lambda _: Call()

    monkeypatch.setattr(monitors, "LATE_SECONDS", 0.05)
    stream = monitors.Stream(Channel())
    with pytest.raises(MuteError, match="has not ended a call of xpumd"):
        stream.cancel()
    never.set()
    stream.cancel()
