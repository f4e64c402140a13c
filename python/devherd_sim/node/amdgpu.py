"""AMD GPUs under their driver amdgpu: PCI functions, partitions, DRM nodes, KFD.

<https://docs.kernel.org/gpu/amdgpu/driver-misc.html>
"""

from collections.abc import Sequence

from devherd_sim.node import kfd, pci
from devherd_sim.node.amd import AmdGpu, AmdSpec, DrmDevice, gpus, passed_through
from devherd_sim.node.entry import Entry, File, attributes, link, named_link
from devherd_sim.node.intel_fpga import Numbers
from devherd_sim.node.machine import character_device, class_device, class_node, uevent
from devherd_sim.node.pci import Function, Slots

AMD = 0x1002
_ASPEED, _AST2000 = 0x1A03, 0x2000
_DRM_MAJOR = 226
# https://docs.kernel.org/gpu/amdgpu/ras.html; consumer cards have none.
_RAS = {
    "features": "feature mask: 0x1fff",
    "gfx_err_count": "ue: 0\nce: 0",
    "umc_err_count": "ue: 0\nce: 0",
    "gpu_vram_bad_pages": "0x00000042 : 0x00001000 : R",
}
# https://docs.kernel.org/gpu/amdgpu/thermal.html
_SENSORS = {
    "name": "amdgpu",
    "temp1_label": "edge",
    "temp1_input": "41000",
    "temp1_crit": "100000",
    "temp1_crit_hyst": "-273150",
    "temp2_label": "junction",
    "temp2_input": "44000",
    "temp2_crit": "110000",
    "temp2_crit_hyst": "-273150",
}
_SPLITS = {"SPX": 1, "DPX": 2, "QPX": 4, "CPX": 8}


def modules(groups: Sequence[AmdSpec]) -> set[str]:
    """The kernel modules that these cards need."""
    return {spec.driver.replace("-", "_") for spec in groups if spec.driver != "none"}


def entries(groups: Sequence[AmdSpec], slots: Slots, numbers: Numbers) -> list[Entry]:
    """All AMD GPUs of a host, and the display of its management controller."""
    made, all_gpus = _planned(groups, slots, numbers)
    made += [entry for gpu in all_gpus for entry in pci.entries(pci.bridge_above(gpu.path, gpu.numa_node))]
    made += passed_through([gpu for gpu in all_gpus if gpu.spec.driver != "amdgpu"], numbers)
    under_amdgpu = [gpu for gpu in all_gpus if gpu.spec.driver == "amdgpu"]
    if under_amdgpu:
        made += [*_module(), *kfd.entries(under_amdgpu, numa_nodes=slots.numa_nodes)]
    return [*made, *(entry for gpu in under_amdgpu for entry in _gpu(gpu, numbers.take("hwmon")))]


def driven(groups: Sequence[AmdSpec], slots: Slots, numbers: Numbers) -> list[AmdGpu]:
    """The GPUs that KFD knows."""
    return [gpu for gpu in _planned(groups, slots, numbers)[1] if gpu.spec.driver == "amdgpu"]


def _planned(groups: Sequence[AmdSpec], slots: Slots, numbers: Numbers) -> tuple[list[Entry], list[AmdGpu]]:
    """The entries of the management controller's display, which comes before all GPUs, and the GPUs."""
    has_display = any(spec.display for spec in groups)
    display = _display(slots.take(0), numbers.take("drm card")) if has_display else []
    return display, list(gpus(groups, slots, numbers))


def _module() -> list[Entry]:
    return [
        *attributes("sys/module/amdgpu", {"version": "6.8.5", "srcversion": "8D5A2B3C4E5F60718293A4B"}),
        link("sys/module/amdgpu/drivers/pci:amdgpu", "sys/bus/pci/drivers/amdgpu"),
    ]


