"""AMD GPUs for virtual machines, and those without a driver: <https://docs.kernel.org/driver-api/vfio.html>."""

from collections.abc import Sequence

from devherd_sim.node import pci
from devherd_sim.node.amd import Gpu
from devherd_sim.node.class_device import class_node
from devherd_sim.node.entry import Entry
from devherd_sim.node.fpga_card import Numbers
from devherd_sim.node.link import link, named_link

_AMD = 0x1002
_VFIO_MAJOR = 511
_VIRTUAL_FUNCTION = 0x74B5


def passed_through(gpus: Sequence[Gpu], numbers: Numbers) -> list[Entry]:
    """GPUs that amdgpu does not drive, each function in an IOMMU group of its own."""
    made: list[Entry] = []
    if any(gpu.spec.driver != "none" for gpu in gpus):
        made += class_node("sys/devices/virtual/misc/vfio", "misc", "vfio/vfio", (10, 196))
    for gpu in gpus:
        for function in _functions(gpu):
            made += pci.entries(function)
            if function.driver is not None:
                made += _group(function, numbers.take("iommu group"))
    return made


def _functions(gpu: Gpu) -> list[pci.Function]:
    virtual = tuple(f"{gpu.path[:-4]}{index // 8:02x}.{index % 8}" for index in range(1, gpu.spec.vfs + 1))
    driver = None if gpu.spec.driver == "none" else gpu.spec.driver
    physical = pci.Function(
        path=gpu.path,
        vendor=_AMD,
        device=gpu.model.device,
        pci_class=gpu.model.pci_class,
        driver=driver,
        numa_node=gpu.numa_node,
        virtual=virtual,
    )
    return [
        physical,
        *(
            pci.Function(
                path=path,
                vendor=_AMD,
                device=_VIRTUAL_FUNCTION,
                pci_class=gpu.model.pci_class,
                driver="vfio-pci",
                numa_node=gpu.numa_node,
                physical=gpu.path,
            )
            for path in virtual
        ),
    ]


def _group(function: pci.Function, number: int) -> list[Entry]:
    group = f"sys/kernel/iommu_groups/{number}"
    made: list[Entry] = [link(f"{function.path}/iommu_group", group), named_link(f"{group}/devices", function.path)]
    if function.driver == "vfio-pci":
        made += class_node(f"sys/devices/virtual/vfio/{number}", "vfio", f"vfio/{number}", (_VFIO_MAJOR, number))
    return made
