//! The descriptions of the sources in Python: processes that can hang or need a library, and modules that the scanner
//! calls. The sources of this crate are in `sources/`.
//!
//! The meaning of each Xid code: `python/devherd/reasons/xids.py`.

mod nvml_reasons;

use super::source::{About, Action, Class, Evidence, Meaning, Pace};
use super::sources::{CHECK_CARD, OFF_BUS};

const EVENTS: Class = Class::Elsewhere("events");
const SERVICE: Class = Class::Elsewhere("a service, in a process of its own");

const XID: &str = "xid";
const RECOVERY_ACTION: &str = "recovery-action";
const GPU_LOST: &str = "gpu-lost";
const NOT_STARTED: &str = "not-started";
const FIRMWARE: &str = "firmware";
const FABRIC: &str = "fabric";
const EXTERNAL: &str = "external";
const PCI_RECOVERY: &str = "pci-recovery";
const WEDGED: &str = "wedged";
const GPU_RESET: &str = "gpu-reset";
const ECC: &str = "ecc";

/// Seconds for which an event is held if nothing else ends it.
const EVENT_SECONDS: u32 = 600;
/// Seconds for which an Xid is held if nothing else ends it.
const XID_SECONDS: u32 = 3600;

const STARTED_ANEW: &[Evidence] = &[Evidence::Rebound, Evidence::Readded, Evidence::Rebooted];
const STARTED_OR_CLEARED: &[Evidence] = &[Evidence::Rebound, Evidence::Readded, Evidence::Rebooted, Evidence::Operator];
const RESET_OR_CLEARED: &[Evidence] =
    &[Evidence::Rebound, Evidence::Readded, Evidence::Rebooted, Evidence::Operator, Evidence::Restarted];
const EXCHANGED_OR_CLEARED: &[Evidence] = &[Evidence::Readded, Evidence::Rebooted, Evidence::Operator];
const UNTIL_TAKEN_BACK: &[Evidence] =
    &[Evidence::Rebound, Evidence::Readded, Evidence::Rebooted, Evidence::Operator, Evidence::SourceCleared];
const UNTIL_RECOVERED: &[Evidence] = &[
    Evidence::Rebound,
    Evidence::Readded,
    Evidence::Rebooted,
    Evidence::Operator,
    Evidence::RecoveryNone,
    Evidence::Restarted,
];
/// What ends the record of a failed act: the same act has succeeded since, or the device has started anew.
const UNTIL_STARTED: &[Evidence] = &[
    Evidence::Rebound,
    Evidence::Readded,
    Evidence::Rebooted,
    Evidence::Operator,
    Evidence::Restarted,
    Evidence::Started,
];
const UNTIL_IT_ANSWERS: &[Evidence] =
    &[Evidence::Rebound, Evidence::Readded, Evidence::Rebooted, Evidence::Operator, Evidence::Answered];
const UNTIL_WELL: &[Evidence] = &[
    Evidence::Rebound,
    Evidence::Readded,
    Evidence::Rebooted,
    Evidence::Operator,
    Evidence::RecoveryNone,
    Evidence::RecoveryUnasked,
    Evidence::Restarted,
];

const LOOK_UP: &str = "look the Xid up in NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors) and do what \
                       it says";
const RESET: &str = "end its pods and reset the GPU[ (nvidia-smi --gpu-reset -i {pci_address})], or reboot";
const WAIT_FOR_RESET: &str = "wait for the reset to end; if it does not within minutes, reboot the node";

/// The driver's recovery action, by number, in Xid 154 and in NVML: `nvmlDeviceGpuRecoveryAction_t` in
/// <https://docs.nvidia.com/deploy/nvml-api/>. What a later driver adds is described by the driver itself.
const DRAIN: &str = "3";
const TO_DRAIN: &str = "end the pods that use the GPU together with others over NVLink or PCIe, as the driver \
                        asks";
const TO_RECOVER: &[(&str, &str)] = &[
    ("1", RESET),
    ("2", "drain and reboot the node, as the driver asks"),
    (DRAIN, TO_DRAIN),
    ("4", RESET),
    ("5", "recover its IMEX domain, as the driver asks (NVIDIA's IMEX guide)"),
    ("6", "end its pods and reset the GPU's bus, as the driver asks, or reboot"),
    ("7", "drain and reboot the node, as the driver asks"),
];
const ASK_DRIVER: &str = "do what the driver asks for: GPU Recovery Action of nvidia-smi -q[ -i {pci_address}]";

