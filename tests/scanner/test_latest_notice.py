"""docs/health.md, "Latest notice": how long a change stays unnoticed where nothing tells of it, measured.

The changes here are made by hand in the tree of a simulated node, so that no uevent comes.
"""

import shutil
import signal
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from test_scanner_process import ScannerProcess, reasons, scanned

from devherd_sim.node import faults
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import FpgaSpec, NodeSpec
from devherd_sim.node.tree import write_tree

ROOT = Path(__file__).parents[2]
SLACK_SECONDS = 2.5
"""For the work itself, on a machine with more to do than this."""
KVM = "generic: [{name: devic.es/kvm, groups: [{paths: [{path: /dev/kvm}]}]}]\n"
MIXED = "vendors: {nvidia: {mig_strategy: mixed}}\n"
ACME = "acme.example/widget"
WIDGET = (
    "classes: {{define: {{widget: {{find: {{class: widget}}, plugin: {{resource: acme.example/widget}},"
    " health: [{{read: {file}, equals: broken, reason: widget-broken}}]}}}}}}\n"
)
PART = "nvidia.com/mig-1g.10gb"
GPU = "0000:01:00.0"

MEASURED = {
    "a PCI function": "5 s where",
    "a node or file": "5 s where",
    "a MIG device is destroyed": "1 s",
    "a MIG device is made": "5 s",
    "the first MIG device": "30 s",
    "a virtual function of an NVIDIA GPU": "5 s",
    "an FPGA's port is programmed": "5 s",
    "libraries and programs": "30 s",
    "an attribute by which a device class": "5 s",
    "a file that `health` of a device class": "5 s; 60 s if",
    "what made a device Unhealthy is over": "3 s",
}
"""The beginning of each row, and of what it says."""


@pytest.fixture
def scanner(tmp_path):
    process = ScannerProcess(tmp_path)
    yield process
    if process.process is not None and process.process.poll() is None:
        process.signal(signal.SIGKILL)


def node_of(scanner: ScannerProcess, spec: NodeSpec) -> SimulatedNode:
    """The scanner's host becomes a simulated node."""
    return SimulatedNode.create(scanner.host, spec)


def seconds_until(scanner: ScannerProcess, condition: Callable[[], bool]) -> float:
    """How long that takes."""
    begin = time.monotonic()
    scanner.until(condition)
    return time.monotonic() - begin


def is_offered(scanner: ScannerProcess, name: str, count: int) -> bool:
    """Whether the resource has so many devices, all Healthy."""
    found = reasons(scanner, name)
    return len(found) == count and not any(found)


def test_every_row_of_the_page_is_measured_here():
    """A new one needs a test."""
    rows = tomllib.loads((ROOT / "docs/generate/health.toml").read_text())["latest"]
    assert {beginning for beginning in MEASURED for row in rows if row["of"].startswith(beginning)} == {*MEASURED}
    assert len(rows) == len(MEASURED)
    assert all(
        row["latest"].startswith(says)
        for row in rows
        for beginning, says in MEASURED.items()
        if row["of"].startswith(beginning)
    )


def test_a_mig_device_that_is_destroyed_is_unhealthy_within_a_second_though_nvml_sends_no_event(scanner):
    """Defect: it stayed Healthy up to half a minute, and its id was allocated."""
    node = node_of(scanner, NodeSpec(nvidia=NvidiaSpec(gpus=1, nvml=True, mig=[["1g.10gb", "3g.40gb"]])))
    scanner.configure(MIXED + "scan: {period: 60s}\n")
    scanner.start()
    scanner.until(lambda: is_offered(scanner, PART, 1))
    last = scanned(scanner).monotonic_seconds
    scanner.until(lambda: scanned(scanner).monotonic_seconds > last)  # the next scan is 5 s away

    node.nvidia.destroy_mig_device(GPU, 7)

    assert seconds_until(scanner, lambda: reasons(scanner, PART) == [["gone"]]) < 1 + SLACK_SECONDS
    assert is_offered(scanner, "nvidia.com/mig-3g.40gb", 1)
    time.sleep(4)  # the next scan has agreed, and the poll's finding has ended
    assert reasons(scanner, PART) == [["gone"]]


def test_a_mig_device_that_is_made_on_a_gpu_in_mig_mode_is_offered_by_the_next_scan_in_5_s(scanner):
    """However long the period is."""
    node = node_of(scanner, NodeSpec(nvidia=NvidiaSpec(gpus=1, nvml=True, mig=[["3g.40gb"]])))
    scanner.configure(MIXED + "scan: {period: 60s}\n")
    scanner.start()
    scanner.until(lambda: is_offered(scanner, "nvidia.com/mig-3g.40gb", 1) and scanned(scanner).period_seconds == 5)

    node.nvidia.create_mig_device(GPU, "1g.10gb")

    assert seconds_until(scanner, lambda: is_offered(scanner, PART, 1)) < 5 + SLACK_SECONDS


