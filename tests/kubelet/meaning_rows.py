"""How each meaning of the registry comes about on a simulated node, and how it goes by its own way."""

from meanings_bed import (
    AMD,
    FILE,
    FPGA,
    GPU,
    RDMA,
    SHARED,
    XE,
    XILINX,
    Bed,
    Device,
    Row,
    Step,
    both,
    cleared,
    command,
    fault,
)

from devherd import spool
from devherd.reasons.registry import ALL_AT_ONCE, HANGING, MEANINGS, Meaning
from devherd.sources.nvml.findings import IN_MIG_MODE
from devherd_sim.node import faults
from devherd_sim.node.nvidia import switch_ports

[MADE_BY_THE_RUNTIME] = MEANINGS["scan", "node-missing"].by_value
"""The value for GPUs of which none has its node."""

PLAYED_ELSEWHERE = {
    ("kernel-log", "xid", "143"): "NVML that opens the GPU shows that it is started: tests/health/test_xid_policy.py",
    ("nvml", "xid", "143"): "likewise",
    ("kernel-log", "not-started"): "likewise: tests/scanner/test_kernel_log.py",
    ("mig-device", "gone"): "it takes a GPU in MIG mode: tests/scanner/test_latest_notice.py",
    ("probe", "probe-timeout"): "a read has to hang in the kernel: row `hanging read` of tests/faults",
    (
        "pci-aer-correctable-rate",
        "pci-aer",
    ): "the scan core takes a minute of its own clock: rust/src/health/sources/pci_aer.rs",
    ("pci-driver", "driver-unbound"): "a scan may see it first: tests/vendors/test_pci_health.py, for every vendor",
    ("nvml", "nvlink-down"): "it takes two looks of half a minute's distance: tests/nvml/test_nvml_watcher.py",
    ("nvml", "nvlink-errors"): "likewise",
    ("amd-nic-exporter", "external"): "as amd-exporter, with another word on the wire: tests/health/test_monitors.py",
    ("path", "node-missing"): "a scan may see it first: tests/vendors/test_generic_paths.py",
    ("ledger", "held-elsewhere"): "it takes a pod, a process and two looks: test_real_ledger.py",
    ("ledger", "left-over-process"): "likewise",
    ("inventory", "renamed"): "the device is offered under another name then: tests/scanner/test_renamed_devices.py",
    ("class", "class"): "the word and the file are a class's own: tests/classes/test_shipped_classes.py",
    ("cdi", "cdi-unwritable"): "it is about every device of a file: a test of its own in test_real_meanings.py",
}
"""Meanings without a row, by source, reason and, if it is about one, value; each with why."""

BOUND_ANEW = both(fault("uevent", "unbind"), fault("uevent", "bind"))
NEEDS_NOTHING = fault(
    "kernel-log",
    "NVRM: Xid (PCI:{slot}): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
)
COMPATIBILITY = "fpga_region/region*/dfl-fme.*/dfl-fme-region.*/fpga_region/region*/compat_id"
MANAGER = "fpga_region/region*/dfl-fme.*/dfl-fme-mgr.*/fpga_manager/fpga*/state"
PORT_POWER = "fpga_region/region*/dfl-port.*/power_state"
ENGINE = "fpga_region/region*/dfl-fme.*"


def of_fault(name: str, value: str = "", at: str = "{address}") -> dict[str, Step]:
    """Injected and cleared."""
    return {"inject": fault(name, value, at), "back": cleared(name, value, at)}


def of_nvml(statement: str) -> dict[str, Step]:
    """Said by the stub of the library as long as it stands; after its Xids, which are told once."""
    return of_fault("nvml", statement) | {"stage": 2}


def of_engine(value: str) -> dict[str, Step]:
    """The error register of the management engine above a port."""

    def name(bed: Bed, device: Device) -> str:
        return bed.place(ENGINE, device).rpartition("/")[2]

    return {
        "inject": lambda bed, device: faults.inject(bed.node, "fpga-errors", name(bed, device), value),
        "back": lambda bed, device: faults.clear(bed.node, "fpga-errors", name(bed, device)),
    }


def report(text: str) -> Step:
    """What the operator's file says from now on."""

    def write(bed: Bed, device: Device) -> None:
        spool.replace(bed.herd.directory / "report.jsonl", bed.text(text, device).encode())

    return write


def a_link_of_it_fails(bed: Bed, device: Device) -> None:
    """As the switch at the other end of its first link tells."""
    switch, _, port = switch_ports(bed.node.nvidia.addresses().index(device.address))["0"].partition("/")
    text = f"nvidia-nvswitch0: SXid (PCI:{switch}): 24007, Fatal, Link {int(port):02} sourcetrack timeout error (First)"
    faults.inject(bed.node, "kernel-log", device.address, text)


