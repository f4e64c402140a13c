"""`devherd status`: what an instance's files say, as a table and as JSON, and that there is no instance."""

import contextlib
import errno
import io
import json
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import termios
import time
from collections import Counter

import offered
import pytest
import scratch
from command_line import COMMAND, devherd
from hypothesis import given
from hypothesis import strategies as st

from devherd import spool
from devherd.cli import status_table, tables
from devherd.cli.cordon import unwritable
from devherd.cli.filters import Filters
from devherd.config.resolved import ResolvedConfig
from devherd.instance import read
from devherd.instance.files import announce_standby, instance_of, open_standby_file
from devherd.instance.read import read_instance
from devherd.proto.health_pb2 import UNHEALTHY, Held, Lost, LostDevice, Verdict, Verdicts
from devherd.proto.spool_pb2 import (
    Address,
    Addresses,
    Child,
    Children,
    Device,
    Instance,
    Offer,
    Problem,
    ResourceState,
    ScanSummary,
    Standby,
)
from devherd.settings import Settings

GPU = Offer(
    name="example.com/gpu",
    vendor="simulated",
    devices=[Device(id="0"), Device(id="1", reasons=["xid"], replicas=3), Device(id="2", warnings=["link-degraded"])],
)
NIC = Offer(name="example.com/nic", vendor="simulated", devices=[Device(id="a")])


@pytest.fixture
def run_dir():
    """The files of an instance with two resources, and a socket where its supervisor would listen."""
    directory, now = scratch.directory(), time.time()
    (directory / "state").mkdir()
    for resource in (GPU, NIC):
        offered.put(directory, resource)
    state = ResourceState(name=GPU.name, registered=True, streams=1)
    spool.write(spool.path_of(directory / "state", spool.key_of(GPU.name)), state)
    problem = Problem(vendor="simulated", path="/sys/x", error="unreadable", device="7")
    spool.write(directory / "scan.pb", ScanSummary(duration_seconds=0.25, problems=[problem]))
    children = [
        Child(
            name="scanner",
            state="RUNNING",
            pid=11,
            restarts={"signal": 2, "exit": 0},
            started_timestamp_seconds=now - 125.5,
        ),
        Child(name="resource:example.com_gpu", state="RUNNING", pid=12, started_timestamp_seconds=now - 50 * 3600 - 30),
        Child(name="resource:example.com_nic", state="BACKOFF", last_exit="signal 9"),
    ]
    spool.write(directory / "children.pb", Children(children=children))
    of_xid = Held(reason="xid", action=UNHEALTHY, first_timestamp_seconds=now - 301, do="reboot the node")
    spool.write(directory / "verdicts.pb", Verdicts(verdicts=[Verdict(device="1", held=[of_xid])]))
    instance = instance_of(Settings(), ResolvedConfig(common=Settings()), pid=10, started=now - 3661)
    instance.version, instance.revision = "0.1.0", "abc"
    spool.write(directory / "instance.pb", instance)
    with socket.socket(socket.AF_UNIX) as supervisor:
        supervisor.bind(str(directory / "supervisor.sock"))
        supervisor.listen()
        yield directory
    shutil.rmtree(directory)


def options(run_dir):
    """The run directory, and a kubelet directory without a kubelet."""
    return "--run-dir", run_dir, "--kubelet-dir", run_dir / "kubelet"


CARDS = Offer(
    name="example.com/gpu",
    vendor="nvidia",
    devices=[
        Device(id="GPU-b", card="2", attributes={"pci_address": "0000:02:00.0", "model": "H100", "slot": "4"}),
        Device(id="GPU-a", card="1", attributes={"pci_address": "0000:01:00.0", "model": "H100", "slot": "4"}),
        Device(id="MIG-1", card="3", attributes={"pci_address": "0000:03:00.0", "slot": "5"}, replicas=2),
        Device(id="MIG-2", card="3", attributes={"pci_address": "0000:03:00.0", "slot": "5"}, reasons=["xid"]),
    ],
)


