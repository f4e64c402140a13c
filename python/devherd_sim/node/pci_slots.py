"""Where cards sit: each below a root port of its own, spread over the NUMA nodes in equal shares."""

from collections import Counter

_LARGEST = 19 * 8  # functions of root ports on a bus, below the slot of the USB controller


class Slots:
    """The free slots of a machine with NUMA nodes: each card takes the next one near its node."""

    def __init__(self, numa_nodes: int) -> None:
        self.numa_nodes = numa_nodes
        self._taken: Counter[int] = Counter()

    def take(self, numa_node: int) -> str:
        """The sysfs directory of the next card near a NUMA node; -1 is near none."""
        self._taken[numa_node] += 1
        return pci_path(self._taken[numa_node] - 1, numa_node, self.numa_nodes)


def pci_path(index: int, numa_node: int, numa_nodes: int) -> str:
    """The sysfs directory of the `index`-th card near a NUMA node; a full bus range continues in the next domain."""
    span = 256 // max(numa_nodes, 1)
    domain, index = divmod(index, min(span - 2, _LARGEST))
    root = max(numa_node, 0) * span
    prefix = f"{domain:04x}"
    root_port = f"{prefix}:{root:02x}:{1 + index // 8:02x}.{index % 8}"
    return f"sys/devices/pci{prefix}:{root:02x}/{root_port}/{prefix}:{root + 1 + index:02x}:00.0"


def numa_node_of(index: int, cards: int, numa_nodes: int) -> int:
    """The NUMA node of the `index`-th of `cards`; -1 on a machine that knows none."""
    return index * numa_nodes // cards if numa_nodes else -1


def virtual_function(physical: str, index: int) -> str:
    """The directory of a virtual function, from 1 on: eight functions a device, as with alternative routing IDs."""
    return f"{physical[:-4]}{index // 8:02x}.{index % 8}"