def every_amd_gpu_is_ill(bed: Bed, _device: Device) -> None:
    """Before AMD's exporter is asked for the first time."""
    for device in bed.devices[AMD]:
        faults.inject(bed.node, "amd-exporter", device.address)
    bed.exporter.start()


def every_amd_gpu_is_well(bed: Bed, _device: Device) -> None:
    """By the exporter's word."""
    for device in bed.devices[AMD]:
        faults.clear(bed.node, "amd-exporter", device.address)


def no_gpu_has_its_node(bed: Bed, _device: Device) -> None:
    """As on a host that was just booted."""
    for number in range(len(bed.node.nvidia.addresses())):
        faults.inject(bed.node, "node", f"nvidia{number}")


def gpus_have_their_nodes(bed: Bed, _device: Device) -> None:
    """As after the first container with a GPU."""
    for number in range(len(bed.node.nvidia.addresses())):
        faults.clear(bed.node, "node", f"nvidia{number}")


_UNBOUND = of_fault("unbind")
_SHELL_LOST = of_fault("unbind")

ROWS = [
    # before AMD's exporter answers, to which these counters are left then
    Row("amd-ras", "ecc", AMD, fault("ras"), stage=0),
    # before GPUs are in other trouble
    Row("scan", "node-missing", GPU, no_gpu_has_its_node, gpus_have_their_nodes, value=MADE_BY_THE_RUNTIME, stage=0),
    Row("fabric-manager", "fabric", GPU, **of_fault("fabric-manager", at="-"), stage=0, of_all=True),
    # before a GPU loses its driver, and the exporter with it knowledge of it
    Row("amd-exporter", "external", AMD, every_amd_gpu_is_ill, every_amd_gpu_is_well, value=ALL_AT_ONCE, of_all=True),
    # a card's driver and attributes
    Row("scan", "driver-unbound", AMD, **_UNBOUND),
    Row("scan", "node-missing", XILINX, **_SHELL_LOST),
    Row("scan", "shell-lost", XILINX, **of_fault("flash")),
    Row("scan", "unprogrammed", FPGA, **of_fault("afu", at="{id}")),
    Row("scan", "port-error", FPGA, **of_fault("afu", "torn", "{id}")),
    Row("scan", "fme-error", FPGA, **of_fault("file", at=COMPATIBILITY)),
    Row("scan", "shell-unreadable", XILINX, **of_fault("file", "x" * 5000, "rom.u.*/VBNV")),
    Row("node", "node-missing", FPGA, **of_fault("node", at="{id}")),
    Row("inventory", "gone", FILE, **of_fault("file", at="run/licence")),
    Row("inventory", "gone", XE, **of_fault("remove")),
    Row("pci-power", "power-state", FPGA, **of_fault("power")),
    Row("device-dump", "device-dump", XE, **of_fault("device-dump")),
    Row("pci-config", "off-bus", FPGA, **of_fault("off-bus")),
    Row("pci-link", "link-degraded", FPGA, **of_fault("link")),
    Row("temperature", "temperature", FPGA, **of_fault("temperature")),
    Row("fpga-errors", "port-error", FPGA, **of_fault("fpga-errors", at="{id}")),
    Row("fpga-errors", "fme-error", FPGA, **of_engine("0x2")),
    Row("fpga-manager", "unprogrammed", FPGA, **of_fault("file", "write", MANAGER)),
    Row("fpga-power", "power-throttled", FPGA, **of_fault("file", "0x2", PORT_POWER)),
    Row("rdma-port", "port-down", RDMA, **of_fault("port-down", at="{id}")),
    Row("rdma-rate", "link-degraded", RDMA, **of_fault("rdma-rate", at="{id}")),
    Row("gpu-temperature", "temperature", AMD, **of_fault("temperature")),
    Row("amd-bad-pages", "ecc", AMD, **of_fault("bad-page")),
    Row("xe-health", "firmware", XE, **of_fault("gpu-health")),
    Row("xe-health-warning", "firmware", XE, **of_fault("gpu-health", "warning")),
    # counters and events that time ends
    Row("pci-aer-fatal", "pci-aer", FPGA, fault("aer")),
    Row("pci-aer-nonfatal", "pci-aer", FPGA, fault("aer", "nonfatal")),
    Row("pci-aer-correctable", "pci-aer", FPGA, fault("aer", "correctable")),
    Row("rdma-link-downed", "link-downed", RDMA, fault("rdma-counter", at="{id}")),
    Row("rdma-link-flaps", "link-flapping", RDMA, fault("rdma-counter", "link_downed 3", "{id}")),
    Row("rdma-errors", "link-errors", RDMA, fault("rdma-counter", "local_link_integrity_errors", "{id}")),
    Row("pci-recovery", "pci-recovery", FPGA, fault("recovery", "begun"), value="BEGIN_RECOVERY"),
    Row("wedged", "wedged", XE, fault("uevent", "change WEDGED=none", "drm/card*"), value="none"),
    Row(
        "kernel-log",
        "fabric",
        GPU,
        fault("kernel-log", "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12033, Non-fatal, Link 03 ingress invalid ACL"),
    ),
    Row(
        "kernel-log",
        "ecc",
        AMD,
        fault(
            "kernel-log",
            "amdgpu {address}: amdgpu: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
        ),
    ),
    Row("kernel-log", "kernel-log", RDMA, fault("kernel-log", "bench: it squeaks")),
    # events that something else ends
    Row("pci-recovery", "pci-recovery", FPGA, **of_fault("recovery", "failed")),
    Row("wedged", "wedged", XE, fault("uevent", "change WEDGED=rebind", "drm/card*"), BOUND_ANEW),
    Row(
        "wedged",
        "wedged",
        XE,
        fault("uevent", "change ERROR=1", "drm/card*"),
        fault("uevent", "change ERROR=0", "drm/card*"),
        value=HANGING,
    ),
    Row(
        "kernel-log",
        "wedged",
        XE,
        fault("kernel-log", "xe {address}: [drm] device wedged, needs recovery"),
        fault("kernel-log", "xe {address}: [drm] device wedged, but recovered through reset"),
    ),
    Row(
        "kernel-log",
        "firmware",
        RDMA,
        fault("kernel-log", "mlx5_core {address}: poll_health:800: device's health compromised - reached miss count"),
        BOUND_ANEW,
    ),
    Row(
        "kernel-log",
        "fabric-fatal",
        GPU,
        fault("kernel-log", "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 03 LTSSM Fault Up"),
        BOUND_ANEW,
        of_all=True,
    ),
    Row("kernel-log", "nvlink-fatal", GPU, a_link_of_it_fails, BOUND_ANEW),
    Row("devlink", "firmware", RDMA, **of_fault("firmware")),
    Row(
        "devlink",
        "firmware",
        RDMA,
        **of_fault("firmware", "fw without-recovery"),
        value="error, with no way to recover",
    ),
    Row("kernel-log", "gpu-lost", GPU, **of_fault("gpu-lost")),
    Row("kernel-log", "off-bus", GPU, **of_fault("no-resume", "suspended")),
    Row(
        "kernel-log",
        "gpu-reset",
        AMD,
        fault("kernel-log", "amdgpu {address}: amdgpu: GPU reset end with ret = -110"),
        fault("kernel-log", "amdgpu {address}: amdgpu: GPU reset(2) succeeded!"),
    ),
    Row("kernel-log", "gpu-reset", AMD, **of_fault("reset-hangs"), value="amdgpu-reset-begun"),
    Row(
        "kernel-log",
        "ecc",
        AMD,
        fault("kernel-log", "amdgpu {address}: amdgpu: RAS records:130 exceed threshold:100"),
        command("clear", AMD, "{id}", "ecc"),
        value="amdgpu-bad-pages-beyond-threshold",
    ),
    Row(
        "kernel-log",
        "recovery-action",
        GPU,
        **of_fault("xid", "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
    ),
    Row(
        "kernel-log",
        "recovery-action",
        GPU,
        **of_fault("xid", "154, GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)"),
        value="3",
    ),
    Row("kernel-log", "xid", GPU, fault("xid", "999, of tomorrow")),
    Row("kernel-log", "xid", GPU, fault("xid", "94, contained"), value="94"),
    Row("kernel-log", "xid", GPU, fault("xid", "31, an application's own"), value="31"),
    Row("kernel-log", "xid", GPU, **of_fault("xid", "48, DBE"), value="48"),
    Row("kernel-log", "xid", GPU, **of_fault("xid"), value="79"),
    Row("kernel-log", "xid", GPU, fault("xid", "54, power"), BOUND_ANEW, value="54"),
    Row("nvml", "ecc-storm", GPU, fault("nvml", "event kind=512")),
    Row("nvml", "memory-poison", GPU, fault("nvml", "event kind=4096")),
    Row("nvml", "xid", GPU, fault("nvml", "event kind=8 data=999")),
    Row("nvml", "xid", GPU, fault("nvml", "event kind=8 data=94"), value="94"),
    Row("nvml", "xid", GPU, fault("nvml", "event kind=8 data=31"), value="31"),
    Row("nvml", "xid", GPU, fault("nvml", "event kind=8 data=48"), NEEDS_NOTHING, value="48"),
    Row("nvml", "xid", GPU, fault("nvml", "event kind=8 data=54"), command("clear", GPU, "{id}", "xid"), value="54"),
    # after all others of NVML: the GPU is closed for it, and NVML tells nothing until the rest is open again
    Row("nvml", "xid", GPU, fault("nvml", "event kind=8 data=79"), NEEDS_NOTHING, value="79"),
    # what other programs say
    Row(
        "cordon",
        "cordoned",
        RDMA,
        command("cordon", RDMA, "{id}", "--reason", "it smells"),
        command("uncordon", RDMA, "{id}"),
    ),
    Row(
        "external",
        "external",
        RDMA,
        report('{{"device": {{"device": "{id}"}}, "reason": "burnt"}}\n'),
        report('{{"alive": true}}\n'),
    ),
    Row("amd-kfd", "gpu-reset", AMD, **of_fault("gpu-reset")),
    Row("xpumd", "external", XE, **of_fault("xpumd")),
    Row("xpumd", "external", XE, **of_fault("xpumd", "warning"), value="warning"),
    Row("mps", "mps-daemon", SHARED, lambda bed, _: bed.daemon.kill(), lambda bed, _: bed.daemon.start()),
    # second stage
    Row("amd-exporter", "external", AMD, **of_fault("amd-exporter"), stage=2),
    Row("nvml", "recovery-action", GPU, **of_nvml("field id=230 value=1")),
    Row("nvml", "recovery-action", GPU, **of_nvml("field id=230 value=3"), value="3"),
    Row("nvml", "gpu-lost", GPU, **of_nvml("fail nvmlDeviceGetFieldValues 15")),
    Row("nvml", "not-examined", GPU, **of_nvml("fail nvmlDeviceGetHandleByPciBusId_v2 4")),
    Row("nvml", "needs-reset", GPU, **of_nvml("fail nvmlDeviceGetFieldValues 16")),
    Row("nvml", "insufficient-power", GPU, **of_nvml("fail nvmlDeviceGetFieldValues 8")),
    Row("nvml", "interrupts", GPU, **of_nvml("fail nvmlDeviceGetFieldValues 11")),
    Row("nvml", "firmware", GPU, **of_nvml("fail nvmlDeviceGetFieldValues 14")),
    Row(
        "nvml",
        "row-remap-failed",
        GPU,
        fault("nvml", "field id=145 value=1"),
        both(fault("nvml", "field id=145 value=0"), command("clear", GPU, "{id}", "row-remap-failed")),
        stage=2,
    ),
    Row("nvml", "row-remap-pending", GPU, **of_nvml("field id=144 value=1")),
    Row("nvml", "retired-pages", GPU, **of_nvml("field id=30 value=63")),
    Row("nvml", "retirement-pending", GPU, **of_nvml("field id=31 value=1")),
    Row("nvml", "ecc", GPU, **of_nvml("field id=4 value=2")),
    Row(
        "nvml",
        "ecc-contained",
        GPU,
        both(fault("nvml", "field id=230 value=0"), fault("nvml", "field id=4 value=2")),
        cleared("nvml"),
        stage=2,
    ),
    Row("nvml", "sram-threshold", GPU, **of_nvml("sram exceeded=1")),
    Row("nvml", "repair-pending", GPU, **of_nvml("repair channel=1")),
    Row("nvml", "unrepairable-memory", GPU, **of_nvml("unrepairable flag=1")),
    Row("nvml", "fabric", GPU, **of_nvml("fabric state=1 status=0 summary=0")),
    Row("nvml", "fabric", GPU, **of_nvml("fabric state=3 status=1 summary=0"), value="failed"),
    Row("nvml", "fabric", GPU, **of_nvml("fabric state=3 status=0 summary=2"), value="unhealthy"),
    Row("nvml", "fabric", GPU, **of_nvml("fabric state=3 status=0 summary=3"), value="limited capacity"),
    Row(
        "nvml",
        "fabric",
        GPU,
        both(fault("nvml", "mode mig=1"), fault("nvml", "fabric state=1 status=0 summary=0")),
        cleared("nvml"),
        value=IN_MIG_MODE,
        stage=2,
    ),
    Row("nvml", "temperature", GPU, **of_nvml("clocks reasons=64")),
    Row("nvml", "power-brake", GPU, **of_nvml("clocks reasons=128")),
]


def _kind(meaning: Meaning) -> tuple[object, ...]:
    return meaning.action, meaning.clears, meaning.quiet_seconds, meaning.evidence, meaning.after


def missing() -> list[str]:
    """Meanings that no row plays: of values that mean the same, one is enough."""
    played = {(row.source, row.reason, _kind(row.meaning)) for row in ROWS}
    return [
        f"{source}: {reason} {value}".strip()
        for (source, reason), of_all in MEANINGS.items()
        for value, meaning in ({"": of_all} | dict(of_all.by_value)).items()
        if (source, reason, _kind(meaning)) not in played
        and PLAYED_ELSEWHERE.keys().isdisjoint({(source, reason), (source, reason, value)})
    ]
