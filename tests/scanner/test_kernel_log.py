"""The kernel log through the scanner: what it says of a device, what takes that back, and what a restart keeps."""

import json
import logging
import time

import offered
import pytest

from devherd import counters, history, spool
from devherd._native import Evidence
from devherd.config.loader import load, resolve
from devherd.config.resolved import NVML_ANSWER
from devherd.health.held import Seen
from devherd.proto import health_pb2, spool_pb2
from devherd.scanner import kernel_log
from devherd.scanner.files import ScannerFiles
from devherd.scanner.host_events import HostChanges
from devherd_sim.node import faults
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode

GONE = "GPU has fallen off the bus."
ACTION = "154, GPU recovery action changed from"


class Node:
    """A node, and one scanner after the other that looks at it."""

    def __init__(self, directory, name: str) -> None:
        self._directory = directory
        (directory / "run/offers/device-plugin").mkdir(parents=True)
        self.node = SimulatedNode.create(directory / "host", preset(name))
        self.log = self.node.kernel_log
        self.options: dict = {}
        self.vendors: dict = {}
        self.addresses = sorted(path.name for path in (directory / "host/proc/driver/nvidia/gpus").glob("*"))
        self.files: ScannerFiles

    def start(self) -> "Node":
        """A scanner starts; the one before it was killed, if there was one."""
        config = {"host_root": str(self._directory / "host"), "health": self.options, "vendors": self.vendors}
        file = self._directory / "config.yaml"
        file.write_text(json.dumps(config))
        resolved = resolve(load({"config": str(file), "run_dir": str(self._directory / "run")}, {}))
        self.settings = resolved.settings()
        self.files = ScannerFiles(resolved, self.settings)
        self.files.observer.scan(time.monotonic())
        return self.hear()

    def hear(self) -> "Node":
        """What waits in the log is taken in, and published."""
        while self.files.observer.read_kernel_log():
            pass
        self.files.publish()
        return self

    def xid(self, text: str, gpu: int = 0, instance: str = "", **more) -> None:
        """The driver prints an Xid of a GPU."""
        self.log.write(f"NVRM: Xid (PCI:{self.addresses[gpu].rpartition('.')[0]}{instance}): {text}", **more)

    def held(self) -> list[tuple[str, str, int]]:
        """Reason, value and count of all that is held, by the file that a next scanner would read."""
        verdicts = spool.read(self.settings.verdicts_file, health_pb2.Verdicts)
        return sorted(
            (held.reason, held.value, held.count)
            for verdict in verdicts.verdicts
            for held in verdict.held
            if not held.is_over and not held.is_taken_back
        )

    def words(self) -> dict[str, list[str]]:
        """Reasons and warnings of every device that has some, as it is offered."""
        found = offered.offers_in(self.settings.run_dir).values()
        devices = [device for offer in found for device in offer.devices]
        return {
            device.id: [*device.reasons, *device.warnings] for device in devices if device.reasons or device.warnings
        }

    def notices(self) -> list[spool_pb2.Problem]:
        """What is no problem and still said."""
        return list(spool.read(self.settings.scan_file, spool_pb2.ScanSummary).notices)

    def counted(self, metric) -> dict[tuple[str, ...], int]:
        """The series of a counter, by their last label."""
        self.files.keep_counters()
        state = spool.read(self.settings.scanner_state_file, spool_pb2.ScannerState)
        return {tuple(one.labels)[2:]: int(one.total) for one in state.counters if one.metric == metric.name}

    def problems(self) -> list[tuple[str, str]]:
        """Path and error of each that is about the log."""
        summary = spool.read(self.settings.scan_file, spool_pb2.ScanSummary)
        return [(problem.path, problem.error) for problem in summary.problems if problem.vendor == "kernel-log"]


@pytest.fixture
def node(tmp_path):
    """Eight GPUs, and a scanner that has looked at them."""
    return Node(tmp_path, "nvidia-8").start()


def test_an_xid_is_held_against_its_gpu_until_the_driver_says_that_all_is_well(node):
    """Xid 154 with a last number of 0 is that word, whatever its text."""
    node.xid(f"79, pid=812, name=python3, {GONE}", gpu=2)
    assert list(node.hear().words().values()) == [["xid"]]
    assert node.held() == [("xid", "79", 1)]
    node.xid(f"{ACTION} 0x0 (None) to 0x1 (GPU Reset Required)", gpu=2)
    assert node.hear().held() == [("recovery-action", "1", 1), ("xid", "79", 1)]
    node.xid(f"{ACTION} 0x1 (GPU Reset Required) to 0x0 (None)", gpu=2)
    assert (node.hear().held(), node.words()) == ([], {})


