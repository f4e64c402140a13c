"""What the shipped rules make of the texts that drivers print, in records as the kernel writes them."""

import time

import pytest
from not_tested import not_tested

from devherd._native import KernelLog
from devherd.reasons.kernel_log_rules import SHIPPED, compiled_from, in_force
from devherd_sim.node.kernel_events import KernelLog as SimulatedLog

FALLEN = (
    "NVRM: The NVIDIA GPU 0000:3b:00.0\nNVRM: (PCI ID: 10de:2330) installed in this system has\n"
    "NVRM: fallen off the bus and is not responding to commands."
)
# as posted: https://github.com/awslabs/amazon-eks-ami/issues/2768, https://github.com/NixOS/nixos-hardware/issues/1880
REFUSES = (
    "NVRM: The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:2bb1)\n"
    "NVRM: installed in this system requires use of the NVIDIA open kernel modules."
)
NOT_SUPPORTED = (
    "NVRM: The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:1292)\nNVRM: installed in this system is not supported by the "
    "304.116\nNVRM: NVIDIA Linux driver release.  Please see 'Appendix"
)
LEGACY = (
    "NVRM: The NVIDIA Tesla P100-PCIE-16GB GPU installed in this system is\nNVRM:  supported through the NVIDIA 580.xx "
    "Legacy drivers. Please\nNVRM:  visit http://www.nvidia.com/object/unix.html for more\nNVRM:  information.  The "
    "595.71.05 NVIDIA driver will ignore\nNVRM:  this GPU.  Continuing probe..."
)
UUID = "GPU-5a3c0f0e-1111-2222-3333-444455556666"
RECOVERY = "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from"
GPU = {"pci_address": "0000:3b:00"}