def test_each_device_is_listed_with_its_model_while_all_is_well_too(run_dir):
    """As nvidia-smi does: by the shortest name that every command takes, in the order of the bus; then what is lost."""
    offered.put(run_dir, CARDS)
    lost = LostDevice(vendor="nvidia", card="9", device="GPU-z", resource_name=CARDS.name, slot="4", pods=["default/x"])
    spool.write(run_dir / "lost.pb", Lost(devices=[lost]))
    outcome = devherd("status", "--devices", *options(run_dir))
    rows = [re.split(r" {2,}", line.strip()) for line in outcome.stdout.splitlines()]

    assert (outcome.code, outcome.stderr) == (0, "")
    assert rows[:-2] == [
        ["DEVICE", "RESOURCE", "MODEL", "SLOT", "ID", "HEALTH", "HELD BY"],
        ["0000:01:00.0", "example.com/gpu", "H100", "4 (shared)", "GPU-a", "Healthy", "unknown"],
        ["0000:02:00.0", "example.com/gpu", "H100", "4 (shared)", "GPU-b", "Healthy", "unknown"],
        ["MIG-1 (2 replicas)", "example.com/gpu", "5", "MIG-1", "Healthy", "unknown"],
        ["MIG-2", "example.com/gpu", "5", "MIG-2", "Unhealthy: xid", "unknown"],
        ["a", "example.com/nic", "a", "Healthy", "unknown"],
        [""],
        ["RESOURCE", "LOST DEVICE", "SINCE", "PCI ADDRESS", "SLOT", "SERIAL", "LAST HELD BY"],
    ]
    assert rows[-2][:2] + rows[-2][-2:] == ["example.com/gpu", "GPU-z", "4 (shared)", "default/x"]
    assert rows[-1] == ["when one is not to come back: devherd forget DEVICE"]


def test_the_devices_fit_80_columns(run_dir):
    """What is left out is said."""
    offered.put(run_dir, CARDS)
    made = status_table.devices(read_instance(Settings(run_dir=run_dir)), None, Filters(resources=[CARDS.name]))
    console = tables.Console(width=80, file=io.StringIO())
    tables.show(console, tables.Group(*made))
    lines = console.file.getvalue().splitlines()

    assert max(map(len, lines)) <= 80
    assert lines[0].split()[-1] == "BY"
    assert {"DEVICE", "MODEL", "HEALTH"} <= {*lines[0].split()}


def test_devices_are_chosen_and_sorted_as_resources_are(run_dir):
    """The same options as without `--devices`."""
    offered.put(run_dir, CARDS)
    ill = devherd("status", "--devices", "--unhealthy", *options(run_dir)).stdout.splitlines()
    worst = devherd("status", "--devices", "--sort", "health", *options(run_dir)).stdout.splitlines()

    assert [line.split()[0] for line in ill] == ["DEVICE", "MIG-2"]
    assert worst[1].split()[0] == "MIG-2"
    assert devherd("status", "--devices", "--unhealthy", "--resource", NIC.name, *options(run_dir)).stdout == (
        "No device of these resources and vendors is unhealthy or has a warning.\n"
    )


def test_a_restart_that_a_process_asked_for_is_called_planned(run_dir):
    """Defect: "1 by renewal", of a process that had "ended for a fresh sandbox"."""
    children = Children(children=[Child(name="scanner", state="RUNNING", restarts={"renewal": 1, "exit": 2})])
    spool.write(run_dir / "children.pb", children)

    assert "2 by exit, 1 planned" in devherd("status", *options(run_dir)).stdout


def test_a_revision_that_is_not_known_is_not_shown(run_dir):
    """Defect: `devherd 0.1.0 (unknown)`."""
    instance = instance_of(Settings(), ResolvedConfig(common=Settings()), pid=10, started=time.time())
    instance.version, instance.revision = "0.1.0", "unknown"
    spool.write(run_dir / "instance.pb", instance)

    assert devherd("status", *options(run_dir)).stdout.startswith("devherd 0.1.0, process 10, up ")