def test_eight_of_eight_gpus_that_fall_off_the_bus_are_unhealthy_at_once(node):
    """A PCIe switch or the baseboard has failed: none of them may be given to a pod while a minute passes."""
    for gpu in range(8):
        node.xid(f"79, {GONE}", gpu=gpu)
    assert [words for _, words in sorted(node.hear().words().items())] == [["xid"]] * 8
    offers = offered.offers_in(node.settings.run_dir).values()
    assert [list(device.reasons) for offer in offers for device in offer.devices] == [["xid"]] * 8


def test_what_the_log_said_before_the_scanner_began_counts_unless_it_was_over_by_then(tmp_path):
    """The log is read from its beginning: a driver that was loaded anew has started its GPUs anew."""
    node = Node(tmp_path, "nvidia-8")
    now = time.monotonic()
    node.xid(f"79, {GONE}", gpu=0, monotonic=now - 40)
    node.xid(f"79, {GONE}", gpu=1, monotonic=now - 40)
    node.xid(f"{ACTION} 0x1 (x) to 0x0 (None)", gpu=1, monotonic=now - 30)
    node.xid(f"79, {GONE}", gpu=2, monotonic=now - 40)
    node.log.write(f"pci {node.addresses[2]}: [10de:2330] type 00 class 0x030200", monotonic=now - 30)
    assert len(node.start().words()) == 1
    node.log.write("nvidia-nvlink: Nvlink Core is being initialized, major device number 510", monotonic=now - 20)
    assert node.hear().words() == {}


def test_a_restarted_scanner_doubles_nothing_and_loses_nothing(node):
    """Killed at any time: what it has taken in is in the file of verdicts, with the place in the log."""
    for code in (79, 31, 79):
        node.xid(f"{code}, x")
    before = node.hear().held()
    assert ("xid", "79", 2) in before
    assert node.start().held() == before
    node.xid("79, printed while no scanner runs")
    assert ("xid", "79", 3) in node.start().held()
    assert node.counted(counters.XIDS) == {("79",): 3, ("31",): 1}


def unstarted(node, gpu: int, *, monotonic: float | None = None) -> None:
    """The driver prints that it cannot start a GPU."""
    more = {} if monotonic is None else {"monotonic": monotonic}
    node.log.write(f"NVRM: GPU {node.addresses[gpu]}: RmInitAdapter failed! (0x62:0x65:1792)", **more)


def test_a_start_that_failed_earlier_in_the_boot_is_disproved_by_a_gpu_that_is_started(tmp_path):
    """Defect: one failed start before devherd condemned a GPU for good that the driver had started since.

    open-gpu-kernel-modules issues 943 and 639: the firmware came too late, or its load was interrupted. procfs has the
    video BIOS of a started GPU only. A GPU that has fallen off the bus stays so.
    """
    node = Node(tmp_path, "nvidia-8")
    now = time.monotonic()
    unstarted(node, 0, monotonic=now - 40)
    node.xid(f"79, {GONE}", gpu=1, monotonic=now - 40)
    assert list(node.start().words().values()) == [["xid"]]
    assert node.held() == [("xid", "79", 1)]


def test_a_start_that_fails_counts_until_the_driver_has_started_the_gpu(node):
    """Also after earlier starts: what the last scan saw is older."""
    faults.inject(node.node, "not-started", node.addresses[3])
    assert list(node.hear().words().values()) == [["not-started"]]
    node.files.observer.scan(time.monotonic())
    node.files.observer.poll(periodic=True)
    assert list(node.hear().words().values()) == [["not-started"]]

    faults.clear(node.node, "not-started", node.addresses[3])
    node.files.observer.poll(periodic=True)
    assert list(node.hear().words().values()) == [["not-started"]]
    node.files.observer.scan(time.monotonic())
    node.files.observer.poll(periodic=True)
    assert (node.hear().words(), node.held()) == ({}, [])