FORMS = [
    ("NVRM: Xid (PCI:0000:3B:00): 79, pid=812, name=a (b): 31, c, GPU lost", "nvidia-xid", GPU | {"xid": "79"}),
    ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", "nvidia-xid", GPU | {"xid": "79"}),
    ("NVRM: Xid (PCI:0000:3b:00): 13, pid='<unknown>', name=<unknown>, x", "nvidia-xid", GPU | {"xid": "13"}),
    ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "nvidia-xid", {"pci_address": "0000:03:00", "xid": "14"}),
    (
        "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, pid=1, name=x, Contained: SM (0x1)",
        "nvidia-xid",
        GPU | {"xid": "94", "gpu_instance": 5},
    ),
    (
        "NVRM: Xid (PCI:0000:3b:00 GPU-I:11 GPU-CI:00): 43, pid=1, name=x, Ch 8",
        "nvidia-xid",
        GPU | {"xid": "43", "gpu_instance": 11, "compute_instance": 0},
    ),
    ("NVRM: Xid (PCI:0000:3b:00): 45, pid=9, name=x, Ch 1, caused by something", "nvidia-xid", GPU | {"xid": "45"}),
    (
        "NVRM: Xid (PCI:0000:3b:00): 45, pid=9, name=x, Ch 1, caused by previous Xid 31",
        "nvidia-xid-sympathetic",
        GPU | {"xid": "45"},
    ),
    (
        f"{RECOVERY} 0x0 (None) to 0x2 (Node Reboot Required)",
        "nvidia-recovery-action",
        GPU | {"xid": "154", "value": "2"},
    ),
    (f"{RECOVERY} 0x1 (GPU Reset Required) to 0x0 (None)", "nvidia-recovery-none", GPU | {"xid": "154", "value": "0"}),
    (
        "NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x0 0x0 0x0)",
        "nvidia-xid",
        GPU | {"xid": "149"},
    ),
    (
        "NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_EVT Nonfatal XC0 i0 Link 08 (0x004505c6 0x0 0x0 0x0 0x0)",
        "nvidia-nvlink-not-fatal",
        GPU | {"xid": "149"},
    ),
    (
        "NVRM: Xid (PCI:0000:3b:00): 145, RLW_REMAP Fatal XC1 i1 Link -1 (0x1 0x0 0x0 0x0)",
        "nvidia-nvlink-not-fatal",
        GPU | {"xid": "145"},
    ),
    (
        "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
        "nvidia-fallen-off-the-bus",
        {"pci_address": "0000:3b:00.0"},
    ),
    (FALLEN, "nvidia-fallen-off-the-bus", {"pci_address": "0000:3b:00.0"}),
    ("NVRM: GPU at 0000:3b:00.0 has fallen off the bus.", "nvidia-fallen-off-the-bus", {"pci_address": "0000:3b:00.0"}),
    (
        "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x24:0x72:1568)",
        "nvidia-not-initialised",
        {"pci_address": "0000:3b:00.0"},
    ),
    (REFUSES, "nvidia-refuses-gpu", {"pci_address": "0000:3b:00.0"}),
    (NOT_SUPPORTED, "nvidia-refuses-gpu", {"pci_address": "0000:3b:00.0"}),
    (LEGACY, "nvidia-legacy-gpu", {}),
    ("NVRM: ignoring the legacy GPU 0000:3b:00.0", "nvidia-said", {"pci_address": "0000:3b:00.0"}),
    (
        "NVRM: GPU 0000:3b:00.0: RmFetchGspRmImages: No firmware image found",
        "nvidia-said",
        {"pci_address": "0000:3b:00.0"},
    ),
    (
        "NVRM: _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting gsp",
        "nvidia-firmware-memory-in-use",
        {},
    ),
    (
        "NVRM: GPU0 _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP",
        "nvidia-firmware-memory-in-use",
        {},
    ),
    (f"NVRM: GPU at PCI:0000:3b:00: {UUID}", "nvidia-uuid", GPU | {"uuid": UUID}),
    (
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        "nvidia-sxid-fatal",
        {"pci_address": "0000:c1:00.0", "link": 30, "value": "20034"},
    ),
    (
        "nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 44 Minion Link DLREQ interrupt",
        "nvidia-sxid",
        {"pci_address": "0000:04:00.0", "link": 44, "value": "22013"},
    ),
    (
        "nvidia-nvswitch0: SXid (PCI:0000:C1:00.0): 26007, Fatal, SOE EXTERR",
        "nvidia-sxid-fatal",
        {"pci_address": "0000:c1:00.0", "value": "26007"},
    ),
    (
        "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 12033, Severity 1 Engine instance 00 Sub-engine instance 00",
        "nvidia-sxid",
        {"pci_address": "0000:c3:00.0", "value": "12033"},
    ),
    ("amdgpu 0000:03:00.0: amdgpu: GPU reset(1) failed", "amdgpu-reset-failed", {"pci_address": "0000:03:00.0"}),
    (
        "amdgpu 0000:03:00.0: amdgpu: GPU Recovery Failed: -110",
        "amdgpu-recovery-failed",
        {"pci_address": "0000:03:00.0"},
    ),
    ("amdgpu 0000:03:00.0: amdgpu: GPU reset(2) succeeded!", "amdgpu-reset-succeeded", {"pci_address": "0000:03:00.0"}),
    ("amdgpu 0000:03:00.0: amdgpu: device lost from bus!", "amdgpu-lost-from-bus", {"pci_address": "0000:03:00.0"}),
    (
        "amdgpu 0000:03:00.0: amdgpu: RAS records:130 exceed threshold:100",
        "amdgpu-bad-pages-beyond-threshold",
        {"pci_address": "0000:03:00.0"},
    ),
    (
        "amdgpu 0000:03:00.0: amdgpu: Saved bad pages 64 reaches threshold value 64",
        "amdgpu-bad-pages-beyond-threshold",
        {"pci_address": "0000:03:00.0"},
    ),
    (
        "amdgpu 0000:03:00.0: amdgpu: Saved bad pages(64) reaches threshold value(64).",
        "amdgpu-bad-pages-beyond-threshold",
        {"pci_address": "0000:03:00.0"},
    ),
    ("amdgpu 0000:03:00.0: amdgpu: GPU reset begin!", "amdgpu-reset-begun", {"pci_address": "0000:03:00.0"}),
    (
        "amdgpu 0000:03:00.0: amdgpu: GPU reset begin!. Source:  1",
        "amdgpu-reset-begun",
        {"pci_address": "0000:03:00.0"},
    ),
    (
        "amdgpu 0000:03:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
        "amdgpu-uncorrectable-error",
        {"pci_address": "0000:03:00.0"},
    ),
    (
        "xe 0000:03:00.0: [drm] *ERROR* CRITICAL: Xe has declared device 0000:03:00.0 as wedged.\nIOCTLs are blocked",
        "xe-wedged",
        {"pci_address": "0000:03:00.0"},
    ),
    (
        "xe 0000:03:00.0: [drm] *ERROR* GT1: load failed: status = 0x80007134, time = 8ms",
        "xe-firmware-not-loaded",
        {"pci_address": "0000:03:00.0"},
    ),
    *[
        (f"i915 0000:03:00.0: [drm] *ERROR* {text}", rule, {"pci_address": "0000:03:00.0"})
        for text, rule in (
            ("GT0: Failed to initialize GPU, declaring it wedged!", "i915-wedged"),
            ("Failed to initialize GPU, declaring it wedged!", "i915-wedged"),
            ("GT0: Failed to reset chip", "i915-reset-failed"),
            ("GT0: Failed to initialise HW following reset (-5)", "i915-reset-failed"),
            ("intel_gt_reset_global timed out, cancelling all in-flight rendering.", "i915-reset-failed"),
            ("GT0: GuC initialization failed -ENOENT", "i915-firmware-not-loaded"),
            ("GuC initialization failed -110", "i915-firmware-not-loaded"),
        )
    ],
    (
        "i915 0000:03:00.0: Failed to re-initialize GPU[0], declaring it wedged!",
        "i915-wedged",
        {"pci_address": "0000:03:00.0"},
    ),
    (
        "nvidia-nvlink: Nvlink Core is being initialized, major device number 510",
        "nvidia-driver-loaded",
        {},
    ),
    (
        "xe 0000:03:00.0: [drm] device wedged, needs recovery",
        "drm-wedged",
        {"pci_address": "0000:03:00.0"},
    ),
    (
        "amdgpu 0000:03:00.0: [drm] device wedged, but recovered through reset",
        "drm-recovered",
        {"pci_address": "0000:03:00.0"},
    ),
    (
        "amdgpu 0000:03:00.0: [drm] device wedged, but no recovery needed",
        "drm-recovered",
        {"pci_address": "0000:03:00.0"},
    ),
    (
        "nvidia 0000:3b:00.0: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link Layer, (Receiver ID)",
        "pci-uncorrectable-error",
        {"pci_address": "0000:3b:00.0"},
    ),
    (
        "pcieport 0000:3a:01.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Data Link Layer, (Requester ID)",
        "pci-uncorrectable-error",
        {"pci_address": "0000:3a:01.0"},
    ),
    (
        "mlx5_core 0000:3b:00.0: AER: aer_uncor_severity: 0x00462030",
        "pci-uncorrectable-error-of-firmware",
        {"pci_address": "0000:3b:00.0"},
    ),
    # really_probe in drivers/base/dd.c of Linux, 6.18 and before 6.10
    (
        "amdgpu 0000:3b:00.0: probe with driver amdgpu failed with error -22",
        "driver-probe-failed",
        {"pci_address": "0000:3b:00.0"},
    ),
    ("xe: probe of 0000:3b:00.0 failed with error -2", "driver-probe-failed", {"pci_address": "0000:3b:00.0"}),
    (
        "xe 0000:3b:00.0: Your graphics device e20b is not officially supported\nby xe driver in this kernel version.",
        "intel-gpu-not-supported",
        {"pci_address": "0000:3b:00.0"},
    ),
    (
        "vfio-pci 0000:01:00.0: Unable to change power state from D3cold to D0, device inaccessible",
        "pci-inaccessible",
        {"pci_address": "0000:01:00.0"},
    ),
    (
        "amdgpu 10000:01:00.0: Unable to change power state from D0 to D3hot, device inaccessible",
        "pci-inaccessible",
        {"pci_address": "10000:01:00.0"},
    ),
    (
        "i915 0000:8c:00.0: can't change power state from D3cold to D0 (config space inaccessible)",
        "pci-inaccessible",
        {"pci_address": "0000:8c:00.0"},
    ),
    (
        "mlx5_core 0000:5e:00.0: health recovery succeeded",
        "mlx5-health-recovered",
        {"pci_address": "0000:5e:00.0"},
    ),
    (
        "pci 0000:3b:00.0: [10de:2330] type 00 class 0x030200 PCIe Endpoint",
        "pci-added",
        {"pci_address": "0000:3b:00.0"},
    ),
]

