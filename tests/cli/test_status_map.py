"""`devherd status --map`: the node as a tree, for any width, in ASCII where needed, in colour on terminals alone."""

import contextlib
import os
import pty
import shutil
import socket
import subprocess
import termios

import offered
import pytest
import scratch
from command_line import COMMAND, devherd
from drawn_node import HOLDER, inventory, pairs_below_switches

from devherd import spool
from devherd.cli import status_map
from devherd.instance.node_map import node_map
from devherd.instance.read import InstanceState
from devherd.proto.health_pb2 import Lost, LostDevice
from devherd.proto.spool_pb2 import Device, Offer

NAME = "nvidia.com/gpu"
KVM = Offer(name="devic.es/kvm", vendor="generic", devices=[Device(id="0", replicas=3)])


@pytest.fixture
def run_dir():
    """The files of an instance with GPUs below switches, and a socket where its supervisor would listen."""
    directory = scratch.directory()
    offer, paths = pairs_below_switches()
    offer.devices[2].reasons.append("xid")
    offered.put(directory, offer, KVM)
    spool.write(directory / "devices.pb", inventory(paths))
    with socket.socket(socket.AF_UNIX) as supervisor:
        supervisor.bind(str(directory / "supervisor.sock"))
        supervisor.listen()
        yield directory
    shutil.rmtree(directory)


def options(run_dir):
    return "--map", "--run-dir", run_dir, "--kubelet-dir", run_dir / "kubelet"


def lines(offers, paths, held=None, width=200, ascii_only=False):
    node = node_map(InstanceState(offers), held or {}, paths)
    return [line.plain for line in status_map.lines(node, width, ascii_only=ascii_only)][1:]


def test_the_map_is_a_tree_with_a_line_for_each_card(run_dir):
    """What is well, what is not, and that the kubelet did not say who holds what."""
    outcome = devherd("status", *options(run_dir), environment={"NODE_NAME": "node-7"})
    model = "NVIDIA H100 80GB HBM3"
    assert (outcome.code, outcome.stderr) == (0, "")
    assert outcome.stdout.splitlines() == [
        "node-7: NVIDIA GPUs: 4",
        "NUMA 0",
        "└─ pci0000:00",
        "   └─ switch 0000:01:00.0",
        f"      ├─ GPU 0  0000:40:00.0  {model}  [□]    ✓ Healthy, holder unknown",
        f"      └─ GPU 1  0000:41:00.0  {model}  [□]    ✓ Healthy, holder unknown",
        "NUMA 1",
        "└─ pci0000:80",
        "   └─ switch 0000:81:00.0",
        f"      ├─ GPU 2  0000:42:00.0  {model}  [✕]    ✕ Unhealthy: xid, holder unknown",
        f"      └─ GPU 3  0000:43:00.0  {model}  [□]    ✓ Healthy, holder unknown",
        "other devices",
        f"└─ kvm          {' ' * 12}  {' ' * len(model)}  [□□□]  ✓ Healthy, holder unknown",
        "□ holder unknown, ✕ Unhealthy",
    ]


def test_a_resource_or_vendor_can_be_chosen(run_dir):
    """As for the table."""
    gone = LostDevice(vendor="nvidia", device="GPU-9", resource_name=NAME, pci_address="0000:99:00.0")
    spool.write(run_dir / "lost.pb", Lost(devices=[gone]))
    outcome = devherd("status", *options(run_dir), "--resource", "devic.es/*", environment={"NODE_NAME": "n"})
    assert outcome.stdout == "n\nother devices\n└─ kvm  [□□□]  ✓ Healthy, holder unknown\n□ holder unknown\n"


def test_where_the_locale_has_no_such_characters_the_map_is_ascii(run_dir):
    """As on a serial console."""
    outcome = devherd("status", *options(run_dir), environment={"NODE_NAME": "n", "LC_ALL": "C"})
    assert outcome.stdout.isascii()
    assert "      `- GPU 3  0000:43:00.0  NVIDIA H100 80GB HBM3  [.]    + Healthy" in outcome.stdout
    assert "      |- GPU 2  0000:42:00.0  NVIDIA H100 80GB HBM3  [x]    x Unhealthy: xid" in outcome.stdout