def test_three_good_looks_of_nvml_disprove_a_failed_start_where_procfs_does_not(node):
    """As a driver without that line; NVML's evidence is about the moment of the first of the looks."""
    faults.inject(node.node, "not-started", node.addresses[3])
    node.files.observer.scan(time.monotonic())
    assert list(node.hear().words().values()) == [["not-started"]]
    seen = Seen()
    (key,) = [key for key in node.files.observer.inventory.entries if key[1] == node.addresses[3]]
    seen.evident(key, Evidence.STARTED, time.monotonic())
    node.files.observer.policy.note(seen, node.files.observer.now())
    assert node.hear().words() == {}


def test_a_function_that_does_not_come_back_from_d3cold_is_off_the_bus_at_once_and_until_it_answers(node):
    """Defect: a dead function counted as asleep, as the kernel leaves it in D3cold. Here it is even suspended again."""
    faults.inject(node.node, "no-resume", node.addresses[5], "suspended")
    assert list(node.hear().words().values()) == [["off-bus"]]
    for _ in range(4):
        node.files.observer.scan(time.monotonic())  # the driver's procfs still has the video BIOS of a started GPU
        node.files.observer.poll(periodic=True)
    assert list(node.hear().words().values()) == [["off-bus"]]

    faults.clear(node.node, "no-resume", node.addresses[5])
    node.files.observer.poll(periodic=True)
    assert (node.hear().words(), node.held()) == ({}, [])


def test_a_function_that_answers_again_when_the_record_is_read_is_never_condemned(tmp_path):
    """The kernel has woken it since; the same text in the older form."""
    node = Node(tmp_path, "nvidia-8")
    for text in (
        "Unable to change power state from D3cold to D0, device inaccessible",
        "can't change power state from D3hot to D0 (config space inaccessible)",
    ):
        node.log.write(f"nvidia {node.addresses[0]}: {text}", monotonic=time.monotonic() - 30)
    assert node.start().words() == {}
    assert node.counted(counters.FINDINGS) == {}


def test_records_about_functions_that_are_no_devices_do_not_crowd_out_others(node):
    """Ports and USB controllers print the same: nothing waits for them."""
    addresses = [f"0000:{bus:02x}:{slot:02x}.0" for bus in range(0xC0, 0xCA) for slot in range(32)]
    text = "pcieport {}: Unable to change power state from D3cold to D0, device inaccessible"
    node.log.write_all([text.format(address) for address in addresses])  # one by one each would wait for a reader
    assert node.hear().words() == {}
    assert node.files.observer.remembered().waiting == []


WARP = "Graphics SM Warp Exception on (GPC 0, TPC 0, SM 0): Out Of Range Address"
MMU = "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f_00000000"


def test_an_applications_own_xid_is_an_event_and_nothing_else(node):
    """With process and device; in a loop once a minute. The texts are those of kernel_rc.c, open-gpu-kernel-modules."""
    printed = [
        *[f"13, pid=4711, name=python3, {WARP}"] * 3,
        f"31, pid=4711, name=python3, {MMU}",
        f"13, pid=4712, name=my prog, {WARP}",
        "45, pid=4712, name=my prog, Ch 00000008, caused by previous Xid 31",
        f"13, pid='<unknown>', name=<unknown>, {WARP}",
        f"31, {MMU}",
        "63, pid=4712, name=my prog, Row Remapper: New row (0x1) marked for remapping",
    ]
    for text in printed:
        node.xid(text, gpu=1)
        node.hear()
    node.xid(f"13, pid=4713, name=older, {WARP}", gpu=1, monotonic=time.monotonic() - 120)
    assert node.hear().words() == {}
    found = [event for event in history.events(node.settings.run_dir) if event.kind == "application"]

    [device] = {event.device_id for event in found}
    assert [(event.resource_name, event.message, dict(event.details)) for event in found] == [
        (
            "nvidia.com/gpu",
            f"Xid {code}: {name} of process {pid}, {process}: {what}",
            {"xid": code, "pid": pid, "name": process},
        )
        for code, name, pid, process, what in (
            ("13", "GR_EXCEPTION", "4711", "python3", WARP),
            ("31", "FIFO_ERROR_MMU_ERR_FLT", "4711", "python3", MMU),
            ("13", "GR_EXCEPTION", "4712", "my prog", WARP),
        )
    ]
    assert device in {each.id for each in offered.offers_in(node.settings.run_dir)["nvidia.com/gpu"].devices}