SILENT = [
    "NVRM: Xid : 79, no address",
    "NVRM: Xid (PCI:0000:3b:00): abc",
    "python3[812]: segfault of NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    "NVRM: loading failed",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  595.45.04  Release Build",
    "NVRM: RmInitAdapter failed! (0x27:0x38:1193)",
    "NVRM: GPU 0000:3b:00.0: rm_init_adapter failed, device minor number 0",
    "python3: probe of nothing failed with error -22",
    "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* GPU Recovery Failed: -110",
    "amdgpu 0000:0d:00.0: amdgpu: GPU jobs stop begin!",
    # firmware that old GPUs do without, and a load that may be tried again (intel_uc.c)
    "i915 0000:0d:00.0: [drm] *ERROR* GT0: GuC firmware i915/adlp_guc_70.bin: fetch failed -ENOENT",
    "i915 0000:0d:00.0: [drm] GT0: GUC: load failed: status = 0x400000A0, time = 1ms, freq = 850MHz, ret = -110",
    # a program's hang: its engine was reset
    "i915 0000:0d:00.0: [drm] GPU HANG: ecode 12:4:2e040a51, in ffmpeg [1337]",
    "i915 0000:0d:00.0: [drm] Resetting chip for GuC failed to reset rcs0 (reason=0x00000000)",
    "i915 0000:0d:00.0: [drm] *ERROR* GT0: rcs0 reset request timed out: {request: 00000001, RESET_CTL: 00000001}",
    "amdgpu 0000:0d:00.0: amdgpu: GPU reset succeeded, trying to resume",
    "mlx5_core 0000:5e:00.0: poll_health:825: device's health compromised - reached miss count",
    "pcieport 0000:00:1c.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
    "nvme 0000:01:00.0: Refused to change power state from D0 to D3hot",
    "kata: Unable to change power state from D3cold to D0, device inaccessible",
    "nvidia 0000:3b:00.0: enabling device (0000 -> 0002)",
]