def test_the_table_shows_resources_what_is_wrong_and_processes(run_dir):
    """Every fact where it is looked for, one line for each resource."""
    outcome = devherd("status", *options(run_dir))
    steady = re.sub(r"min \d+ s", "min", outcome.stdout)  # a busy machine takes seconds
    lines = [line.split("   ") for line in steady.splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]

    assert (outcome.code, outcome.stderr) == (0, "")
    assert cells == [
        ["devherd 0.1.0 (abc), process 10, up 1 h 1 min"],
        ["configuration from options and environment; run directory /run/devherd"],
        ["kubelet /var/lib/kubelet, registration kubelet_socket; HTTP on 127.0.0.1:9478"],
        [],
        ["RESOURCE", "DEVICE", "HEALTH", "SINCE", "HELD BY"],
        ["example.com/gpu", "1 (3 replicas)", "Unhealthy: xid", "5 min ago", "unknown"],
        ["example.com/gpu", "2", "Healthy (warning: link-degraded)", "unknown"],
        ["1: reboot the node"],
        ["why: devherd explain RESOURCE DEVICE"],
        [],
        ["not registered: example.com/nic: its process is BACKOFF, last exit: signal 9"],
        [],
        ["VENDOR", "DEVICE", "PATH", "PROBLEM"],
        ["simulated", "7", "/sys/x", "unreadable"],
        [],
        ["RESOURCE", "HEALTHY", "TOTAL", "ALLOCATED", "REGISTERED", "STATE", "UPTIME", "RESTARTS", "LAST EXIT"],
        ["example.com/gpu", "2", "5", "unknown", "yes", "RUNNING 12", "2 d 2 h", "0"],
        ["example.com/nic", "1", "1", "unknown", "no", "BACKOFF", "0", "signal 9"],
        [],
        ["PROCESS", "STATE", "UPTIME", "RESTARTS", "LAST EXIT"],
        ["scanner", "RUNNING 11", "2 min", "2 by signal"],
    ]


def test_a_kubelet_that_is_away_is_said_once_and_not_for_each_resource(run_dir):
    """It is the same for all of them."""
    for resource in (GPU, NIC):
        state = ResourceState(name=resource.name, detail="waiting for the kubelet")
        spool.write(spool.path_of(run_dir / "state", spool.key_of(resource.name)), state)
    children = [Child(name=f"resource:{spool.key_of(resource.name)}", state="RUNNING") for resource in (GPU, NIC)]
    spool.write(run_dir / "children.pb", Children(children=children))

    outcome = devherd("status", *options(run_dir))

    assert outcome.stdout.count("waiting for the kubelet") == 1
    assert "\nnot registered: all 2 resources: waiting for the kubelet\n" in outcome.stdout


def test_who_stands_by_to_take_over_is_shown_for_as_long_as_it_does(run_dir):
    """In a roll-out; a file that one left behind says nothing."""
    waiting = Standby(version="0.2.0", revision="def", since=time.time() - 12)
    third = Standby(version="0.2.0", revision="third", since=waiting.since)
    announced, other = (open_standby_file(run_dir / "standby.pb") for _ in range(2))
    assert announce_standby(announced, waiting)
    assert not announce_standby(other, third)

    assert re.search(r"^devherd 0\.2\.0 \(def\) stands by to take over, up 1\d s$", table_of(run_dir), re.MULTILINE)
    assert json.loads(devherd("status", "--output", "json", *options(run_dir)).stdout)["standby"] == {
        "version": "0.2.0",
        "revision": "def",
        "since": waiting.since,
        "front_end": waiting.front_end,
    }
    os.close(announced)
    assert "stands by" not in table_of(run_dir)
    assert json.loads(devherd("status", "--output", "json", *options(run_dir)).stdout)["standby"] is None
    assert announce_standby(other, third), "the next that waits says so in its turn"
    assert "devherd 0.2.0 (third) stands by" in table_of(run_dir)
    os.close(other)


def test_one_that_stands_by_for_longer_than_a_roll_out_takes_is_one_too_many(run_dir):
    """Defect: the pod of a second release was Ready, served nothing, and nobody said so."""
    announced = open_standby_file(run_dir / "standby.pb")
    assert announce_standby(announced, Standby(version="0.2.0", revision="def", since=time.time() - 660))

    shown = table_of(run_dir)
    assert re.search(r"\ndevherd 0\.2\.0 \(def\) stands by to take over, up 11 min( \d s)?\n", f"\n{shown}")
    assert "\ntwo instances are meant for this node, and one of them never serves: end one of them" in shown
    os.close(announced)
    assert "two instances" not in table_of(run_dir)