def test_records_that_nobody_could_read_in_time_are_counted(node):
    """The ring came round."""
    node.log.write_all(["x"] * 100)
    node.hear()
    assert node.counted(counters.KERNEL_LOG_LOST) == {(): 0}
    node.log.write_all(["x"] * 100)
    node.log.overwrite()
    node.hear()
    assert node.counted(counters.KERNEL_LOG_LOST) == {(): 100}


def test_a_storm_is_taken_in_part_by_part(node, monkeypatch):
    """The scanner beats and looks at devices in between; equal records are one event."""
    monkeypatch.setattr(kernel_log, "RECORDS_A_ROUND", 100)
    address = node.addresses[0].rpartition(".")[0]
    node.log.write_all([f"NVRM: Xid (PCI:{address}): 95, pid=1, Uncontained: x"] * 250)
    assert [node.files.observer.read_kernel_log() for _ in range(3)] == [True, True, False]
    assert node.hear().held() == [("xid", "95", 250)]
    assert node.counted(counters.XIDS) == {("95",): 250}


def test_xids_that_follow_from_others_are_only_counted(node):
    """A channel that went down with another is no fault of its own."""
    node.xid("45, pid=9, name=x, Ch 00000001, caused by previous Xid 31")
    node.xid("149, NETIR_LINK_EVT Nonfatal XC0 i0 Link 08 (0x004505c6 0x0 0x0 0x0 0x0)")
    assert node.hear().held() == []
    assert node.counted(counters.XIDS) == {("45",): 1, ("149",): 1}


def test_an_xid_of_a_mig_instance_is_held_against_that_instance_alone(tmp_path):
    """The peers' patterns do not match such lines at all."""
    node = Node(tmp_path, "nvidia-mig")
    node.vendors = {"nvidia": {"mig_strategy": "mixed"}}
    node.start()
    entries = node.files.observer.inventory.entries.values()
    instance = next(entry.device for entry in entries if "gpu_instance" in entry.device.attributes)
    number = int(instance.attributes["gpu_instance"])
    gpu = node.addresses.index(instance.attributes["pci_address"])
    node.xid("94, pid=1, name=x, Contained", gpu=gpu, instance=f" GPU-I:{number:02d}")
    assert node.hear().words() == {instance.id: ["xid"]}
    node.xid("94, of the whole GPU", gpu=gpu)
    assert len(node.hear().words()) == 3


def test_what_is_said_of_a_gpu_before_a_scan_finds_it_is_held_against_it_then(tmp_path):
    """A driver speaks while it starts a GPU; what it said before it was loaded anew is over."""
    node = Node(tmp_path, "nvidia-8")
    late, other = node.addresses[4:6]
    for address in (late, other):
        faults.inject(node.node, "unbind", address)
    node.start()
    node.xid("119, Timeout waiting for RPC from GSP", gpu=4)
    node.xid("119, Timeout waiting for RPC from GSP", gpu=5)
    node.log.write(f"pci {other}: [10de:2330] type 00 class 0x030200")
    assert node.hear().words() == {}
    for address in (late, other):
        faults.clear(node.node, "unbind", address)
    node.files.observer.scan(time.monotonic())
    assert (node.hear().held(), len(node.words())) == ([("xid", "119", 1)], 1)
    node.files.observer.scan(time.monotonic())
    assert node.hear().held() == [("xid", "119", 1)]


def test_an_sxid_is_a_warning_for_every_gpu(node):
    """It is a switch's, and any GPU behind it may be concerned: of its severity, until the driver is loaded anew."""
    node.log.write("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12033, Non-fatal, Link 30 ingress invalid ACL")
    assert list(node.hear().words().values()) == [["fabric"]] * 8
    node.log.write("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")
    assert list(node.hear().words().values()) == [["fabric", "fabric-fatal"]] * 8
    node.log.write("nvidia-nvlink: Nvlink Core is being initialized, major device number 510")
    assert list(node.hear().words().values()) == [["fabric"]] * 8


def fatal_sxid(node: Node, port: str) -> None:
    """As recorded in tests/recorded/kernel_log.toml, at a port of a switch."""
    switch, _, link = port.partition("/")
    node.log.write(
        f"nvidia-nvswitch0: SXid (PCI:{switch}): 24007, Fatal, Link {int(link):02} sourcetrack timeout error"
    )