NOTHING = {
    "pci_address": "",
    "uuid": "",
    "gpu_instance": None,
    "compute_instance": None,
    "link": None,
    "xid": "",
    "value": "",
}


@pytest.fixture
def log(tmp_path):
    """The log of a node."""
    log = SimulatedLog(tmp_path)
    log.begin()
    return log


def said(tmp_path, options=None):
    """Every event of the node's log: the rule, and what it found."""
    rules = in_force(*(options or ((), ())))
    reader = KernelLog(str(tmp_path), compiled_from(rules.values()), simulated=True)
    events, lost, more = reader.drain(1000)
    reader.close()
    assert (lost, more) == (0, False)
    return [(event.rule, {name: getattr(event, name) for name in NOTHING}) for event in events]


@pytest.mark.parametrize(("text", "rule", "found"), FORMS, ids=[f"{rule}-{n}" for n, (_, rule, _) in enumerate(FORMS)])
def test_each_form_of_a_message_is_read(tmp_path, log, text, rule, found):
    """By one rule, with everything that it says of whom it is about."""
    log.write(text)
    assert said(tmp_path) == [(rule, NOTHING | found)]


def test_texts_that_only_look_like_one_say_nothing(tmp_path, log):
    """A process may be called anything, and messages of NICs count only where somebody wants that."""
    log.write_all(SILENT)
    assert said(tmp_path) == []


def test_the_driver_s_record_names_the_device_where_the_text_does_not(tmp_path, log):
    """`DEVICE=+pci:` is on every message of a driver about its device."""
    log.write("[drm] device wedged, needs recovery", pci_address="0000:03:00.0")
    assert said(tmp_path) == [("drm-wedged", NOTHING | {"pci_address": "0000:03:00.0"})]


