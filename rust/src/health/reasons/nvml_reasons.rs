//! What NVML says of a GPU.

use super::{
    ASK_DRIVER, DRAIN, ECC, EVENT_SECONDS, FABRIC, FIRMWARE, GPU_LOST, LOOK_UP, RECOVERY_ACTION, RESET, TO_DRAIN,
    TO_RECOVER, XID, XID_SECONDS,
};
use crate::health::source::{About, Class, Meaning, Pace};
use crate::health::sources::CHECK_CARD;

const REBOOT_OR_ASK: &str = "drain and reboot the node; if it comes again, ask NVIDIA with nvidia-bug-report.sh";
const COOL: &str = "check the fans, the air flow and the inlet temperature of the card[ {place}]";

pub(super) const ABOUT: About = About {
    name: "nvml",
    reads: Class::Elsewhere("a library, in a process of its own"),
    pace: Pace::Elsewhere,
    document: "https://docs.nvidia.com/deploy/nvml-api/",
    meanings: &[
        Meaning::warning(XID, "NVML reports an Xid", LOOK_UP).until_quiet_for(XID_SECONDS),
        Meaning::unhealthy(RECOVERY_ACTION, "NVML's GPU recovery action is not none", ASK_DRIVER)
            .to_do_by_value(TO_RECOVER)
            .by_value(&[(
                DRAIN,
                Meaning::warning(
                    RECOVERY_ACTION,
                    "NVML's GPU recovery action is to drain traffic between GPUs",
                    TO_DRAIN,
                ),
            )]),
        Meaning::unhealthy(
            GPU_LOST,
            "NVML returns NVML_ERROR_GPU_IS_LOST, says that it is unavailable, or, in two looks 5 s \
             apart, opens other GPUs and not this one, or lists fewer GPUs than the driver and opens \
             none, and the driver cannot start this one (opening its node returns EIO)",
            CHECK_CARD,
        ),
        Meaning::warning(
            "not-examined",
            "NVML opens other GPUs and refuses this one, as not supported or for a lack of \
             permission, or its node is not in the container",
            "give devherd's container the GPU's node, or install a driver that supports the GPU",
        ),
        Meaning::unhealthy("needs-reset", "NVML returns NVML_ERROR_RESET_REQUIRED for the GPU", RESET),
        Meaning::unhealthy(
            "insufficient-power",
            "NVML returns NVML_ERROR_INSUFFICIENT_POWER for the GPU",
            "shut the node down and attach the power cables of the card[ {place}]",
        ),
        Meaning::warning("interrupts", "NVML returns NVML_ERROR_IRQ_ISSUE for the GPU", REBOOT_OR_ASK),
        Meaning::warning(
            FIRMWARE,
            "NVML returns NVML_ERROR_CORRUPTED_INFOROM for the GPU",
            "ask NVIDIA what the card[ {place}] needs: its infoROM is \
             corrupted",
        ),
        Meaning::unhealthy(
            "row-remap-failed",
            "a row of the GPU's memory could not be remapped",
            "have the card[ {place}] replaced: a row of its memory could \
             not be remapped",
        )
        .for_good(),
        Meaning::warning(
            "row-remap-pending",
            "rows of the GPU's memory wait for a reset to be remapped",
            "reset the GPU[ (nvidia-smi --gpu-reset -i {pci_address})] when no pod holds it: rows \
             are remapped then",
        ),
        Meaning::unhealthy(
            "retired-pages",
            "63 or more pages of the GPU's memory are retired",
            "ask NVIDIA to replace the card[ {place}]: it can retire 64 \
             pages",
        ),
        Meaning::warning(
            "retirement-pending",
            "pages of the GPU's memory wait for a reset to be retired",
            "reset the GPU[ (nvidia-smi --gpu-reset -i {pci_address})] when no pod holds it: pages \
             are retired then",
        ),
        Meaning::unhealthy(
            ECC,
            "uncorrected memory errors since the GPU's last start, and no GPU recovery action that \
             could be read",
            "end its pods and reset the GPU[ (nvidia-smi --gpu-reset -i {pci_address})], or reboot; \
             if it comes again, ask NVIDIA",
        ),
        Meaning::warning(
            "ecc-contained",
            "uncorrected memory errors since the GPU's last start",
            "restart the pods that failed on it; if it comes again, ask NVIDIA with \
             nvidia-bug-report.sh",
        ),
        Meaning::warning(
            "ecc-storm",
            "NVML reports a storm of corrected memory errors, or more than 60 were counted within a \
             minute",
            "do nothing for a single one: the errors were corrected; if it comes again, ask NVIDIA \
             with nvidia-bug-report.sh",
        )
        .until_quiet_for(EVENT_SECONDS),
        Meaning::warning(
            "memory-poison",
            "NVML reports a poison error of the GPU's memory that is not fatal",
            "restart the pods that failed on it; if it comes again, ask NVIDIA with \
             nvidia-bug-report.sh",
        )
        .until_quiet_for(EVENT_SECONDS),
        Meaning::warning(
            "sram-threshold",
            "the GPU's SRAM had more uncorrected errors than NVIDIA's threshold: replace the card",
            "have the card[ {place}] replaced: its SRAM is beyond NVIDIA's \
             threshold",
        ),
        Meaning::warning(
            "repair-pending",
            "a repair of the GPU's memory or clusters waits for a reset",
            "reset the GPU[ (nvidia-smi --gpu-reset -i {pci_address})] when no pod holds it: the \
             repair is made then",
        ),
        Meaning::unhealthy(
            "unrepairable-memory",
            "the GPU's memory has errors that cannot be repaired",
            "ask NVIDIA to replace the card[ {place}]",
        ),
        Meaning::warning(
            "nvlink-down",
            "an NVLink of the GPU that was up in this boot is down",
            "see nvidia-smi nvlink --status[ -i {pci_address}]; check the bridge or cable, then \
             reset the GPU when no pod holds it",
        ),
        Meaning::warning(
            "nvlink-errors",
            "an NVLink of the GPU could not be recovered",
            "see nvidia-smi nvlink --errorcounters[ -i {pci_address}]; if it comes again, ask NVIDIA \
             with nvidia-bug-report.sh",
        )
        .until_quiet_for(EVENT_SECONDS),
        Meaning::unhealthy(
            FABRIC,
            "the GPU is not registered with its NVLink fabric",
            "see whether the fabric manager runs (systemctl status nvidia-fabricmanager), start it \
             and read its log",
        )
        .after(120)
        .by_value(&[
            (
                "in MIG mode",
                Meaning::warning(
                    FABRIC,
                    "the GPU is in MIG mode, which suspends its registration, and is not registered or not \
                     healthy",
                    "do nothing while the GPU is to stay in MIG mode",
                ),
            ),
            (
                "failed",
                Meaning::unhealthy(
                    FABRIC,
                    "the GPU's registration with its NVLink fabric failed",
                    "read the fabric manager's log (/var/log/fabricmanager.log), then restart it and reset \
                     the GPU when no pod holds it",
                ),
            ),
            (
                "unhealthy",
                Meaning::unhealthy(
                    FABRIC,
                    "the GPU's NVLink fabric is unhealthy",
                    "see Fabric in nvidia-smi -q[ -i {pci_address}] for what is unhealthy; ask NVIDIA what \
                     it needs",
                ),
            ),
            (
                "limited capacity",
                Meaning::warning(
                    FABRIC,
                    "the GPU's NVLink fabric has limited capacity",
                    "see Fabric in nvidia-smi -q[ -i {pci_address}] for what is limited; ask NVIDIA what it \
                     needs",
                ),
            ),
        ]),
        Meaning::warning("temperature", "the GPU's clocks are lowered because it is too hot", COOL).after(60),
        Meaning::warning(
            "power-brake",
            "the GPU's clocks are lowered from outside (power brake)",
            "check the server's power supplies and power limit: they have the GPU's clocks lowered",
        )
        .after(60),
    ],
};