def ports_of(node: Node, gpu: int) -> list[str]:
    """The ports of switches that the links of a GPU lead to, as NVML tells on that node."""
    answer = json.loads((node.node.root / NVML_ANSWER).read_text())
    return list(answer["facts"]["gpus"][gpu]["switch_ports"].values())


def test_a_fatal_sxid_condemns_the_gpu_at_that_link_and_warns_of_all(tmp_path):
    """NVML tells which it is; what ends it for the others ends it for that one."""
    node = Node(tmp_path, "nvidia-8-nvswitch").start()
    first, other = node.addresses[2], node.addresses[5]
    fatal_sxid(node, ports_of(node, 2)[4])
    words = node.hear().words()
    uuids = {entry.device.card: key[2] for key, entry in node.files.observer.inventory.entries.items()}
    assert words.pop(uuids[first]) == ["nvlink-fatal", "fabric-fatal"]
    assert list(words.values()) == [["fabric-fatal"]] * 7
    details = {held.finding.detail for held in node.files.observer.policy.held_against(("nvidia", other, uuids[other]))}
    assert all(detail.endswith(f"(this link leads to the GPU at {first})") for detail in details)
    node.log.write("nvidia-nvlink: Nvlink Core is being initialized, major device number 510")
    assert node.hear().words() == {}


def test_an_sxid_that_is_not_fatal_names_the_gpu_and_condemns_none(tmp_path):
    """A warning for all, as without NVML."""
    node = Node(tmp_path, "nvidia-8-nvswitch").start()
    switch, _, link = ports_of(node, 7)[0].partition("/")
    node.log.write(f"nvidia-nvswitch0: SXid (PCI:{switch}): 20009, Non-fatal, Link {int(link):02} RX Short Error Rate")
    assert list(node.hear().words().values()) == [["fabric"]] * 8
    details = {held.finding.detail for _, all_held in node.files.observer.policy.all_held() for held in all_held}
    assert {detail.partition(" (this")[2] for detail in details} == {f" link leads to the GPU at {node.addresses[7]})"}


def test_a_fatal_sxid_at_a_link_between_switches_condemns_no_gpu(tmp_path):
    """A trunk link of a DGX-2: no GPU is at its other end. The same for a text that names no link."""
    node = Node(tmp_path, "nvidia-8-nvswitch").start()
    fatal_sxid(node, "0000:f0:00.0/63")
    node.log.write("nvidia-nvswitch0: SXid (PCI:0000:f0:00.0): 26007, Fatal, SOE EXTERR")
    assert list(node.hear().words().values()) == [["fabric-fatal"]] * 8


@pytest.mark.parametrize("restarts", [False, True])
def test_a_fatal_sxid_condemns_its_gpu_as_soon_as_nvml_has_told_which_it_is(tmp_path, restarts):
    """The log of the boot is replayed before NVML answers; once, also when the scanner starts again between the two."""
    node = Node(tmp_path, "nvidia-8-nvswitch")
    answer = node.node.root / NVML_ANSWER
    told = answer.read_text()
    port = ports_of(node, 3)[0]
    answer.unlink()
    node.start()
    fatal_sxid(node, port)
    assert list(node.hear().words().values()) == [["fabric-fatal"]] * 8
    if restarts:
        node.start()
    answer.write_text(told)
    for _ in range(2):
        node.files.observer.scan(time.monotonic())
        node.hear()
        assert node.held() == [("fabric-fatal", "24007", 1)] * 8 + [("nvlink-fatal", "24007", 1)]


def test_the_mig_devices_of_the_gpu_at_a_fatal_link_follow_it(tmp_path):
    """Its fabric is theirs."""
    node = Node(tmp_path, "nvidia-8-nvswitch")
    node.vendors = {"nvidia": {"mig_strategy": "mixed"}}
    node.node.nvidia.create_mig_device(node.addresses[1], "1g.10gb")
    node.node.nvidia.create_mig_device(node.addresses[1], "1g.10gb")
    node.start()
    fatal_sxid(node, ports_of(node, 1)[0])
    words = node.hear().words()
    assert sorted(words.values()) == [["fabric-fatal"]] * 7 + [["nvlink-fatal", "fabric-fatal"]] * 2


