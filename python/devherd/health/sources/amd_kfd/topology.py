"""Which GPUs KFD has: sysfs's kfd/topology (drivers/gpu/drm/amd/amdkfd/kfd_topology.c)."""

from collections.abc import Mapping
from pathlib import Path


def slots(host_root: Path) -> dict[int, str]:
    """The PCI device of each GPU, `0000:0c:00`, by KFD's id for it; partitions have ids of their own.

    Those that may not be read are left out: the kernel hides a GPU whose render node the device cgroup denies.
    """
    found = {}
    for node in sorted((host_root / "sys/class/kfd/kfd/topology/nodes").glob("*")):
        try:
            gpu_id = int((node / "gpu_id").read_text())
            properties = _properties((node / "properties").read_text())
            location, domain = properties["location_id"], properties.get("domain", 0)
        except (OSError, ValueError, KeyError):
            continue
        if gpu_id:
            found[gpu_id] = f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}"
    return found


def _properties(text: str) -> Mapping[str, int]:
    words = (line.split() for line in text.splitlines())
    return {words[0]: int(words[1]) for words in words if len(words) == 2}
