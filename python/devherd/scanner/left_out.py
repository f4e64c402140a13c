"""What devices the configuration leaves out that an operator may look for: MIG devices under `mig_strategy: none`."""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from devherd.amounts import amount
from devherd.config.resolved import Config
from devherd.inventory import Entry
from devherd.proto import spool_pb2

NVIDIA = "nvidia"
_CAPABILITIES = "proc/driver/nvidia/capabilities"
"""`gpuN/mig/giN/ciN` of each MIG device: <https://docs.nvidia.com/datacenter/tesla/mig-user-guide/>, device nodes."""


def left_out(config: Config, entries: Iterable[Entry]) -> list[spool_pb2.Problem]:
    """A note for each vendor of which devices are left out, with the cure."""
    if not any(entry.vendor == NVIDIA for entry in entries):
        return []
    options = json.loads(config.native).get("vendors", {}).get(NVIDIA, {})
    if options.get("mig_strategy", "none") != "none":
        return []
    of_gpus = list(_mig_devices(config.host_root / _CAPABILITIES))
    if not of_gpus:
        return []
    total, gpus = amount(sum(of_gpus), "MIG device"), amount(len(of_gpus), "GPU")
    said = (
        f"{total} of {gpus} left out, because `vendors.nvidia.mig_strategy` is `none`: set it to `mixed` or `single` to"
        " advertise MIG devices, or turn MIG mode off (`nvidia-smi -mig 0`)"
    )
    return [spool_pb2.Problem(vendor=NVIDIA, path=f"/{_CAPABILITIES}", error=said)]


def _mig_devices(capabilities: Path) -> Iterator[int]:
    """How many each GPU has that has some."""
    for gpu in _named(capabilities, "gpu"):
        number = sum(len(_named(instance, "ci")) for instance in _named(gpu / "mig", "gi"))
        if number:
            yield number


def _named(directory: Path, beginning: str) -> list[Path]:
    with contextlib.suppress(OSError):
        return [directory / name for name in os.listdir(directory) if name.startswith(beginning)]  # noqa: PTH208 - names
    return []