def _gpu(gpu: AmdGpu, sensors_number: int) -> list[Entry]:
    function = pci.Function(
        path=gpu.path,
        vendor=AMD,
        device=gpu.model.device,
        pci_class=gpu.model.pci_class,
        driver="amdgpu",
        numa_node=gpu.numa_node,
    )
    facts = {}
    if gpu.model.product_name:
        facts = {"product_name": gpu.model.product_name, "serial_number": f"6922310{10000 + gpu.number}"}
    if gpu.model.units > 1:
        facts |= {
            "current_compute_partition": gpu.spec.compute_partition,
            "current_memory_partition": gpu.spec.memory_partition,
            "available_compute_partition": ", ".join(
                name for name, parts in _SPLITS.items() if name == "CPX" or parts < gpu.model.units
            ),
            "available_memory_partition": "NPS1, NPS4",
        }
    sensors = f"{gpu.path}/hwmon/hwmon{sensors_number}"
    return [
        *pci.entries(function),
        *attributes(gpu.path, facts),
        *class_device(sensors, "hwmon", gpu.path),
        *attributes(sensors, _SENSORS),
        *(attributes(f"{gpu.path}/ras", _RAS) if gpu.model.product_name else []),
        *(entry for part in gpu.parts for entry in _part(gpu, part)),
    ]


def _part(gpu: AmdGpu, part: DrmDevice) -> list[Entry]:
    if not part.xcp:
        return _drm(gpu.path, part.card, part.render)
    path = f"sys/devices/platform/{part.xcp}"
    return [
        File.line(f"{path}/uevent", "MODALIAS=platform:amdgpu_xcp"),
        link(f"{path}/subsystem", "sys/bus/platform"),
        named_link("sys/bus/platform/devices", path),
        *_drm(path, part.card, part.render),
    ]


def _display(path: str, card: int) -> list[Entry]:
    """The display of a management controller: a card of another vendor's driver, without a render node."""
    function = pci.Function(path=path, vendor=_ASPEED, device=_AST2000, pci_class=0x030000, driver="ast", numa_node=0)
    return [*pci.entries(pci.bridge_above(path, 0)), *pci.entries(function), *_drm(path, card, None)]


def _drm(device: str, card: int, render: int | None) -> list[Entry]:
    nodes = [(f"card{card}", card), *([(f"renderD{render}", render)] if render is not None else [])]
    return [entry for name, minor in nodes for entry in _drm_node(device, name, minor)]


def _drm_node(device: str, name: str, minor: int) -> list[Entry]:
    path, node, number = f"{device}/drm/{name}", f"dri/{name}", (_DRM_MAJOR, minor)
    return [
        *class_device(path, "drm", device),
        *character_device(path, node, number),
        File.line(f"{path}/uevent", uevent(node, number)),
    ]


DRM_MAJOR = 226
_FIRST_RENDER_MINOR = 128


def class_version() -> list[Entry]:
    """The file /sys/class/drm/version."""
    return [File.line("sys/class/drm/version", "drm 1.1.0 20060810")]


def card(function: Function, number: int, connectors: int = 0) -> list[Entry]:
    """`card<number>`, its render minor and its display connectors."""
    name = f"card{number}"
    path = f"{function.path}/drm/{name}"
    made = [
        *_minor(function, name, number),
        *_minor(function, f"renderD{_FIRST_RENDER_MINOR + number}", _FIRST_RENDER_MINOR + number),
    ]
    for connector in range(1, connectors + 1):
        made += class_device(f"{path}/{name}-DP-{connector}", "drm", path)
    return made


def _minor(function: Function, name: str, minor: int) -> list[Entry]:
    path, node = f"{function.path}/drm/{name}", f"dri/{name}"
    kind = "card" if name.startswith("card") else "render"
    return [
        *class_node(path, "drm", node, (DRM_MAJOR, minor)),
        link(f"{path}/device", function.path),
        link(f"dev/dri/by-path/pci-{function.address}-{kind}", f"dev/{node}"),
    ]
