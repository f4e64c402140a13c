"""NVIDIA's Xids by code: names, and the advice of NVIDIA's catalogue, docs.nvidia.com/deploy/xid-errors.

The advice is the immediate action of the catalogue: reset the GPU, restart the application, or nothing, because the
application caused it. The catalogue also says which Xids are followed by the driver's recovery action. What a person
does follows from both actions of the catalogue, the immediate and the investigatory one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

XID = "xid"
"""The reason of findings about Xids."""

Advice = Literal["driver-decides", "reset", "broken", "warn", "count"]
"""`driver-decides`: a reset, unless the driver's recovery action stays at none. `reset`: a reset in any case.
`broken`: the card needs a repair. `warn`: restart the application. `count`: nothing.
"""


@dataclass(frozen=True, slots=True)
class Xid:
    """An entry of the catalogue."""

    name: str
    advice: Advice
    do: str
    """What a person does, with places for facts of the device: `to_do` in registry.py."""


_COPY_ENGINES = (39, 40, 41, 70, 71, 72, 75, 76, 77, 85)
_LATER_COPY_ENGINES = range(126, 136)
_DECODERS = (83, 84, 88, 89, 96, 97, 98)
_LATER_JPEG_DECODERS = range(99, 106)
OF_NVLINK = range(144, 151)
"""NVLink errors since Blackwell, each of which may be fatal or not."""

_NAMES: tuple[tuple[Advice, Mapping[int, str]], ...] = (
    (
        "driver-decides",
        {
            48: "GPU_ECC_DBE",
            62: "PMU_HALT_ERROR",
            64: "INFOROM_DRAM_RETIREMENT_FAILURE",
            74: "NVLINK_ERROR",
            95: "UNCONTAINED_ERROR",
            109: "CTXSW_TIMEOUT_ERROR",
            110: "SEC_FAULT_ERROR",
            120: "GSP_ERROR",
            136: "ALI_TRAINING_FAIL",
            143: "GPU_INIT_ERROR",
            155: "NVLINK_SW_DEFINED_ERROR",
            156: "RESOURCE_RETIREMENT_EVENT",
            158: "GPU_FATAL_TIMEOUT",
        },
    ),
    (
        "reset",
        {
            46: "GPU_TIMEOUT_ERROR",
            79: "GPU_HAS_FALLEN_OFF_THE_BUS",
            119: "GSP_RPC_TIMEOUT",
            140: "UNRECOVERABLE_ECC_ERROR_ESCAPE",
            167: "PCIE_FATAL_TIMEOUT",
            169: "SEC2_HALT_ERROR",
        },
    ),
    ("broken", {54: "SILENT_RUNNING_PWR_REDUCED_CLOCKING"}),
    (
        "warn",
        {
            8: "FIFO_ERROR_IDLE_TIMEOUT",
            11: "GR_ERROR_MISSING_HW",
            25: "GR_ILLEGAL_NOTIFY",
            32: "PBDMA_ERROR",
            38: "FECS_ERR_WATCHDOG_TIMEOUT",
            **{code: f"CE{number}_ERROR" for number, code in enumerate(_COPY_ENGINES)},
            **{code: f"CE{code - 116}_ERROR" for code in _LATER_COPY_ENGINES},
            44: "GR_FAULT_DURING_CTXSW",
            60: "SEC2_ERROR",
            66: "FECS_ERR_REG_ACCESS_VIOLATION",
            67: "FECS_ERR_VERIF_VIOLATION",
            69: "GR_CLASS_ERROR",
            78: "VGPU_START_ERROR",
            80: "PBDMA_PUSHBUFFER_CRC_MISMATCH",
            82: "NVJPG0_ERROR",
            **{code: f"NVDEC{number}_ERROR" for number, code in enumerate(_DECODERS, 1)},
            86: "OFA0_ERROR",
            92: "EXCESSIVE_SBE_INTERRUPTS",
            94: "CONTAINED_ERROR",
            **{code: f"NVJPG{code - 98}_ERROR" for code in _LATER_JPEG_DECODERS},
            121: "C2C_ERROR",
            139: "OFA1_ERROR",
            142: "NVENC3_ERROR",
            144: "NVLINK_SAW_ERROR",
            145: "NVLINK_RLW_ERROR",
            146: "NVLINK_TLW_ERROR",
            147: "NVLINK_TREX_ERROR",
            148: "NVLINK_NVLPW_CTRL_ERROR",
            149: "NVLINK_NETIR_ERROR",
            150: "NVLINK_MSE_ERROR",
            151: "KEY_ROTATION_ERROR",
            157: "RESOURCE_RETIREMENT_FAILURE",
            159: "CHI_NON_DATA_ERROR",
            160: "CHANNEL_RETIREMENT_EVENT",
            161: "CHANNEL_RETIREMENT_FAILURE",
            163: "PSHC_DISENGAGED",
            164: "PSHC_LOW_LIFETIME",
            165: "PSHC_ZERO_LIFETIME",
            166: "NVLINK_SECURE_CRYPTO_ERR",
            168: "REDUCED_GPU_MEMORY_CAPACITY",
            170: "NVLINK_SECURE_OTHER_ERR",
            173: "C2C_FATAL_LINK_FAILURE",
            174: "KILL_PROCESS_SILENT",
            175: "MEMORY_SUBSYSTEM_ERROR",
            176: "PCIE_CORRECTABLE_ERROR_FAULT",
            185: "SPARING_EVENT",
        },
    ),
    (
        "count",
        {
            13: "GR_EXCEPTION",
            14: "FAKE_ERROR",
            31: "FIFO_ERROR_MMU_ERR_FLT",
            37: "FECS_ERR_UNIMP_FIRMWARE_METHOD",
            43: "RESETCHANNEL_VERIF_ERROR",
            45: "PREEMPTIVE_REMOVAL",
            63: "INFOROM_DRAM_RETIREMENT_EVENT",
            68: "NVDEC0_ERROR",
            93: "INFOROM_ERASE_LIMIT_EXCEEDED",
            106: "SMBPBI_TEST_MESSAGE",
            107: "SMBPBI_TEST_MESSAGE_SILENT",
            108: "DESTINATION_FLA_TRANSLATION_ERROR",
            137: "NVLINK_PRIV_ERR",
            141: "FAST_PATH_ERROR",
            152: "DLA_SMMU_ERROR",
            153: "DLA_TIMEOUT",
            154: "GPU_RECOVERY_ACTION_CHANGED",
            162: "PSHC_REENGAGED",
            171: "UNCORRECTABLE_DRAM_ERROR",
            172: "UNCORRECTABLE_SRAM_ERROR",
        },
    ),
)

_RESET_GPU = "reset the GPU[ (nvidia-smi --gpu-reset -i {pci_address})]"
_RESET = f"end its pods and {_RESET_GPU}, or reboot"
_RESTART = "restart the pod that used the GPU"
_NOTHING = "do nothing for a single one"
_ASK = "; if it comes again, ask NVIDIA with nvidia-bug-report.sh"
_APPLICATION = "; if it comes again, look for the fault in its program"
_SOFTWARE = "; if it comes again, update the driver or ask NVIDIA"
_LINK = "; if it comes again, check its NVLinks (nvidia-smi nvlink --status)"
_CARD = "the card[ {place}]"

_TO_DO: Mapping[str, Iterable[int]] = {
    _RESTART + _ASK: (8, *_COPY_ENGINES, *_LATER_COPY_ENGINES, 68, *_DECODERS, 82, *_LATER_JPEG_DECODERS, 86, 94, 139),
    _RESTART + _APPLICATION: (11, 13, 25, 31, 32, 69, 80),
    _RESTART + _SOFTWARE: (60,),
    _NOTHING + _ASK: (38, 43, 44, 66, 67, 92, 93, 108, 121, 141, 152, 153, 157, 160, 161),
    _NOTHING + _APPLICATION: (37, 137),
    _RESET + _ASK: (46, 48, 62, 64, 95, 109, 140, 143, 156, 158),
    _RESET + _SOFTWARE: (110, 119, 120, 155),
    _RESET + _LINK: (74, 136),
    f"{_RESET_GPU} if the driver's line says Fatal; else do nothing": OF_NVLINK,
    "do nothing: it is a test or a notice": (14, 106, 107, 162),
    "do nothing: the driver has retired the memory, or will at the next reset of the GPU": (63,),
    "look for the Xid before it: its program was ended, by an error or on purpose": (45,),
    f"shut the node down and check the power cables and the seat of {_CARD}": (54,),
    "install the vGPU software and the driver in versions that fit each other": (78,),
    f"drain and reboot the node; if it comes again, have {_CARD} checked or replaced": (79,),
    "ask NVIDIA with nvidia-bug-report.sh": (142,),
    "restart the virtual machine" + _ASK: (151,),
    "do what the driver's line asks for": (154,),
    "look the Xid up in NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors) and do what it says": (159,),
    "follow the Xid 48 beside it, which this one details": (171, 172),
    "ask NVIDIA: its catalogue names no action; a reset of the GPU or a reboot ends the finding": (167, 169),
    "ask NVIDIA: its catalogue names no action": (163, 164, 165, 166, 168, 170, 173, 174, 175, 176, 185),
}
"""What a person does about codes: the two actions of NVIDIA's catalogue,
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html.
"""
_DO = {code: text for text, codes in _TO_DO.items() for code in codes}

CATALOGUE = MappingProxyType(
    {code: Xid(name, advice, _DO[code]) for advice, names in _NAMES for code, name in names.items()}
)
"""The entries by code."""

LEAST_DRIVERS = MappingProxyType({109: 570, 143: 575})
"""By code: the first driver branch whose recovery action covers it. Every recovery action covers the other codes."""

GPU_INIT_ERROR = 143
"""The driver could not start the GPU ("GPU Initialization Error"): a later start of the GPU shows that it can."""

TAKES_BACK = MappingProxyType({"162": "163"})
"""By code: the code that it clears. In NVIDIA's catalogue, 162 means that power smoothing works again after 163."""

OF_PLUGIN_IGNORED = frozenset({13, 31, 43, 45, 68, 109})
"""The codes that NVIDIA's device plugin ignores; there, every other code makes a device Unhealthy."""

OF_APPLICATIONS = frozenset(code for code in OF_PLUGIN_IGNORED if CATALOGUE[code].advice == "count")
"""The codes among them that do not concern the GPU: an application has used it wrongly, or was ended."""


def described(code: int) -> str:
    """A code with its name, as text."""
    xid = CATALOGUE.get(code)
    return f"Xid {code}: {xid.name}" if xid else f"Xid {code}"


def is_unknown_to(code: str, driver: str) -> bool:
    """Whether the recovery action of this driver version (`570.86.15`) ignores a code."""
    branch = driver.partition(".")[0]
    least = LEAST_DRIVERS.get(int(code)) if code.isdecimal() else None
    return least is not None and branch.isdecimal() and int(branch) < least
