"""AMD's GPUs and partitions as `gpu.amd.com` publishes them.

Version: k8s-gpu-dra-driver at 08bc729c, its feature gates at their defaults.
https://github.com/ROCm/k8s-gpu-dra-driver/blob/08bc729cfb96cf804d7004b3e01b963a9d7668d2/cmd/gpu-kubeletplugin/deviceinfo.go
(`GetDevice`), discovery.go there (`enumerateAllPossibleDevices`) and pkg/amdgpu/amdgpu.go (`GetAMDGPUs`).

Where the driver invents a value, devherd does not: 80 GiB, or 20 of a partition, for memory that KFD does not tell.
"""

from devherd.dra.tables import BUS_ID, ROOT, Attribute, DeviceType, Publishable, constant, count, number, text, version

DRIVER = "gpu.amd.com"


def _label(subject: Publishable) -> str | None:
    card, render = subject.number("card_minor"), subject.number("render_minor")
    return None if card is None or render is None else f"gpu-{card}-{render}"


def _product_name(subject: Publishable) -> str:
    """Without brackets, and with `_` for a blank; empty where the card tells none, as old kernels do."""
    name = (subject.text("product_name") or "").strip()
    return name.replace(" ", "_").replace("(", "").replace(")", "")


def _profile(subject: Publishable) -> str | None:
    """`spx_nps1`."""
    modes = subject.text("compute_partition"), subject.text("memory_partition")
    return None if None in modes else "_".join(filter(None, modes))


def _type(name: str, *, is_partition: bool) -> DeviceType:
    profile = ("compute_partition", "memory_partition")
    return DeviceType(
        DRIVER,
        name,
        _label,
        (
            constant("type", name),
            Attribute("productName", "string", _product_name, ("product_name",)),
            # The driver's own attribute beside the standard one; -1 without a NUMA node, as in sysfs.
            number("numaNode", "numa_node", otherwise=-1),
            version("driverVersion", "driver_version"),
            text("driverVersionFull", "driver_version"),
            text("deviceID", "device_id"),
            Attribute("partitionProfile", "string", _profile, profile, is_needed=is_partition),
            BUS_ID,
            ROOT,
        ),
        (count("memory", "vram_bytes"), count("computeUnits", "cu_count"), count("simdUnits", "simd_count")),
        ("card_minor", "render_minor"),
        told_by=(("partitionProfile",), ()),
    )


GPU = _type("amdgpu", is_partition=False)
PARTITION = _type("amdgpu-partition", is_partition=True)


def type_of(subject: Publishable) -> DeviceType:
    """The type."""
    return GPU if subject.text("compute_partition") in (None, "", "spx") else PARTITION
