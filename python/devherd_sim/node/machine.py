"""What every node has: processors in NUMA nodes, loaded modules, limits.

Documentation/ABI/stable/sysfs-devices-node; proc(5).
"""

from collections.abc import Iterable

from devherd_sim.node.entry import Entry, File, attributes

CPUS_PER_NODE = 16


def cpulist(numa_node: int) -> str:
    """The processors near a node; of a function that is near none (-1) the kernel lists those of the first."""
    first = max(numa_node, 0) * CPUS_PER_NODE
    return f"{first}-{first + CPUS_PER_NODE - 1}"


def entries(numa_nodes: int, modules: Iterable[str]) -> list[Entry]:
    """The machine without its devices."""
    count = max(numa_nodes, 1)
    return [
        *attributes("sys/devices/system/node", {"online": _range(count), "possible": _range(count)}),
        *attributes("sys/devices/system/cpu", {"online": _range(count * CPUS_PER_NODE)}),
        *(entry for node in range(count) for entry in _numa_node(node, count)),
        *(File.line(f"sys/module/{module}/initstate", "live") for module in sorted(modules)),
        File("proc/modules", "".join(f"{module} 16384 0 - Live 0x0\n" for module in sorted(modules)).encode()),
        *attributes("proc/sys/fs/inotify", {"max_user_instances": "128", "max_user_watches": "65536"}),
    ]


def _numa_node(node: int, count: int) -> list[Entry]:
    distances = " ".join("10" if other == node else "21" for other in range(count))
    return attributes(f"sys/devices/system/node/node{node}", {"cpulist": cpulist(node), "distance": distances})


def _range(count: int) -> str:
    return "0" if count == 1 else f"0-{count - 1}"
