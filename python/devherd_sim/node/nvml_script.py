"""What the stub of NVIDIA's library (tests/nvml/stub/nvml_stub.c) says on a simulated node.

The stub reads one file, `nvml.txt` in the root of the tree: the node's GPUs, and then what faults had it say. That is
kept a file for each GPU, so that each can be taken back.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from devherd.errors import UsageError
from devherd_sim.node.nvidia import DRIVER_VERSION
from devherd_sim.node.nvidia_model import MODELS
from devherd_sim.node.simulated_node import SimulatedNode

SCRIPT = "nvml.txt"
LIBRARY = "-"
"""The place of what is said of no GPU."""
_STATEMENTS = ".devherd-nvml"
_OF_A_GPU = ("field", "event", "events", "fabric", "clocks", "sram", "repair", "unrepairable", "lost", "fail")
_OF_THE_LIBRARY = ("fail", "hang", "crash", "guarded", "mig", "link")


def write(node: SimulatedNode) -> Path:
    """Write the file by what is there now; its path."""
    script = node.root / SCRIPT
    addresses = node.nvidia.addresses()
    said = [line for at in (LIBRARY, *addresses) for line in _said_of(node.root, at, addresses)]
    said.sort(key=lambda line: int(line.split()[1]) if line.startswith("event ") else 0)  # it reads them in order
    gpus = [_gpu(node.nvidia.information(address), address) for address in addresses]
    temporary = script.with_suffix(".new")
    temporary.write_text("\n".join([f"driver {DRIVER_VERSION}", "cuda 13000", *gpus, *said, ""]))
    temporary.rename(script)
    return script


def _said_of(root: Path, at: str, addresses: Sequence[str]) -> list[str]:
    file = statements_about(root, at)
    lines = file.read_text().splitlines() if file.exists() else []
    return lines if at == LIBRARY else [f"{line} gpu={addresses.index(at)}" for line in lines]


def statements_about(root: Path, at: str) -> Path:
    """The file of what is said of a GPU, or of the library."""
    return root / _STATEMENTS / at


def say(node: SimulatedNode, at: str, statement: str) -> None:
    """Have the stub say one more thing. Raises UsageError for a GPU that is not there and for other words."""
    addresses = node.nvidia.addresses()
    if at not in (LIBRARY, *addresses):
        raise UsageError(f"no NVIDIA GPU {at} on {node.root}", f"choose from {', '.join(addresses)}", "name another")
    words = statement.split()
    known = _OF_THE_LIBRARY if at == LIBRARY else _OF_A_GPU
    if not words or words[0] not in known:
        raise UsageError(
            f"the stub does not say {statement!r} of {at}", f"choose from {', '.join(known)}", "see --help"
        )
    if words[0] == "event":  # told once to whoever waits: its number has to grow
        words.insert(1, str(time.monotonic_ns()))
    file = statements_about(node.root, at)
    file.parent.mkdir(exist_ok=True)
    with file.open("a") as lines:
        lines.write(" ".join(words) + "\n")
    write(node)


def _gpu(information: dict[str, str], address: str) -> str:
    model = next(model for model in MODELS.values() if model.name == information["Model"])
    told = {
        "uuid": information["GPU UUID"],
        "pci": f"0000{address}",
        "minor": information["Device Minor"],
        "name": model.name.replace(" ", "_"),
        "memory": model.memory_bytes,
        "major": model.compute_capability[0],
        "minor_capability": model.compute_capability[1],
        "mig": 0,
    }
    return " ".join(["gpu", *(f"{name}={value}" for name, value in told.items())])
