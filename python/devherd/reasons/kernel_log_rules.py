"""Rules that find records about devices in the kernel log: the shipped ones and the user's own."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. Without reason, evidence, takes_back, looks and quoted it only counts Xids, or reveals a GPU's UUID."""

    name: str
    contains: str
    """What the text must contain before the pattern is tried, as the kernel writes it (a line feed is `\\x0a`)."""
    pattern: str
    """A regular expression of bytes with named groups: bdf, uuid, gi, ci (whom it is about), xid, value, link.

    `xid` and `value` are what happened, `link` is a link of the switch at `bdf`. Without `bdf` the device is the one
    that the record's driver named (DEVICE=+pci:…).
    """
    vendor: str = ""
    """If set, it is about every device of this vendor."""
    reason: str = ""
    """It raises this reason. Its value: the group `value`, else the group `xid`, else the rule's name."""
    reason_at_link: str = ""
    """In addition, it raises this reason for the device that the link leads to."""
    evidence: str = ""
    """Evidence that ends earlier findings."""
    takes_back: tuple[str, ...] = ()
    """It clears findings with these reasons."""
    optional: bool = False
    """It is in force only if the configuration names it (health.kernel_log.optional)."""
    looks: bool = False
    """If true, devherd immediately looks at the PCI function that it names, or at what is below it."""
    quoted: Literal["", "always", "bound", "unbound"] = ""
    """If set, its last record is kept, device or not, and quoted where the function is no device: always, or if its
    driver is bound or not bound to it. A record without `bdf` is quoted for each such function of `vendor`.
    """
    is_kept: bool = True
    """Whether its records about a device that no scan has found are kept until one finds it."""

    @property
    def takes_nothing_away(self) -> bool:
        """Whether it only looks or is only quoted: a rule of the user's own for the same record comes first."""
        return bool(self.looks or self.quoted) and not (self.reason or self.evidence or self.takes_back)