def test_a_wedged_gpu_is_taken_back_when_its_driver_has_reset_it(tmp_path):
    """Any driver of the kernel's DRM says so in the same words."""
    node = Node(tmp_path, "intel-gpu-2").start()
    entries = node.files.observer.inventory.entries.values()
    address = next(entry.device.attributes["pci_address"] for entry in entries)
    node.log.write(f"xe {address}: [drm] device wedged, needs recovery", pci_address=address)
    assert list(node.hear().words().values()) == [["wedged"]]
    node.log.write(f"xe {address}: [drm] device wedged, but recovered through reset", pci_address=address)
    assert node.hear().words() == {}


def test_a_gpu_that_i915_could_not_start_is_unhealthy_until_it_is_bound_anew(tmp_path):
    """Defect: it was Healthy: i915 makes its nodes, and sends no uevent of it. It is logged before devherd starts."""
    node = Node(tmp_path, "intel-gpu-2")
    places = {place.name for place in (node.node.root / "sys/bus/pci/drivers/i915").glob("*:*")}
    [address] = places
    faults.inject(node.node, "wedged", address, "at-load")
    words = node.start().words()
    assert list(words.values()) == [["firmware", "wedged"]]
    node.files.observer.poll(periodic=True)
    function = next(
        function.path
        for entry in node.files.observer.inventory.entries.values()
        for function in entry.device.functions
        if function.path.endswith(address)
    )
    bound = {"ACTION": "bind", "DEVPATH": function.removeprefix("/sys"), "SUBSYSTEM": "pci", "DRIVER": "i915"}
    node.files.observer.poll(periodic=False, changes=HostChanges([bound]))
    assert node.hear().words() == {}


def test_a_chip_that_i915_could_not_reset_is_wedged_until_a_later_reset_helps(tmp_path):
    """Defect: it was Healthy. `ERROR=0` is sent of a GPU that is not wedged any more, and of no other."""
    node = Node(tmp_path, "intel-gpu-2").start()
    entry = next(
        entry for entry in node.files.observer.inventory.entries.values() if entry.device.attributes["driver"] == "i915"
    )
    for text in ("GuC initialization failed -ETIMEDOUT", "Failed to reset chip"):
        node.log.write(f"i915 {entry.device.attributes['pci_address']}: [drm] *ERROR* GT0: {text}")
    assert list(node.hear().words().values()) == [["firmware", "wedged"]]
    card = f"{entry.device.functions[0].path.removeprefix('/sys')}/drm/card0"
    helped = {"ACTION": "change", "DEVPATH": card, "SUBSYSTEM": "drm", "ERROR": "0"}
    node.files.observer.poll(periodic=False, changes=HostChanges([helped]))
    assert node.hear().words() == {}


def test_a_reset_of_amd_that_does_not_end_makes_the_gpu_unhealthy_after_a_minute(tmp_path):
    """Defect: a reset that began and hung was nothing. AMD lists such resets; only a reboot ends them."""
    node = Node(tmp_path, "amd-8")
    addresses = sorted(place.name for place in (node.node.root / "sys/bus/pci/drivers/amdgpu").glob("*:*"))
    hangs, resets, done = addresses[:3]
    now = time.monotonic()
    begun = "amdgpu {}: amdgpu: GPU reset begin!. Source:  1"
    node.log.write(begun.format(hangs), monotonic=now - 61)
    node.log.write(begun.format(done), monotonic=now - 300)
    node.log.write(f"amdgpu {done}: amdgpu: GPU reset(3) succeeded!", monotonic=now - 290)
    node.log.write(begun.format(resets), monotonic=now - 20)
    words = node.start().words()
    by_address = {
        entry.device.attributes["pci_address"]: words.get(entry.device.id)
        for entry in node.files.observer.inventory.entries.values()
    }
    assert [by_address[address] for address in (hangs, resets, done)] == [["gpu-reset"], None, None]
    faults.inject(node.node, "reset-hangs", hangs)
    faults.clear(node.node, "reset-hangs", hangs)
    assert node.hear().words() == {}


def test_a_gpu_whose_bad_pages_reach_the_threshold_is_unhealthy_at_once(tmp_path):
    """Defect: it was Healthy until its driver started the next time, which says the same in other words."""
    node = Node(tmp_path, "amd-8").start()
    address = min(place.name for place in (node.node.root / "sys/bus/pci/drivers/amdgpu").glob("*:*"))
    node.log.write(f"amdgpu {address}: amdgpu: Saved bad pages 64 reaches threshold value 64")
    assert node.hear().held() == [("ecc", "amdgpu-bad-pages-beyond-threshold", 1)]
    assert list(node.words().values()) == [["ecc"]]