def table_of(run_dir):
    """What the command shows."""
    return devherd("status", *options(run_dir)).stdout


@pytest.mark.parametrize(
    ("words", "there", "not_there"),
    [
        (("--resource", "example.com/nic"), ["example.com/nic"], ["example.com/gpu"]),
        (("--resource", "*/g*"), ["example.com/gpu"], ["example.com/nic "]),
        (("--unhealthy",), ["1 (3 replicas)", "2  ", "example.com/gpu   2         5"], ["example.com/nic   1"]),
        (("--vendor", "simulated"), ["example.com/gpu", "example.com/nic"], []),
        (("--vendor", "nvidia"), [], ["example.com/gpu", "example.com/nic"]),
    ],
)
def test_resources_and_devices_can_be_chosen(run_dir, words, there, not_there):
    """The numbers are those of whole resources all the same."""
    shown = devherd("status", *words, *options(run_dir)).stdout
    assert [text for text in there if text not in shown] == []
    assert [text for text in not_there if text in shown] == []


def test_what_is_wrong_comes_first_when_asked(run_dir):
    """By name otherwise."""
    healthy = Offer(name="a.example/fine", devices=[Device(id="0")])
    offered.put(run_dir, healthy)
    state = ResourceState(name=healthy.name, registered=True)
    spool.write(spool.path_of(run_dir / "state", spool.key_of(healthy.name)), state)
    children = [Child(name=f"resource:{spool.key_of(one.name)}", state="RUNNING") for one in (GPU, NIC, healthy)]
    spool.write(run_dir / "children.pb", Children(children=children))
    by_name, by_health = (
        devherd("status", "--sort", order, *options(run_dir)).stdout.rpartition("RESOURCE ")[2]
        for order in ("name", "health")
    )

    assert by_name.index("a.example/fine") < by_name.index("example.com/gpu")
    assert by_health.index("a.example/fine") > by_health.index("example.com/gpu")


def test_what_is_no_problem_and_still_to_be_said_is_a_note(run_dir):
    """In JSON too; it makes no script fail."""
    notice = Problem(vendor="kernel-log", path="/dev/kmsg", error="the kernel log cannot be read: it is closed")
    spool.write(run_dir / "scan.pb", ScanSummary(notices=[notice]))
    shown = devherd("status", *options(run_dir)).stdout
    assert "note: /dev/kmsg: the kernel log cannot be read: it is closed" in " ".join(shown.split())
    assert "PROBLEM" not in shown
    told = json.loads(devherd("status", "--output", "json", *options(run_dir)).stdout)
    assert (told["problems"], [each["path"] for each in told["notices"]]) == ([], ["/dev/kmsg"])


def serve(run_dir, *addresses):
    """What the exporter of the instance writes."""
    file = Settings(run_dir=run_dir).served_file
    file.parent.mkdir(exist_ok=True)
    spool.write(file, Addresses(addresses=addresses))


def test_an_address_that_is_not_served_is_said_with_the_reason_and_the_cure(run_dir):
    """The exporter tries again and again, and `HTTP on 127.0.0.1:9478` was all that status said."""
    children = [Child(name=name, state="RUNNING") for name in ("exporter", "resource:example.com_gpu")]
    spool.write(run_dir / "children.pb", Children(children=children))
    there = Address(address="unix:/run/devherd.sock")
    taken = Address(address="127.0.0.1:9478", refusal="Address already in use", cure="end the other")
    instance = spool.read(run_dir / "instance.pb", Instance)
    instance.listen = "127.0.0.1:9478,unix:/run/devherd.sock"
    spool.write(run_dir / "instance.pb", instance)
    serve(run_dir, taken, there)

    shown = table_of(run_dir)
    assert "\nnot serving 127.0.0.1:9478: Address already in use — end the other\n" in shown
    assert "; HTTP on 127.0.0.1:9478 (not serving),unix:/run/devherd.sock\n" in shown
    assert json.loads(devherd("status", "--output", "json", *options(run_dir)).stdout)["http"] == [
        {
            "address": "127.0.0.1:9478",
            "is_served": False,
            "refusal": "Address already in use",
            "cure": "end the other",
        },
        {"address": "unix:/run/devherd.sock", "is_served": True, "refusal": None, "cure": None},
    ]
    chosen = ("--resource", GPU.name)
    spool.write(run_dir / "scan.pb", ScanSummary())
    well = Offer(name=GPU.name, devices=[Device(id="0")])
    offered.put(run_dir, well)
    assert devherd("status", "--fail-on-problem", *chosen, *options(run_dir)).code == 1
    serve(run_dir, there)
    assert devherd("status", "--fail-on-problem", *chosen, *options(run_dir)).code == 0