def test_what_a_process_writes_into_the_log_is_not_the_kernel_s(tmp_path, log):
    """Whatever priority it claims, it is never of facility 0: that is how a process would condemn GPUs."""
    log.write("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", facility=1)
    assert said(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("mlx5_core 0000:5e:00.0: poll_health:825:(pid 0): device's health compromised", "mlx5-health-compromised"),
        ("mlx5_core 0000:5e:00.0: print_health_info: unrecoverable hardware error", "mlx5-unrecoverable"),
        (
            "mlx5_core 0000:5e:00.0: wait_func: ENABLE_HCA(0x104) timeout. Will cause a leak of a command resource",
            "mlx5-command-timeout",
        ),
        (
            "mlx5_core 0000:5e:00.0 eth2: NETDEV WATCHDOG: CPU: 3: transmit queue 7 timed out 5000 ms",
            "mlx5-transmit-timeout",
        ),
        (
            "mlx5_core 0000:5e:00.0: mlx5_pcie_event:304: Detected insufficient power on the PCIe slot (25W).",
            "mlx5-insufficient-power",
        ),
        (
            "mlx5_core 0000:5e:00.0: Port module event[error]: module 0, Cable error, High Temperature",
            "mlx5-high-temperature",
        ),
        ("mlx5_core 0000:5e:00.0: Port module event: module 0, Cable unplugged", "mlx5-cable-unplugged"),
        (
            "mlx5_core 0000:5e:00.0: mlx5_cmd_out_err:838:(pid 9): ACCESS_REG(0x805) op_mod(0x1) failed, status 3",
            "mlx5-register-access",
        ),
        ("{3}[Hardware Error]:   device_id: 0000:5e:00.0", "pci-hardware-error"),
    ],
)
def test_a_rule_that_is_off_is_switched_on_by_its_name(tmp_path, log, text, rule):
    """The NIC's texts: most of them come and go by themselves. What the firmware records is counted elsewhere, too."""
    log.write(text)
    assert said(tmp_path) == []
    assert said(tmp_path, ([rule], ())) == [(rule, NOTHING | {"pci_address": "0000:5e:00.0"})]


def test_the_log_of_this_machine_is_read():
    """The device itself: the kernel's first record is among what it keeps, or has been overwritten."""
    rule = ("any", "", "^(?P<value>.)")
    try:
        reader = KernelLog("/", [rule])
    except OSError as error:
        not_tested(f"/dev/kmsg: {error}")
    events, lost, _ = reader.drain(100_000)
    reader.close()
    assert events
    assert lost == 0
    assert all(event.monotonic <= time.monotonic() for event in events)


def test_every_rule_that_is_off_is_among_those(tmp_path):
    """So that none is shipped untested."""
    [parameters] = test_a_rule_that_is_off_is_switched_on_by_its_name.pytestmark
    assert {rule for _, rule in parameters.args[1]} == {rule.name for rule in SHIPPED if rule.optional}
    assert {rule for _, rule, _ in FORMS} == {rule.name for rule in SHIPPED if not rule.optional}


def test_a_rule_of_the_user_s_own_is_tried_after_the_shipped_ones(tmp_path, log):
    """It sees what they leave."""
    mine = ("mine", "nvidia", r"^nvidia (?P<bdf>\S+): enabling (?P<value>\w+)")
    log.write_all([SILENT[-1], FORMS[0][0]])
    assert said(tmp_path, ((), [mine])) == [
        ("mine", NOTHING | {"pci_address": "0000:3b:00.0", "value": "device"}),
        ("nvidia-xid", NOTHING | GPU | {"xid": "79"}),
    ]


def test_a_rule_of_the_user_s_own_is_tried_before_those_that_only_look_at_the_card(tmp_path, log):
    """They take no record away from anybody."""
    mine = ("mine", "PCIe Bus Error", r"^\S+ (?P<bdf>\S+): .*PCIe Bus Error: severity=Uncorrect")
    log.write("nvidia 0000:3b:00.0: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link Layer")
    assert said(tmp_path, ((), [mine])) == [("mine", NOTHING | {"pci_address": "0000:3b:00.0"})]


def test_a_rule_of_the_user_s_own_is_tried_before_those_that_are_only_quoted(tmp_path, log):
    """What was the user's own to read stays so."""
    mine = ("mine", "NVRM", r"^NVRM: GPU (?P<bdf>\S+\.\d): RmFetchGspRmImages")
    log.write("NVRM: GPU 0000:3b:00.0: RmFetchGspRmImages: No firmware image found")
    assert said(tmp_path, ((), [mine])) == [("mine", NOTHING | {"pci_address": "0000:3b:00.0"})]