def test_a_rule_of_the_user_s_own_is_a_warning_with_its_name(node):
    """Other actions are for the rules of the policy: a source knows none."""
    node.options = {
        "kernel_log": {"rules": [{"name": "slow", "contains": "is slow", "pattern": r"^nvidia (?P<bdf>\S+): is slow"}]}
    }
    node.start().log.write(f"nvidia {node.addresses[3]}: is slow")
    assert (node.hear().held(), list(node.words().values())) == ([("kernel-log", "slow", 1)], [["kernel-log"]])


@pytest.mark.parametrize(
    "options",
    [
        {"enabled": True},
        {"optional": ["pci-hardware-error"]},
        {"rules": [{"name": "slow", "contains": "is slow", "pattern": "^nvidia (?P<bdf>.+): is slow"}]},
    ],
)
def test_a_log_that_is_asked_for_and_cannot_be_read_is_one_problem_with_the_cure(node, options):
    """And it is read as soon as it can be: from its beginning."""
    node.options = {"kernel_log": options}
    log = node.node.root / "dev/kmsg"
    log.rename(log.with_name("elsewhere"))
    [(path, error)] = node.start().problems()
    assert path == "/dev/kmsg"
    assert error.startswith("the kernel log cannot be read: No such file or directory: ")
    assert error.endswith("or set health.kernel_log.enabled to false")
    log.with_name("elsewhere").rename(log)
    node.xid(f"79, {GONE}")
    node.files.observer.scan(time.monotonic())
    assert (len(node.hear().words()), node.problems()) == (1, [])


def test_a_log_that_nobody_has_asked_for_and_that_may_not_be_read_is_a_note_with_the_cure(node, caplog):
    """It is so in each pod with the rights of the manifests: no problem, and said in the log once."""
    caplog.set_level(logging.INFO)
    log = node.node.root / "dev/kmsg"
    log.rename(log.with_name("elsewhere"))
    assert node.start().problems() == []
    for _ in range(3):
        node.files.observer.scan(time.monotonic())
        assert node.hear().problems() == []
    [notice] = node.notices()
    assert (notice.path, notice.error.partition(": ")[0]) == ("/dev/kmsg", "the kernel log cannot be read")
    assert len([record for record in caplog.messages if "the kernel log cannot be read" in record]) == 1
    log.with_name("elsewhere").rename(log)
    node.files.observer.scan(time.monotonic())
    assert list(node.hear().notices()) == []


def test_whoever_switches_the_log_off_hears_no_more_of_it(node):
    """Neither Xids nor problems."""
    (node.node.root / "dev/kmsg").unlink()
    node.options = {"kernel_log": {"enabled": False}}
    assert node.start().problems() == []


def test_a_driver_that_prints_no_xids_is_a_problem(node):
    """Its parameter says so."""
    (node.node.root / "proc/driver/nvidia/params").write_text("ResmanDebugLevel: 4294967295\nRmLogonRC: 0\n")
    node.files.observer.scan(time.monotonic())
    [(path, error)] = node.hear().problems()
    assert path == "/proc/driver/nvidia/params"
    assert "RmLogonRC is 0" in error


def test_where_no_device_has_an_address_nobody_misses_the_log(tmp_path):
    """There is nothing that the kernel could say."""
    node = Node(tmp_path, "generic")
    (node.node.root / "dev/kmsg").unlink()
    assert node.start().problems() == []


@pytest.mark.parametrize("end", ["card", "port above"])
def test_an_uncorrectable_pci_error_in_the_log_has_the_counters_read_at_once(node, end):
    """The kernel prints it of the end that has it; a regular look at the counters may be ten seconds away."""
    function = node.node.functions.path_of(node.addresses[0])
    counting = function if end == "card" else function.parent
    counter = counting / "aer_dev_fatal"
    counter.write_text("TOTAL_ERR_FATAL 0\n")
    node.start()
    node.files.observer.poll(periodic=True)
    counter.write_text("TOTAL_ERR_FATAL 1\n")
    for _ in range(2):
        node.files.observer.poll(periodic=True)
    node.hear()
    assert node.words() == {}

    node.log.write(
        f"pcieport {counting.name}: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link Layer"
    )
    node.hear()
    [words] = node.words().values()
    assert words == ["pci-aer"]