def test_colour_is_on_a_terminal_alone_and_a_dumb_one_gets_ascii(run_dir):
    """What a pipe gets is always the same."""
    shown = {term: on_terminal(run_dir, term) for term in ("xterm", "dumb")}
    assert "\x1b[31m✕ Unhealthy: xid" in shown["xterm"]
    assert shown["dumb"].isascii()
    assert "\x1b" not in shown["dumb"]
    piped = {devherd("status", *options(run_dir), environment={"TERM": term}).stdout for term in ("xterm", "dumb")}
    assert len(piped) == 1
    assert "\x1b" not in piped.pop()


def on_terminal(run_dir, term):
    """The output on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 80))
    environment = {"TERM": term, "PATH": "/usr/bin:/bin"}
    command = [*COMMAND, "status", *map(str, options(run_dir))]
    with subprocess.Popen(command, stdout=theirs, stdin=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the other end closes
            while part := os.read(ours, 65536):
                shown += part
        process.wait(timeout=60)
    os.close(ours)
    return shown.decode()


def test_a_narrow_terminal_loses_model_and_address_and_wraps_the_pods():
    """What is wrong and who holds it stays."""
    offer, paths = pairs_below_switches()
    offer.devices[0].replicas = 3
    held = {(NAME, f"GPU-0::{number}"): [{**HOLDER, "pod": f"train-{number}"}] for number in range(3)}
    assert lines([offer], paths, held, width=80)[3] == (
        "      ├─ GPU 0  0000:40:00.0  [■■■]  ✓ Healthy, 3 of 3 held by research/train-0,"
    )
    assert lines([offer], paths, held, width=48)[3:6] == [
        "      ├─ GPU 0  [■■■]  ✓ Healthy, 3 of 3 held by",
        "      │                  research/train-0,",
        "      │                  research/train-1,",
    ]


def test_every_line_fits_the_terminal():
    """From 60 columns on, with the names that these nodes have."""
    offer, paths = pairs_below_switches()
    offer.devices[1].reasons.extend(["pci-aer-fatal", "xid"])
    for device in offer.devices:
        device.attributes["nvswitch_ports"] = "0000:f0:00.0/1"
    for width in (60, 80, 100, 132):
        drawn = lines([offer, KVM], paths, {(NAME, "GPU-1"): [HOLDER]}, width)
        assert max(map(len, drawn)) <= width


def test_many_functions_are_a_count_and_each_state_has_a_sign():
    """Held, free, Unhealthy, Unhealthy and held, with a warning, cordoned, lost."""
    offer, paths = pairs_below_switches()
    offer.devices[0].replicas = 1024
    offer.devices[1].reasons.append("xid")
    offer.devices[2].reasons.append("cordoned")
    offer.devices[3].reasons.append("gone")
    warned = Offer(name="a/b", devices=[Device(id="0", warnings=["link-degraded"]), Device(id="1")])
    drawn = lines([offer, warned], paths, {(NAME, "GPU-0::5"): [HOLDER], (NAME, "GPU-1"): [HOLDER]})
    cells = [line.partition("  [")[2] for line in drawn if "  [" in line]
    assert cells == [
        "1/1024]  ✓ Healthy, 1 of 1,024 held by research/train-0",
        "✖]       ✕ Unhealthy: xid, research/train-0",
        "-]       - cordoned",
        "?]       ? lost",
        "!□]      ! 1 warning: link-degraded, 1 Healthy, free",
    ]
    assert drawn[-1] == ("■ held by a pod, □ free, ✖ Unhealthy and held, ! warning, - cordoned, ✕ Unhealthy, ? lost")


def test_a_node_without_devices_says_so(run_dir):
    """And which command says more."""
    for name in (NAME, KVM.name):
        offered.take_away(run_dir, name)
    outcome = devherd("status", *options(run_dir))
    assert outcome.stdout == "No device has been found: `devherd scan` says where it looked.\n"


def test_a_map_is_no_json(run_dir):
    """A script that asks for both gets neither."""
    outcome = devherd("status", *options(run_dir), "--output", "json")
    assert (outcome.code, outcome.stdout) == (2, "")
    assert outcome.error_line == "devherd: `--map` is a picture — `--output json` is none — leave one out"