def test_what_is_wrong_with_a_configuration_does_not_hide_the_instance(run_dir, tmp_path):
    """It runs with its old one, and its status names what was refused: the directory alone is read from the file."""
    (tmp_path / "wrong.yaml").write_text(f"run_dir: {run_dir}\nsimulatde: []\n")
    (tmp_path / "bad.yaml").write_text("run_dir: [\n")
    for file, *where in (("wrong.yaml",), ("bad.yaml", "--run-dir", run_dir)):
        outcome = devherd("status", "--config", tmp_path / file, *where, "--kubelet-dir", run_dir)
        assert (outcome.code, outcome.stderr) == (0, "")
        assert outcome.stdout.splitlines()[1:4] == table_of(run_dir).splitlines()[1:4]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("run_dir: [\n", "bad configuration in {}:2:1 — a value is missing here"),
        ("run_dir: run\n", "bad configuration in {}:1:10 — run_dir: `run` is not an absolute path — start it with `/`"),
        ("- run_dir\n", "bad configuration in {} — the file is not a mapping of keys"),
        (None, "cannot read {} — No such file or directory"),
    ],
)
def test_a_file_that_does_not_say_where_the_instance_is_gives_one_line(tmp_path, text, error):
    """There is no other directory to look in."""
    file = tmp_path / "bad.yaml"
    if text is not None:
        file.write_text(text)
    outcome = devherd("status", "--config", file)
    assert (outcome.code, outcome.stdout) == (2, "")
    assert outcome.error_line.startswith(f"devherd: {error.format(file)}")