def test_a_vgpu_type_of_a_virtual_function_is_noticed_by_the_next_scan_in_5_s(scanner):
    """It is written into sysfs, which tells nobody."""
    node = node_of(scanner, NodeSpec(nvidia=NvidiaSpec(gpus=1, vgpu_types=[0, 0])))
    scanner.configure("vendors: {nvidia: {passthrough: true}}\nscan: {period: 60s}\n")
    scanner.start()
    scanner.until(lambda: is_offered(scanner, "nvidia.com/gpu", 1))

    (node.functions.path_of(GPU) / "virtfn1/nvidia/current_vgpu_type").write_text("1133\n")

    assert seconds_until(scanner, lambda: reasons(scanner, "nvidia.com/gpu") == []) < 5 + SLACK_SECONDS


def test_a_port_that_is_programmed_is_noticed_by_the_next_scan_in_5_s(scanner):
    """As a port that has lost what it was programmed with."""
    node = node_of(scanner, NodeSpec(fpga=[FpgaSpec(cards=1)]))
    scanner.configure("scan: {period: 60s}\n")
    scanner.start()
    scanner.until(lambda: len(scanner.spooled()) == 1)
    (name,) = scanner.spooled()

    faults.inject(node, "afu", "dfl-port.0")

    assert seconds_until(scanner, lambda: reasons(scanner, name) == [["unprogrammed"]]) < 5 + SLACK_SECONDS


def widget_of(scanner: ScannerProcess) -> Path:
    """The scanner's host gets a device of a class; its directory in sysfs."""
    write_tree(
        "sys/class/widget/widget0 -> ../../devices/virtual/widget/widget0\n"
        "sys/devices/virtual/widget/widget0/state = well\n"
        "sys/devices/virtual/widget/widget0/uevent = DEVNAME=widget0\n"
        "dev/widget0 char 240:0\n",
        scanner.host,
    )
    return scanner.host / "sys/devices/virtual/widget/widget0"


def test_a_fault_that_a_class_names_is_noticed_within_5_s(scanner):
    """Each fifth poll reads the file, whatever the period of scans."""
    widget = widget_of(scanner)
    scanner.configure(WIDGET.format(file="state") + "scan: {period: 60s}\n")
    scanner.start()
    scanner.until(lambda: is_offered(scanner, ACME, 1))
    time.sleep(3)  # polls have become rare

    (widget / "state").write_text("broken\n")

    assert seconds_until(scanner, lambda: reasons(scanner, ACME) == [["widget-broken"]]) < 5 + SLACK_SECONDS


def test_an_attribute_by_which_a_class_finds_a_device_is_noticed_by_the_next_scan_in_5_s(scanner):
    """Defect: after half a minute. A QAT that goes down was offered as long."""
    widget = widget_of(scanner)
    find = "find: {class: widget, attr: {state: well}}"
    scanner.configure(WIDGET.format(file="fault").replace("find: {class: widget}", find) + "scan: {period: 60s}\n")
    scanner.start()
    scanner.until(lambda: is_offered(scanner, ACME, 1))
    time.sleep(1)

    (widget / "state").write_text("down\n")

    assert seconds_until(scanner, lambda: not is_offered(scanner, ACME, 1)) < 5 + SLACK_SECONDS


def test_a_file_of_a_class_that_has_never_existed_is_looked_for_at_each_sixtieth_poll(scanner):
    """Of 60 polls a second apart; here they are a twentieth of that apart."""
    widget = widget_of(scanner)
    scanner.configure(WIDGET.format(file="fault") + "scan: {period: 60s}\nhealth: {poll: 50ms}\n")
    scanner.start()
    scanner.until(lambda: is_offered(scanner, ACME, 1))
    time.sleep(1)

    (widget / "fault").write_text("broken\n")

    assert seconds_until(scanner, lambda: reasons(scanner, ACME) == [["widget-broken"]]) < 60 / 20 + SLACK_SECONDS


def test_without_events_a_card_and_a_node_that_come_or_go_are_noticed_by_the_next_scan_in_5_s(scanner):
    """No uevents, and no inotify."""
    node = node_of(scanner, NodeSpec(nvidia=NvidiaSpec(gpus=2)))
    (scanner.host / "dev/kvm").touch()
    scanner.configure(KVM + "scan: {events: false}\n")
    scanner.start()
    scanner.until(lambda: is_offered(scanner, "devic.es/kvm", 1) and is_offered(scanner, "nvidia.com/gpu", 2))

    (scanner.host / "dev/kvm").unlink()
    node.functions.pull_out(GPU)
    shutil.rmtree(scanner.host / f"proc/driver/nvidia/gpus/{GPU}")

    def are_gone() -> bool:
        return all(reasons(scanner)) and sorted(map(bool, reasons(scanner, "nvidia.com/gpu"))) == [False, True]

    assert seconds_until(scanner, are_gone) < 5 + SLACK_SECONDS


def test_a_node_that_is_back_is_offered_after_three_good_polls_a_second_apart(scanner):
    """Defect: it took five seconds on a node where all had been well: the next regular poll was that far away."""
    (scanner.host / "dev/kvm").touch()
    scanner.configure(KVM)
    scanner.start()
    scanner.until(lambda: is_offered(scanner, "devic.es/kvm", 1))
    time.sleep(2)  # polls have become rare

    (scanner.host / "dev/kvm").unlink()
    scanner.until(lambda: all(reasons(scanner)))
    (scanner.host / "dev/kvm").touch()

    assert 1.5 < seconds_until(scanner, lambda: is_offered(scanner, "devic.es/kvm", 1)) < 3 + 1