SHIPPED = (
    # A text is named with the file that prints it, and the version of which that was read.
    # --- NVIDIA: https://docs.nvidia.com/deploy/xid-errors/, printed by nvidia.ko; old drivers print no `PCI:`
    # the driver's own word that the GPU needs nothing any more: the last number decides, the texts differ by driver
    Rule(
        name="nvidia-recovery-none",
        contains="NVRM: Xid",
        pattern=r"^NVRM: Xid \((?:PCI:)?(?P<bdf>[\da-fA-F:]+)[^)]*\): (?P<xid>154),.* to 0x(?P<value>0)\b",
        evidence="recovery-none",
    ),
    Rule(
        name="nvidia-recovery-action",
        contains="NVRM: Xid",
        pattern=r"^NVRM: Xid \((?:PCI:)?(?P<bdf>[\da-fA-F:]+)[^)]*\): (?P<xid>154),.* to 0x(?P<value>[\da-f]+)\b",
        reason="recovery-action",
    ),
    # a channel that went down with another: the other Xid says why
    Rule(
        name="nvidia-xid-sympathetic",
        contains="caused by previous Xid",
        pattern=r"^NVRM: Xid \((?:PCI:)?(?P<bdf>[\da-fA-F:]+)(?: GPU-I:(?P<gi>\d+)(?: GPU-CI:(?P<ci>\d+))?)?\): "
        r"(?P<xid>45),.*caused by previous Xid",
    ),
    # NVLink 5: unit, severity, containment, injected (i1 to i9), link; the driver pads unit and severity with spaces
    Rule(
        name="nvidia-nvlink-not-fatal",
        contains="NVRM: Xid",
        pattern=r"^NVRM: Xid \((?:PCI:)?(?P<bdf>[\da-fA-F:]+)"
        r"[^)]*\): (?P<xid>14[4-9]|150),.*(?:\bNonfatal\b|\bFatal\s+XC\d+\s+i[1-9]\b)",
    ),
    Rule(
        name="nvidia-xid",
        contains="NVRM: Xid",
        pattern=r"^NVRM: Xid \((?:PCI:)?(?P<bdf>[\da-fA-F:]+)"
        r"(?:\.\d)?(?: GPU-I:(?P<gi>\d+)(?: GPU-CI:(?P<ci>\d+))?)?\): (?P<xid>\d+)\b",
        reason="xid",
    ),
    # while it runs (osinit.c), and when the driver is loaded (osapi.c, one record of several lines), of driver
    # 595.45.04; drivers before 396 print `GPU at 0000:01:00.0 has fallen off the bus.`
    Rule(
        name="nvidia-fallen-off-the-bus",
        contains="fallen off the bus",
        pattern=r"(?s)^NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?(?P<bdf>[\da-fA-F:]+(?:\.\d)?)"
        r"\b.*\bfallen off the bus",
        reason="gpu-lost",
    ),
    # why the driver takes or starts no GPU: rm_is_supported_device and rm_is_supported_pci_device in osapi.c of driver
    # 595.45.04 (`requires use of the NVIDIA open kernel modules`, `is not supported by …`), one record of several lines
    Rule(
        name="nvidia-refuses-gpu",
        contains="installed in this system",
        pattern=r"(?s)^NVRM: The NVIDIA GPU (?P<bdf>[\da-fA-F:]+\.\d)\b.*\binstalled in this system",
        quoted="always",
    ),
    # it names the model and no address; `ignoring the legacy GPU`, with the address, follows
    Rule(
        name="nvidia-legacy-gpu",
        contains="Legacy drivers",
        pattern=r"(?s)^NVRM: The NVIDIA .*\binstalled in this system\b.*\bLegacy drivers",
        vendor="nvidia",
        quoted="unbound",
    ),
    # kernel_gsp.c: what an earlier start has left
    Rule(
        name="nvidia-firmware-memory-in-use",
        contains="unexpected WPR2 already up",
        pattern=r"^NVRM: .*\bunexpected WPR2 already up",
        vendor="nvidia",
        quoted="bound",
    ),
    # a program has opened the GPU, and the driver could not start it: osinit.c of driver 595.45.04. It tries again when
    # a program opens it the next time (nv_start_device in nv.c)
    Rule(
        name="nvidia-not-initialised",
        contains="RmInitAdapter failed!",
        pattern=r"^NVRM: GPU (?P<bdf>[\da-fA-F:]+\.\d): RmInitAdapter failed!",
        reason="not-started",
        quoted="always",
    ),
    # whatever else it says of a GPU (NV_DEV_PRINTF in nv.h; nv-pci.c), but that it could not start it: the record
    # before says why
    Rule(
        name="nvidia-said",
        contains="NVRM: ",
        pattern=r"^NVRM: (?:ignoring the legacy )?GPU (?P<bdf>[\da-fA-F]+:[\da-fA-F]+:[\da-fA-F]+\.\d)"
        r"(?:$|: (?:[^r]|r[^m]|rm[^_]))",
        quoted="always",
    ),
    # once for each GPU, before its first Xid
    Rule(
        name="nvidia-uuid",
        contains="NVRM: GPU at ",
        pattern=r"^NVRM: GPU at (?:PCI:)?(?P<bdf>[\da-fA-F:]+): (?P<uuid>GPU-[\da-f-]+)",
    ),
    # what is fatal to the fabric: NVSWITCH_REPORT_FATAL in intr_nvswitch.h of driver 595.45.04. The fabric is every
    # GPU's; the link is that of the switch, and of one GPU or of none: it may lead to another switch
    Rule(
        name="nvidia-sxid-fatal",
        contains=": SXid (",
        pattern=r"^nvidia-nvswitch\d+: "
        r"SXid \((?:PCI:)?(?P<bdf>[\da-fA-F:]+\.\d)?[^)]*\): (?P<value>\d+), Fatal,(?: Link (?P<link>\d+)\b)?",
        vendor="nvidia",
        reason="fabric-fatal",
        reason_at_link="nvlink-fatal",
    ),
    # what is not: `Non-fatal`, `Correctable`, and records with the data of either
    Rule(
        name="nvidia-sxid",
        contains=": SXid (",
        pattern=r"^nvidia-nvswitch\d+: SXid \((?:PCI:)?(?P<bdf>[\da-fA-F:]+\.\d)?[^)]*\): (?P<value>\d+),(?: "
        r"[A-Z][a-z-]+, Link (?P<link>\d+)\b)?",
        vendor="nvidia",
        reason="fabric",
    ),
    # the driver is loaded anew, and with it every GPU starts anew: nvlink_linux.c of driver 595.45.04. Printed before
    # the driver looks at a GPU (nv.c); `loading NVIDIA UNIX` comes after that, when a GPU may have been found dead
    Rule(
        name="nvidia-driver-loaded",
        contains="Nvlink Core is being initialized",
        pattern=r"^nvidia-nvlink: Nvlink Core is being initialized",
        vendor="nvidia",
        evidence="rebound",
    ),
    # --- AMD (drivers/gpu/drm/amd/amdgpu/): not every kernel sends the wedged event
    # amdgpu_device.c: each GPU of a hive says for itself how its reset went, the one that wanted it how all ended
    Rule(
        name="amdgpu-reset-failed",
        contains="GPU reset",
        pattern=r"^amdgpu (?P<bdf>[\da-f]+:[\da-f]+:[\da-f]+\.\d): "
        r".*\bGPU reset(?:\(\d+\) failed| end with ret = -\d+)",
        reason="gpu-reset",
    ),
    # amdgpu_job_timedout in amdgpu_job.c; older kernels (DRM_ERROR) name no device, and have said the above before
    Rule(
        name="amdgpu-recovery-failed",
        contains="GPU Recovery Failed",
        pattern=r"^amdgpu (?P<bdf>[\da-f]+:[\da-f]+:[\da-f]+\.\d): .*\bGPU Recovery Failed: -\d+",
        reason="gpu-reset",
    ),
    # amdgpu_device_gpu_recover in amdgpu_device.c. Its end is told for each GPU of the hive, by one of the texts above
    # and below; a reset that is told of neither hangs, as AMD's list of known issues has it of MI300X:
    # https://rocm.docs.amd.com/en/docs-6.2.1/about/release-notes.html
    Rule(
        name="amdgpu-reset-begun",
        contains="GPU reset begin!",
        pattern=r"^amdgpu (?P<bdf>[\da-f]+:[\da-f]+:[\da-f]+\.\d): .*\bGPU reset begin!",
        reason="gpu-reset",
    ),
    # amdgpu_device.c
    Rule(
        name="amdgpu-reset-succeeded",
        contains="GPU reset",
        pattern=r"^amdgpu (?P<bdf>[\da-f]+:[\da-f]+:[\da-f]+\.\d): .*\bGPU reset\(\d+\) succeeded!",
        takes_back=("gpu-reset", "gpu-lost"),
    ),
    # amdgpu_device_health_check in amdgpu_device.c, later amdgpu_device_bus_status_check in amdgpu.h: the
    # configuration space does not answer
    Rule(
        name="amdgpu-lost-from-bus",
        contains="device lost from bus",
        pattern=r"^amdgpu (?P<bdf>[\da-f]+:[\da-f]+:[\da-f]+\.\d): .*\bdevice lost from bus",
        reason="gpu-lost",
    ),
    # amdgpu_ras_eeprom_init in amdgpu_ras_eeprom.c, later amdgpu_ras_eeprom_check: printed at each start of the
    # driver. More pages are bad than AMD allows: replace the board. The second text is of the moment when that many
    # are bad (amdgpu_ras_eeprom_update_header, at the same number; older kernels put the numbers in brackets)
    Rule(
        name="amdgpu-bad-pages-beyond-threshold",
        contains="threshold",
        pattern=r"^amdgpu (?P<bdf>[\da-f]+:[\da-f]+:[\da-f]+\.\d): .*\b(?:RAS records:\d+ exceed (?:error )?threshold"
        r"|Saved bad pages ?\(?\d+\)? reaches threshold value)",
        reason="ecc",
        quoted="always",
    ),
    # amdgpu_ras.c: a reset follows
    Rule(
        name="amdgpu-uncorrectable-error",
        contains="ERREVENT_ATHUB_INTERRUPT",
        pattern=r"^amdgpu (?P<bdf>[\da-f]+:[\da-f]+:[\da-f]+\.\d): "
        r".*\b[Uu]ncorrectable hardware error ?\(ERREVENT_ATHUB_INTERRUPT\) detected",
        reason="ecc",
    ),
    # --- Intel's xe (drivers/gpu/drm/xe/): not every kernel's sends the wedged event
    # xe_device_declare_wedged in xe_device.c: one record of several lines
    Rule(
        name="xe-wedged",
        contains="Xe has declared device",
        pattern=r"^xe (?P<bdf>[\da-f]+:[\da-f]+:[\da-f]+\.\d): .*\bXe has declared device \S+ as wedged",
        reason="wedged",
    ),
    # guc_wait_ucode in xe_guc.c; later kernels name the part of the GPU in place of `GuC` (`GT0: load failed: status:
    # …`)
    Rule(
        name="xe-firmware-not-loaded",
        contains="load failed: status",
        pattern=r"^xe (?P<bdf>[\da-f]+:[\da-f]+:[\da-f]+\.\d): .*\b(?:GuC|GT\d+:) load failed: status",
        reason="firmware",
        quoted="always",
    ),
    # --- Intel's i915 (drivers/gpu/drm/i915/): it sends no event of a GPU that it declares wedged while it starts it
    # i915_gem_init in i915_gem.c, of one GT in gt/intel_gt.c; after a suspend i915_gem_resume in gem/i915_gem_pm.c.
    # Older kernels name no GT. A firmware file that cannot be fetched is told before (`fetch failed`): old GPUs do
    # without it
    Rule(
        name="i915-wedged",
        contains="declaring it wedged",
        pattern=r"^i915 (?P<bdf>[\da-f]+:[\da-f]+:[\da-f]+\.\d): .*\bdeclaring it wedged",
        reason="wedged",
    ),
    # the ends of intel_gt_reset and intel_gt_reset_global in gt/intel_reset.c at which it wedges the GPU: the reset did
    # not help, the GPU cannot be started after it, it takes more than a minute
    Rule(
        name="i915-reset-failed",
        contains="reset",
        pattern=r"^i915 (?P<bdf>[\da-f]+:[\da-f]+:[\da-f]+\.\d): .*(?:\bFailed to reset chip\b"
        r"|\bFailed to initialise HW following reset\b|\btimed out, cancelling all in-flight rendering)",
        reason="wedged",
    ),
    # __uc_init_hw in gt/uc/intel_uc.c, the driver's last word on a firmware that it needs: `load failed: status` comes
    # before, and the driver tries again on some GPUs
    Rule(
        name="i915-firmware-not-loaded",
        contains="GuC initialization failed",
        pattern=r"^i915 (?P<bdf>[\da-f]+:[\da-f]+:[\da-f]+\.\d): .*\bGuC initialization failed\b",
        reason="firmware",
    ),
    # --- Both: i915_pci_probe in i915_pci.c, xe_pci_probe in xe_pci.c, one record of several lines, of a GPU that is
    # newer than the driver
    Rule(
        name="intel-gpu-not-supported",
        contains="Your graphics device",
        pattern=r"^(?:i915|xe) (?P<bdf>[\da-f]+:[\da-f]+:[\da-f]+\.\d): "
        r".*\bYour graphics device [\da-fA-F]{4} is not ",
        quoted="always",
    ),
    # --- Any GPU: drm_dev_wedged_event of the kernel (drivers/gpu/drm/drm_drv.c)
    Rule(
        name="drm-wedged",
        contains="device wedged, needs recovery",
        pattern=r"^(?:\S+ (?P<bdf>[\da-f]+:[\da-f]+:[\da-f]+\.\d): )?.*\bdevice wedged, needs recovery",
        reason="wedged",
    ),
    # the driver has reset the device by itself; the second text is of later kernels
    Rule(
        name="drm-recovered",
        contains="device wedged, but ",
        pattern=r"^(?:\S+ (?P<bdf>[\da-f]+:[\da-f]+:[\da-f]+\.\d): )?.*\bdevice wedged,"
        r" but (?:recovered through reset|no recovery needed)",
        takes_back=("wedged",),
    ),
    # --- Any PCI function: pci_setup_device of the kernel (drivers/pci/probe.c)
    Rule(
        name="pci-added",
        contains="] type ",
        pattern=r"^pci (?P<bdf>[\da-f]+:[\da-f]+:[\da-f]+\.\d): \[[\da-f]{4}:[\da-f]{4}\] type ",
        evidence="readded",
    ),
    # really_probe in drivers/base/dd.c of the kernel: the driver matches the function and has not taken it. The second
    # text is of kernels before 6.10. A driver that returns ENODEV or ENXIO is silent.
    Rule(
        name="driver-probe-failed",
        contains=" failed with error ",
        pattern=r"^(?:\S+: probe of )?(?:\S+ )?(?P<bdf>[\da-f]+:[\da-f]+:[\da-f]+\.\d):? (?:probe with driver \S+ )?"
        r"failed with error -?\d+",
        quoted="always",
    ),
    # pci_power_up and pci_set_low_power_state in drivers/pci/pci.c of the kernel; older ones print the second text.
    # Most records are about hardware that is no device here, such as ports and USB controllers
    Rule(
        name="pci-inaccessible",
        contains="change power state from",
        pattern=r"^\S+ (?P<bdf>[\da-f]{4,}:[\da-f]{2}:[\da-f]{2}\.\d): (?:Unable to|can't) change power state from \S+ "
        r"to \S+ ?(?:device inaccessible|\(config space inaccessible\))",
        reason="off-bus",
        looks=True,
        is_kept=False,
    ),
    # --- Mellanox NICs: drivers/net/ethernet/mellanox/mlx5/core of the kernel. Few of them say that the card is
    # useless.
    # mlx5_health_try_recover in health.c: what the next rules raise is over
    Rule(
        name="mlx5-health-recovered",
        contains="health recovery succeeded",
        pattern=r"^mlx5_core (?P<bdf>[\da-f:]+\.\d): .*\bhealth recovery succeeded",
        takes_back=("firmware",),
    ),
    Rule(
        name="mlx5-health-compromised",
        contains="device's health compromised",
        pattern=r"^mlx5_core (?P<bdf>[\da-f:]+\.\d): .*device.s health compromised",
        reason="firmware",
        optional=True,
    ),
    Rule(
        name="mlx5-unrecoverable",
        contains="unrecoverable hardware error",
        pattern=r"^mlx5_core (?P<bdf>[\da-f:]+\.\d): .*unrecoverable hardware error",
        reason="firmware",
        optional=True,
    ),
    Rule(
        name="mlx5-command-timeout",
        contains="Will cause a leak of a command resource",
        pattern=r"^mlx5_core (?P<bdf>[\da-f:]+\.\d): .*timeout\. Will cause a leak of a command resource",
        reason="firmware",
        optional=True,
    ),
    Rule(
        name="mlx5-transmit-timeout",
        contains="NETDEV WATCHDOG",
        pattern=r"^mlx5_core (?P<bdf>[\da-f:]+\.\d) .*NETDEV WATCHDOG.*transmit queue \d+ timed out",
        reason="kernel-log",
        optional=True,
    ),
    Rule(
        name="mlx5-insufficient-power",
        contains="Detected insufficient power on the PCIe slot",
        pattern=r"^mlx5_core (?P<bdf>[\da-f:]+\.\d): .*Detected insufficient power on the PCIe slot",
        reason="kernel-log",
        optional=True,
    ),
    Rule(
        name="mlx5-high-temperature",
        contains="High Temperature",
        pattern=r"^mlx5_core (?P<bdf>[\da-f:]+\.\d): .*Port module event.*High Temperature",
        reason="kernel-log",
        optional=True,
    ),
    Rule(
        name="mlx5-cable-unplugged",
        contains="Cable unplugged",
        pattern=r"^mlx5_core (?P<bdf>[\da-f:]+\.\d): .*Port module event.*Cable unplugged",
        reason="kernel-log",
        optional=True,
    ),
    Rule(
        name="mlx5-register-access",
        contains="ACCESS_REG",
        pattern=r"^mlx5_core (?P<bdf>[\da-f:]+\.\d): .*mlx5_cmd_out_err.*ACCESS_REG.* failed",
        reason="kernel-log",
        optional=True,
    ),
    # --- Errors of PCI Express: drivers/pci/pcie/aer.c of the kernel; the second is of those that the firmware hears
    # of first. How severe they are the counters of the function and of the port above it say (sources pci-aer-*).
    Rule(
        name="pci-uncorrectable-error",
        contains="PCIe Bus Error: severity=Uncorrect",
        pattern=r"^\S+ (?P<bdf>[\da-f]{4}:[\da-f]{2}:[\da-f]{2}\.\d): (?:AER: )?PCIe Bus Error: severity=Uncorrect",
        looks=True,
    ),
    Rule(
        name="pci-uncorrectable-error-of-firmware",
        contains="aer_uncor_severity: ",
        pattern=r"^\S+ (?P<bdf>[\da-f]{4}:[\da-f]{2}:[\da-f]{2}\.\d): (?:AER: )?aer_uncor_severity: ",
        looks=True,
    ),
    # --- Errors that the firmware hears of first, and tells in a record: drivers/firmware/efi/cper.c of the kernel.
    # How severe they are the counters of the PCI function say (sources pci-aer-*), which count them, too.
    Rule(
        name="pci-hardware-error",
        contains="[Hardware Error]:",
        pattern=r"^(?:\{\d+\})?\[Hardware Error\]:\s+device_id: (?P<bdf>[\da-f]{4}:[\da-f]{2}:[\da-f]{2}\.\d)",
        reason="kernel-log",
        optional=True,
    ),
)
"""The rules that come with devherd, in their order: the first that matches a record decides."""

QUOTED = MappingProxyType({rule.name: rule for rule in SHIPPED if rule.quoted})
"""The rules whose last records are quoted, by name: what says why comes before what says that."""


def in_force(optional: Collection[str], own: Iterable[tuple[str, str, str]]) -> dict[str, Rule]:
    """Rules by name, in the order in which they are tried: shipped ones, the user's own, those that only look or quote.

    `optional` has the names of shipped rules that are off by default; each of `own` is name, contains, pattern.
    """
    ours = [rule for rule in SHIPPED if not rule.optional or rule.name in optional]
    theirs = [
        Rule(name=name, contains=contains, pattern=pattern, reason="kernel-log") for name, contains, pattern in own
    ]
    return {rule.name: rule for rule in sorted([*ours, *theirs], key=lambda rule: rule.takes_nothing_away)}


def compiled_from(rules: Iterable[Rule]) -> list[tuple[str, str, str]]:
    """Name, `contains` and pattern of each rule, for the scan core."""
    return [(rule.name, rule.contains, rule.pattern) for rule in rules]
