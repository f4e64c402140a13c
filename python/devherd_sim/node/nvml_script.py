"""The script of the stub of NVIDIA's library (tests/nvml/stub/nvml_stub.c) on a simulated node.

The stub reads one file, `nvml.txt` in the root of the tree: the node's GPUs, then the statements of faults. The
statements are also kept in one file per GPU, so that each GPU's faults can be cleared.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from devherd.errors import UsageError
from devherd_sim.node.nvidia import DRIVER_VERSION, has_switches, switch_ports
from devherd_sim.node.nvidia_mig import MODELS
from devherd_sim.node.simulated_node import SimulatedNode

SCRIPT = "nvml.txt"
LIBRARY = "-"
"""Replaces the GPU's address in a statement about the library."""
_STATEMENTS = ".devherd-nvml"
_REMOTE_LINK = 146
"""`NVML_FI_DEV_NVLINK_REMOTE_NVLINK_ID`."""
_BRANDS = {"Tesla": 2, "GeForce": 5, "Nvidia": 14}
_ARCHITECTURES = {"Volta": 5, "Ampere": 7, "Ada Lovelace": 8, "Hopper": 9}
_ADDRESSING_MODES = {"None": 0, "HMM": 1, "ATS": 2}
"""The numbers of nvml.h."""
_OF_A_GPU = (
    "field", "event", "events", "fabric", "clocks", "sram", "repair", "unrepairable", "persistence", "mode", "absent",
    "lost", "fail", "hang",
)  # fmt: skip
_OF_THE_LIBRARY = ("fail", "hang", "crash", "guarded", "mig", "link")


def write(node: SimulatedNode) -> Path:
    """Write the file from the current state of the node; returns its path."""
    script = node.root / SCRIPT
    addresses = node.nvidia.addresses()
    statements = [line for at in (LIBRARY, *addresses) for line in _statements_of(node.root, at, addresses)]
    statements.sort(key=lambda line: int(line.split()[1]) if line.startswith("event ") else 0)  # stub reads in order
    gpus = [_gpu(node.nvidia.information(address), address) for address in addresses]
    if has_switches(node.root):
        gpus += [line for number in range(len(gpus)) for line in _links(number)]
    temporary = script.with_suffix(".new")
    temporary.write_text("\n".join([f"driver {DRIVER_VERSION}", "cuda 13000", *gpus, *statements, ""]))
    temporary.rename(script)
    return script


def _statements_of(root: Path, at: str, addresses: Sequence[str]) -> list[str]:
    file = statements_about(root, at)
    lines = file.read_text().splitlines() if file.exists() else []
    return lines if at == LIBRARY else [f"{line} gpu={addresses.index(at)}" for line in lines]


def statements_about(root: Path, at: str) -> Path:
    """The file of the statements about a GPU or the library."""
    return root / _STATEMENTS / at


def append(node: SimulatedNode, at: str, statement: str) -> None:
    """Add a statement. Raises UsageError for an unknown GPU and for an unknown statement."""
    addresses = node.nvidia.addresses()
    if at not in (LIBRARY, *addresses):
        raise UsageError(f"no NVIDIA GPU {at} on {node.root}", f"choose from {', '.join(addresses)}", "name another")
    words = statement.split()
    known = _OF_THE_LIBRARY if at == LIBRARY else _OF_A_GPU
    if not words or words[0] not in known:
        raise UsageError(
            f"the stub knows no statement {statement!r} about {at}", f"choose from {', '.join(known)}", "see --help"
        )
    if words[0] == "event":  # a waiter gets each event once: by its number, which must grow
        words.insert(1, str(time.monotonic_ns()))
    file = statements_about(node.root, at)
    file.parent.mkdir(exist_ok=True)
    with file.open("a") as lines:
        lines.write(" ".join(words) + "\n")
    write(node)


def _gpu(information: dict[str, str], address: str) -> str:
    model = next(model for model in MODELS.values() if model.name == information["Model"])
    facts = {
        "uuid": information["GPU UUID"],
        "pci": f"0000{address}",
        "minor": information["Device Minor"],
        "name": model.name.replace(" ", "_"),
        "memory": model.memory_bytes,
        "major": model.compute_capability[0],
        "minor_capability": model.compute_capability[1],
        "brand": _BRANDS[model.brand],
        "architecture": _ARCHITECTURES[model.architecture],
        "mig": 0,
    }
    if model.addressing_mode is not None:
        facts["addressing"] = _ADDRESSING_MODES[model.addressing_mode]
    return " ".join(["gpu", *(f"{name}={value}" for name, value in facts.items())])


def _links(number: int) -> list[str]:
    """A GPU's links to switches, each with its number at the other end."""
    ends = [(link, *port.split("/")) for link, port in switch_ports(number).items()]
    return [
        *(f"link gpu={number} link={link} type=2 pci=0000{switch}" for link, switch, _ in ends),
        *(f"field gpu={number} id={_REMOTE_LINK} link={link} value={port}" for link, _, port in ends),
    ]