const PRINTED_RECOVERY: Meaning =
    Meaning::unhealthy(RECOVERY_ACTION, "the NVIDIA driver prints that the GPU needs recovery (Xid 154)", ASK_DRIVER)
        .until(UNTIL_WELL)
        .to_do_by_value(TO_RECOVER);

/// Sources that Python looks at.
pub static ELSEWHERE: &[About] = &[
    About {
        name: "kernel-log",
        reads: EVENTS,
        pace: Pace::Elsewhere,
        document: "https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg",
        meanings: &[
            Meaning::warning(XID, "the NVIDIA driver prints an Xid", LOOK_UP).until_quiet_for(XID_SECONDS),
            PRINTED_RECOVERY.by_value(&[(DRAIN, Meaning { action: Action::Warn, ..PRINTED_RECOVERY })]),
            Meaning::unhealthy(GPU_LOST, "the driver prints that the GPU has fallen off the bus", CHECK_CARD)
                .until(UNTIL_RECOVERED),
            Meaning::unhealthy(
                NOT_STARTED,
                "NVIDIA's driver prints that it cannot start the GPU (RmInitAdapter), and has not \
                 started it since",
                "read the driver's lines before it (dmesg), which say why; drain the node, then load the \
                 driver again or reboot",
            )
            .until(UNTIL_STARTED),
            Meaning::unhealthy(
                OFF_BUS,
                "the kernel prints that it cannot change the function's power state, because the \
                 function does not answer",
                CHECK_CARD,
            )
            .until(UNTIL_IT_ANSWERS),
            Meaning::unhealthy(
                WEDGED,
                "the kernel prints that the GPU is wedged",
                "end its pods and bind its driver[ ({driver})] again, or reboot; if it comes again, ask \
                 the card's vendor",
            )
            .until(UNTIL_TAKEN_BACK),
            Meaning::unhealthy(
                GPU_RESET,
                "AMD's driver prints that it could not reset the GPU",
                "drain and reboot the node; if it comes again, ask AMD",
            )
            .until(UNTIL_TAKEN_BACK)
            .by_value(&[(
                "amdgpu-reset-begun",
                // A reset that helps takes seconds, of a hive tens of them.
                Meaning::unhealthy(
                    GPU_RESET,
                    "AMD's driver prints that it resets the GPU, and not how that ended",
                    WAIT_FOR_RESET,
                )
                .until(UNTIL_TAKEN_BACK)
                .undamped()
                .after(60),
            )]),
            Meaning::warning(
                ECC,
                "AMD's driver prints an uncorrectable error, which it resets the GPU for",
                "restart the pods that failed on it; if it comes again, see amd-smi bad-pages[ -g \
                 {pci_address}] and ask AMD",
            )
            .until_quiet_for(EVENT_SECONDS)
            .by_value(&[(
                "amdgpu-bad-pages-beyond-threshold",
                // The driver prints this while it starts, so a rebind does not end it.
                Meaning::unhealthy(
                    ECC,
                    "AMD's driver prints that as much of the GPU's memory is bad as it allows, or more",
                    "have the card[ {place}] replaced: AMD's driver counts as many \
                     bad pages as it allows",
                )
                .until(EXCHANGED_OR_CLEARED),
            )]),
            Meaning::warning(
                FABRIC,
                "an NVSwitch prints an SXid that is not fatal",
                "do nothing for a single one; if it comes again, ask NVIDIA with the SXid's number[ \
                 {value}]",
            )
            .until_quiet_for(EVENT_SECONDS),
            Meaning::warning(
                "fabric-fatal",
                "an NVSwitch prints an SXid that is fatal to the NVLink fabric",
                "drain and reboot the node; if it comes again, ask NVIDIA with the SXid's number[ \
                 {value}]",
            )
            .until(STARTED_OR_CLEARED),
            Meaning::unhealthy(
                "nvlink-fatal",
                "a fatal SXid is about a link that leads to this GPU, as NVML reports",
                "drain and reboot the node; if it comes again, ask NVIDIA with the SXid's number[ \
                 {value}]",
            )
            .until(RESET_OR_CLEARED),
            Meaning::unhealthy(
                FIRMWARE,
                "the driver prints that the NIC's firmware does not answer, or that it cannot load the \
                 GPU's (Intel xe, i915)",
                "end its pods and bind its driver[ ({driver})] again, or reboot; if it comes again, ask \
                 the card's vendor about its firmware",
            )
            .until(STARTED_OR_CLEARED),
            Meaning::warning(
                "kernel-log",
                "a rule of the user's own matches",
                "read the record in the kernel log (dmesg) and do what your rule is for",
            )
            .until_quiet_for(EVENT_SECONDS),
        ],
    },
    About {
        name: "inventory",
        reads: Class::Elsewhere("none"),
        pace: Pace::Elsewhere,
        document: "README.md",
        meanings: &[
            Meaning::unhealthy(
                "gone",
                "scans no longer find the device",
                "[rescan the bus (echo 1 > /sys/bus/pci/rescan); else drain, power off and check \
                 {pci_address}|see why it is not there][ in slot {slot}]; for good: devherd forget {device}",
            )
            .undamped(),
            Meaning::unhealthy(
                "renamed",
                "scans find the device under another name, at its place or by its UUID",
                "delete the pod that holds it, if one does; new pods get it[ as {value}]",
            )
            .undamped(),
        ],
    },
    About {
        name: "cdi",
        reads: Class::Elsewhere("filesystem"),
        pace: Pace::Elsewhere,
        document: "https://github.com/cncf-tags/container-device-interface",
        meanings: &[Meaning::unhealthy(
            "cdi-unwritable",
            "the CDI spec that names the device cannot be written",
            "let devherd write[ {file}|the CDI directory]: give it room, and mount the directory \
             writable",
        )
        .undamped()],
    },
    About {
        name: "cordon",
        reads: Class::Elsewhere("none"),
        pace: Pace::Elsewhere,
        document: "README.md",
        meanings: &[Meaning::unhealthy(
            "cordoned",
            "an operator has cordoned the device",
            "run devherd uncordon[ {resource}] {device} when the work on it is done",
        )
        .undamped()],
    },
    About {
        name: EXTERNAL,
        reads: Class::Elsewhere("a program, in a process of its own"),
        pace: Pace::Elsewhere,
        document: "docs/health-programs.md",
        meanings: &[Meaning::unhealthy(
            EXTERNAL,
            "a program or file of `health.external` reports it",
            "read what [{program}] reports[: {detail}]",
        )],
    },
    nvml_reasons::ABOUT,
    About {
        name: "amd-exporter",
        reads: SERVICE,
        pace: Pace::Elsewhere,
        document: "https://github.com/ROCm/device-metrics-exporter",
        meanings: &[Meaning::unhealthy(
            EXTERNAL,
            "AMD's metrics exporter reports the GPU as unhealthy",
            "read what AMD's metrics exporter reports[: {detail}]",
        )
        .by_value(&[(
            "unhealthy, as all at once",
            Meaning::warning(
                EXTERNAL,
                "AMD's metrics exporter reports all GPUs of the node, at least two, as unhealthy at \
                 once",
                "check AMD's metrics exporter (its pod and log): it reports every GPU of the node at \
                 once",
            ),
        )])],
    },
    About {
        name: "amd-nic-exporter",
        reads: SERVICE,
        pace: Pace::Elsewhere,
        document: "https://github.com/ROCm/device-metrics-exporter",
        meanings: &[Meaning::unhealthy(
            EXTERNAL,
            "AMD's metrics exporter reports a logical interface of the network card as unhealthy: it \
             is administratively down",
            "set the network interface up that was set down (ip link set dev … up)",
        )
        .by_value(&[(
            "unhealthy, as all at once",
            Meaning::warning(
                EXTERNAL,
                "AMD's metrics exporter reports all interfaces, of at least two network cards, as \
                 unhealthy at once",
                "check AMD's metrics exporter (its pod and log): it reports every network card of the \
                 node at once",
            ),
        )])],
    },
    About {
        name: "amd-kfd",
        reads: Class::Elsewhere("events, in a process of its own"),
        pace: Pace::Elsewhere,
        document: "https://docs.kernel.org/gpu/amdgpu/index.html",
        meanings: &[Meaning::unhealthy(
            GPU_RESET,
            "AMD's driver has reported a reset of the GPU, and not yet its end",
            WAIT_FOR_RESET,
        )
        .until(UNTIL_TAKEN_BACK)
        .undamped()],
    },
    About {
        name: "xpumd",
        reads: SERVICE,
        pace: Pace::Elsewhere,
        document: "https://github.com/intel/xpumanager",
        meanings: &[Meaning::unhealthy(
            EXTERNAL,
            "xpumd reports a domain of the GPU as critical or failed",
            "read what xpumd reports[: {detail}]",
        )
        .by_value(&[(
            "warning",
            Meaning::warning(EXTERNAL, "xpumd warns of a domain of the GPU", "read what xpumd reports[: {detail}]"),
        )])],
    },
    About {
        name: PCI_RECOVERY,
        reads: EVENTS,
        pace: Pace::Elsewhere,
        document: "https://docs.kernel.org/PCI/pci-error-recovery.html",
        meanings: &[Meaning::unhealthy(
            PCI_RECOVERY,
            "a uevent of the PCI function or of a port above it has ERROR_EVENT=FAILED_RECOVERY",
            "reboot the node, or remove the function[ {pci_address}] and rescan the bus; if it comes \
             again, have the card checked",
        )
        .until(STARTED_ANEW)
        .by_value(&[(
            "BEGIN_RECOVERY",
            // Its end may be lost: with a full socket, or while nobody listens.
            Meaning::unhealthy(
                PCI_RECOVERY,
                "a uevent of the PCI function or of a port above it has ERROR_EVENT=BEGIN_RECOVERY, and \
                 its end has not been reported",
                "wait for the kernel's recovery to end; if the device does not answer then, reboot the \
                 node",
            )
            .until_quiet_for(EVENT_SECONDS),
        )])],
    },
    About {
        name: WEDGED,
        reads: EVENTS,
        pace: Pace::Elsewhere,
        document: "https://docs.kernel.org/gpu/drm-uapi.html",
        meanings: &[Meaning::unhealthy(
            WEDGED,
            "a uevent of the DRM device has WEDGED, with a method of recovery",
            "end its pods and recover it as its driver asks[ ({value})], or reboot; if it comes \
             again, ask the card's vendor",
        )
        .until(STARTED_ANEW)
        .by_value(&[
            (
                "none",
                Meaning::warning(
                    WEDGED,
                    "a uevent of the DRM device has WEDGED=none: a reset has helped",
                    "restart the pods that failed on it: the driver's reset has helped",
                )
                .until_quiet_for(EVENT_SECONDS),
            ),
            (
                "ERROR=1",
                Meaning::unhealthy(
                    WEDGED,
                    "a uevent of the DRM device has ERROR=1, as i915 sends it when the GPU hangs, without a \
                     later ERROR=0",
                    "end its pods and bind its driver again, or reboot, if the driver's own reset does not \
                     help within a minute",
                )
                .until(UNTIL_TAKEN_BACK)
                .after(5), // a reset that helps takes less
            ),
        ])],
    },
    About {
        name: "devlink",
        reads: Class::Elsewhere(
            "generic netlink: events, and each 30 s a dump; those of devherd's own network \
             namespace",
        ),
        pace: Pace::Elsewhere,
        document: "https://docs.kernel.org/networking/devlink/devlink-health.html",
        meanings: &[Meaning::unhealthy(
            FIRMWARE,
            "a health reporter of the card's firmware (`fw_fatal`, `fw`) is in state error",
            "see devlink health show[ pci/{pci_address}] and let the reporter recover; if it stays, \
             reboot, then ask the card's vendor",
        )
        .by_value(&[(
            "error, with no way to recover",
            Meaning::warning(
                FIRMWARE,
                "such a reporter has an error, and its driver offers no recovery",
                "see devlink health show[ pci/{pci_address}]; ask the card's vendor: the driver offers \
                 no recovery",
            ),
        )])],
    },
    About {
        name: "ledger",
        reads: Class::Elsewhere("procfs and the kubelet, in a process of its own"),
        pace: Pace::Elsewhere,
        document: "https://man7.org/linux/man-pages/man5/proc_pid_fd.5.html",
        meanings: &[
            Meaning::warning(
                "held-elsewhere",
                "a process of a pod has the device open that the kubelet gave to another, or two pods \
                 have it open, in two looks 10 s apart",
                "end the process or the pod that is not to have it[: {detail}]",
            )
            .undamped(),
            Meaning::warning(
                "left-over-process",
                "a process of a pod that no longer holds the device has it open, or a killed process \
                 that does not end, in two looks 10 s apart",
                "end the process that was left over[: {detail}]",
            )
            .undamped(),
        ],
    },
    About {
        name: "mps",
        reads: Class::Elsewhere("filesystem"),
        pace: Pace::Elsewhere,
        document: "https://docs.nvidia.com/deploy/mps/",
        meanings: &[Meaning::unhealthy(
            "mps-daemon",
            "no MPS control daemon listens for the resource that shares the GPU",
            "start the resource's MPS control daemon; its log says why it ended",
        )
        .undamped()],
    },
];