OF_THE_FIRST_GPU = (GPU.name, "0")


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("explain", *OF_THE_FIRST_GPU),
        ("events",),
        ("events", "--since", "5m"),
        ("cordon", *OF_THE_FIRST_GPU),
        ("uncordon", *OF_THE_FIRST_GPU),
    ],
)
def test_what_asks_a_running_instance_does_not_validate_its_configuration(run_dir, tmp_path, words):
    """That is 0.4 s of CPU, and a wrong key would keep the answer from an operator."""
    (run_dir / "history").mkdir()
    (tmp_path / "wrong.yaml").write_text(f"run_dir: {run_dir}\nkubelet_dir: {run_dir}\nsimulatde: []\n")
    code = "import sys\nfrom devherd.cli import main\ncode = main()\nprint(code, 'pydantic' in sys.modules)"
    command = [sys.executable, "-c", code, *words, "--config", tmp_path / "wrong.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.splitlines()[-1], done.stderr) == ("0 False", "")


def test_an_exporter_that_does_not_run_serves_nothing(run_dir):
    """Whatever it said last."""
    serve(run_dir, Address(address="127.0.0.1:9478"))
    spool.write(run_dir / "children.pb", Children(children=[Child(name="exporter", state="STOPPED")]))
    assert "not serving 127.0.0.1:9478: its process is STOPPED — devherd ctl start exporter\n" in table_of(run_dir)


def test_it_fails_on_a_problem_only_when_asked_and_only_for_what_was_chosen(run_dir):
    """For scripts: a problem of the scan, a program that does not run, an unhealthy device."""
    assert devherd("status", "--fail-on-problem", *options(run_dir)).code == 1
    children = [Child(name=f"resource:{spool.key_of(one.name)}", state="RUNNING") for one in (GPU, NIC)]
    spool.write(run_dir / "children.pb", Children(children=children))
    spool.write(run_dir / "scan.pb", ScanSummary())
    spool.write(spool.path_of(run_dir / "state", spool.key_of(NIC.name)), ResourceState(name=NIC.name, registered=True))
    chosen = [("--resource", NIC.name), ("--resource", GPU.name), ()]

    codes = [devherd("status", "--fail-on-problem", *words, *options(run_dir)).code for words in chosen]
    assert codes == [0, 1, 1]
    assert devherd("status", *options(run_dir)).code == 0


def test_a_watch_in_a_pipe_begins_each_block_with_the_time(run_dir):
    """So that a log of it can be read."""
    command = [*COMMAND, "status", "--watch", *map(str, options(run_dir))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        lines = [watching.stdout.readline() for _ in range(30)]
        watching.terminate()

    times = [line for line in lines if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n", line)]
    assert lines[0] == times[0]
    assert len(times) == 2


def test_a_watch_goes_on_when_its_resource_or_the_instance_goes_and_says_so(run_dir):
    """It ended with an error: both come back, as after a reload, or when devherd is started again."""
    command = [*COMMAND, "status", "--watch", "--resource", NIC.name, *map(str, options(run_dir))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:

        def until(text):
            """Read on until a line has it."""
            for line in watching.stdout:
                if text in line:
                    return line
            return pytest.fail(f"the watch has ended before {text!r}")

        until("example.com/nic   1 ")
        offered.take_away(run_dir, NIC.name)
        assert until("at present") == "example.com/nic: not there at present\n"
        socket = run_dir / "supervisor.sock"
        socket.rename(run_dir / "away")
        assert until("no instance runs").startswith(f"no instance runs in {run_dir} — ")
        (run_dir / "away").rename(socket)
        offered.put(run_dir, NIC)
        until("example.com/nic   1 ")
        watching.terminate()


def test_a_watch_of_what_there_is_not_is_an_error(run_dir):
    """From the beginning: a name that was mistyped."""
    outcome = devherd("status", "--watch", "--resource", "example.com/nik", *options(run_dir))
    assert (outcome.code, outcome.stdout) == (2, "")
    assert "no resource is called `example.com/nik`" in outcome.error_line


def test_a_watch_fits_the_screen_with_what_is_wrong_on_it():
    """The rest is counted: a screen cannot be scrolled."""
    from rich.console import Console

    from devherd.cli.tables import Fitted

    terminal = Console(width=40, height=5, file=io.StringIO(), force_terminal=True, highlight=False)
    terminal.print(Fitted("\n".join(f"line {number}" for number in range(9))), height=5)
    few = Console(width=40, height=5, file=io.StringIO(), force_terminal=True, highlight=False)
    few.print(Fitted("one"), height=5)

    shown = terminal.file.getvalue()
    assert [f"line {number}" in shown for number in range(9)] == [True] * 4 + [False] * 5
    assert "… 5 more lines" in shown
    assert "more" not in few.file.getvalue()


@given(width=st.integers(22, 200))
def test_a_watch_cuts_no_name_and_no_reason_and_says_which_columns_have_no_room(width):
    """They were cut at the right edge: at 80 columns `SIN`, and nothing of who holds the device."""
    from rich.console import Console

    from devherd.cli import tables
    from devherd.cli.tables import Fitted

    ill = Device(id="GPU-152e1962-7e62-50b6-a86c-9e5e011e97a2", reasons=["port-error", "xid"], numa_nodes=[7])
    ill.edits.nodes.add(host_path="/dev/x", container_path="/dev/x")
    table = tables.device_table([Offer(name="nvidia.com/gpu", devices=[ill])])
    terminal = Console(width=width, height=60, file=io.StringIO(), highlight=False)
    terminal.print(Fitted(table), height=60)
    shown, _, said = terminal.file.getvalue().partition("…")

    assert max(map(len, (shown + said).splitlines())) <= width
    columns = {
        "RESOURCE": "nvidia.com/gpu",
        "DEVICE": ill.id,
        "HEALTH": "Unhealthy: port-error, xid",
        "NUMA": "7",
        "WHAT A CONTAINER GETS": "/dev/x",
    }
    left_out = [heading for heading in reversed(columns) if heading in " ".join(said.split())]
    whole = "".join(heading + columns[heading] for heading in columns if heading not in left_out)
    assert Counter("".join(shown.split())) == Counter(whole.replace(" ", ""))
    assert left_out == list(reversed(columns))[: len(left_out)]
    assert " ".join(said.split()) == ("the screen is too narrow for " if left_out else "") + ", ".join(left_out)


def test_no_name_is_cut_on_a_narrow_terminal(run_dir):
    """It has to be copied: the terminal wraps the line."""
    long = Offer(name=f"example.com/{'x' * 90}", devices=[Device(id="y" * 40, reasons=["xid"])])
    offered.put(run_dir, long)
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    command = [*COMMAND, "status", *map(str, options(run_dir))]
    with subprocess.Popen(command, stdout=theirs, stdin=theirs, stderr=theirs, env={"TERM": "dumb"}) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the other end closes
            while part := os.read(ours, 65536):
                shown += part
        process.wait(timeout=60)
    os.close(ours)

    assert long.name in shown.decode()
    assert "y" * 40 in shown.decode()


def test_the_json_is_the_live_inventory_with_the_processes(run_dir):
    """Each resource says whether it is registered, or why not, and which process serves it."""
    status = json.loads(devherd("status", "--output", "json", *options(run_dir)).stdout)

    gpu = status["resources"][0]["devices"]
    assert status["duration_seconds"] == 0.25
    assert [round(time.time() - device["since"], -2) if device["since"] else None for device in gpu] == [
        None,
        *[300] * 3,
        None,
    ]
    assert (status["instance"]["pid"], status["instance"]["version"], status["scanned_at"]) == (10, "0.1.0", None)
    assert [
        (resource["name"], resource["registered"], resource["detail"], resource["child"])
        for resource in status["resources"]
    ] == [
        ("example.com/gpu", True, "", "resource:example.com_gpu"),
        ("example.com/nic", False, "its process is BACKOFF, last exit: signal 9", "resource:example.com_nic"),
    ]
    assert status["children"][2] == {
        "name": "scanner",
        "state": "RUNNING",
        "pid": 11,
        "started": status["children"][2]["started"],
        "restarts": {"exit": 0, "signal": 2},
        "last_exit": None,
    }


def test_without_an_instance_it_exits_with_4():
    """No directory, and a directory that a dead instance left."""
    outcome = devherd("status", "--run-dir", "/tmp/devherd-that-never-ran")
    assert outcome.code == 4
    assert "no instance runs in /tmp/devherd-that-never-ran" in outcome.error_line


def test_a_dead_instances_socket_is_no_instance(run_dir):
    """A SIGKILLed supervisor leaves its socket behind; nobody listens on it."""
    (run_dir / "supervisor.sock").unlink()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(run_dir / "supervisor.sock"))

    outcome = devherd("status", *options(run_dir))

    assert outcome.code == 4
    assert "Connection refused" in outcome.error_line


def test_the_run_directory_may_come_from_the_config_file(run_dir, tmp_path):
    """As every option may."""
    config = tmp_path / "config.yaml"
    config.write_text(f"run_dir: {run_dir}\nkubelet_dir: {run_dir}/kubelet\n")

    assert "example.com/gpu" in devherd("status", "--config", config).stdout


def test_a_full_run_directory_is_named_as_that_and_is_a_problem(run_dir, monkeypatch):
    """Defect: processes were said to be stopped that were not, by files that nobody could write any more."""
    settings = Settings(run_dir=run_dir)
    assert read_instance(settings).full_directory is None
    monkeypatch.setattr(read, "FULL_BYTES", 1 << 62)
    herd = read_instance(settings)
    shown = [str(part) for part in status_table.parts(herd, None)]
    assert f"the run directory {run_dir} is full: what is shown here may be old; make room there" in shown
    assert status_table.has_problem(herd, [])


@pytest.mark.parametrize(("number", "cure"), [(errno.ENOSPC, "make room there"), (errno.EACCES, "use sudo")])
def test_what_cannot_be_written_has_the_cure_of_its_cause(number, cure):
    """Defect: `devherd cordon` on a full disk said `use sudo`."""
    assert unwritable("cannot write", OSError(number, "x")).cure == cure
