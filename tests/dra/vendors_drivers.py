"""What the vendors' own DRA drivers publish on a tree: a small implementation of each that shares nothing with devherd.

Each reads the tree's files as the driver does; NVIDIA's asks the tree's answer of NVML. A device is its attributes, by
name and kind, and its capacities as numbers.

* AMD: ROCm/k8s-gpu-dra-driver 08bc729cfb96cf804d7004b3e01b963a9d7668d2
* Intel: intel/intel-resource-drivers-for-kubernetes 1da939faa33a90dd641d0327cdcdcbbfaa1acdb4
* NVIDIA: kubernetes-sigs/dra-driver-nvidia-gpu 95932046683719c43b6a0dd9613c2e5aad5d6703
"""

import json
import os
import re
from pathlib import Path

from devherd.config.resolved import NVML_ANSWER

STANDARD = "resource.kubernetes.io"
MEBIBYTE = 1 << 20

INTEL_MODELS = {"0x56c0": ("Flex 170", "Data Center Flex"), "0xe20b": ("B580", "Arc B-Series")}
"""Of pkg/gpu/device/models.go, the two that simulated nodes have."""


def said(file):
    return file.read_text().strip() if file.exists() else ""


def place(function):
    """The standard attributes of a PCI function."""
    parts = Path(os.path.realpath(function)).parts
    root = parts[parts.index("devices") + 1]
    return {f"{STANDARD}/pciBusID": {"string": function.name}, f"{STANDARD}/pcieRoot": {"string": root}}


# --- AMD


def amd(root):
    """By name; `numaNode` is the driver's own attribute."""
    topology = {}
    for properties in root.glob("sys/class/kfd/kfd/topology/nodes/*/properties"):
        node = {line.split()[0]: int(line.split()[1]) for line in properties.read_text().splitlines()}
        if node.get("drm_render_minor", 0) > 0:
            bank = dict(line.split() for line in said(properties.parent / "mem_banks/0/properties").splitlines())
            topology[node["drm_render_minor"]] = node | {"memory": int(bank["size_in_bytes"])}
    functions = {}
    devices = {}
    for function in sorted(root.glob("sys/module/amdgpu/drivers/pci:amdgpu/????:*")):
        card, render = drm(function)
        node = topology[render]
        functions[card_of(node)] = function
        devices[f"gpu-{card}-{render}"] = of_amd(root, function, node)
    for platform in sorted(root.glob("sys/devices/platform/amdgpu_xcp_*")):
        card, render = drm(platform)
        if card is not None and render in topology:
            node = topology[render]
            function = functions[card_of(node)]
            devices[f"gpu-{card}-{render}"] = of_amd(root, function, node)
    return devices


def card_of(node):
    """Domain, bus and device: partitions differ in the number of the function."""
    return node["domain"], node["location_id"] >> 3


def drm(directory):
    names = [entry.name for entry in (directory / "drm").glob("*")]
    cards = [int(name[4:]) for name in names if name.startswith("card")]
    renders = [int(name[7:]) for name in names if name.startswith("renderD")]
    return (cards or [None])[0], (renders or [None])[0]


def of_amd(root, function, node):
    compute = said(function / "current_compute_partition").lower()
    memory = said(function / "current_memory_partition").lower()
    name = re.sub(r"[()]", "", said(function / "product_name")).replace(" ", "_")
    version = said(root / "sys/module/amdgpu/version")
    attributes = {
        "type": {"string": "amdgpu" if compute in ("", "spx") else "amdgpu-partition"},
        "productName": {"string": name},
        "numaNode": {"int": int(said(function / "numa_node"))},
        "deviceID": {"string": said(function / "device")},
        **place(function),
    }
    if version:
        attributes["driverVersion"] = {"version": ".".join(version.split(".")[:3])}
        attributes["driverVersionFull"] = {"string": version}
    if compute and memory:
        attributes["partitionProfile"] = {"string": f"{compute}_{memory}"}
    units = node["simd_count"] // node["simd_per_cu"]
    return attributes, {"memory": node["memory"], "computeUnits": units, "simdUnits": node["simd_count"]}


# --- Intel


def intel(root):
    """By name. Without privileges the driver reads no memory: it publishes 0."""
    devices = {}
    for function in sorted(root.glob("sys/bus/pci/devices/*")):
        if said(function / "vendor") != "0x8086" or said(function / "class") not in ("0x030000", "0x038000"):
            continue
        identity = said(function / "device")
        model, family = INTEL_MODELS[identity]
        attributes = {
            "model": {"string": model},
            "family": {"string": family},
            "driver": {"string": (function / "driver").readlink().name},
            "sriov": {"bool": has_functions(function)},
            "type": {"string": "vf" if (function / "physfn").exists() else "gpu"},
            "pciId": {"string": identity},
            "pciAddress": {"string": function.name},
            "health": {"string": "Healthy"},
            **place(function),
        }
        attributes["pciRoot"] = {"string": attributes[f"{STANDARD}/pcieRoot"]["string"].split(":")[1]}
        name = f"{function.name.replace(':', '-').replace('.', '-')}-{identity}"
        devices[name] = attributes, {"memory": 0, "millicores": 1000}
    return devices


def has_functions(function):
    total, autoprobe = function / "sriov_totalvfs", function / "sriov_drivers_autoprobe"
    return said(total) not in ("", "0") and said(autoprobe) not in ("", "0")


# --- NVIDIA


def nvidia(root):
    """By name; a GPU in MIG mode is not among them."""
    answer = json.loads((root / NVML_ANSWER).read_text())["facts"]
    of_all = {
        "driverVersion": {"version": coerced(answer["driver_version"])},
        "cudaDriverVersion": {"version": coerced(answer["cuda_version"])},
    }
    devices = {}
    for gpu in answer["gpus"]:
        function = root / "sys/bus/pci/devices" / gpu["pci_address"]
        node = int(said(function / "numa_node"))
        common = {
            "productName": {"string": gpu["model"]},
            "brand": {"string": gpu["brand"]},
            "architecture": {"string": gpu["architecture"]},
            "cudaComputeCapability": {"version": "{}.{}.0".format(*gpu["compute_capability"])},
            **of_all,
            **place(function),
            **({f"{STANDARD}/numaNode": {"int": node}} if node >= 0 else {}),
            **({"addressingMode": {"string": gpu["addressing_mode"]}} if gpu.get("addressing_mode") else {}),
        }
        if gpu["mig_mode"]:
            devices |= dict(of_mig(gpu, common))
            continue
        attributes = {"type": {"string": "gpu"}, "uuid": {"string": gpu["uuid"]}, **common}
        devices[f"gpu-{gpu['minor']}"] = attributes, {"memory": gpu["memory_bytes"]}
    return devices


def of_mig(gpu, common):
    for mig in gpu["mig_devices"]:
        size = round(mig["memory_mebibytes"] / 1024)
        slices = gpu["memory_bytes"] / (1 << 30) / 8
        profile = f"{mig['gpu_slices']}g.{nominal(size, slices)}gb{'+me' * ('me' in mig['profile_suffixes'])}"
        attributes = {
            "type": {"string": "mig"},
            "parentUUID": {"string": gpu["uuid"]},
            "profile": {"string": profile},
            "uuid": {"string": mig["uuid"]},
            **common,
        }
        engines = mig["engines"]
        start, number = mig["placement_start"], mig["placement_size"]
        capacities = {
            "multiprocessors": mig["multiprocessors"],
            "copyEngines": engines["copy"],
            "decoders": engines["decoder"],
            "encoders": engines["encoder"],
            "jpegEngines": engines["jpeg"],
            "ofaEngines": engines["ofa"],
            "memory": mig["memory_mebibytes"] * MEBIBYTE,
            **{f"memorySlice{place}": 1 for place in range(start, start + number)},
        }
        name = profile.replace(".", "").replace("+", "-")
        yield f"gpu-{gpu['minor']}-mig-{name}-{mig['profile_id']}-{start}", (attributes, capacities)


def nominal(gibibytes, slice_gibibytes):
    """The size in a profile's name: whole eighths of the GPU's memory, as go-nvlib rounds them."""
    return round(round(gibibytes / slice_gibibytes) * slice_gibibytes)


def coerced(version):
    """As Masterminds/semver reads a version that is none: three numbers without leading zeros."""
    numbers = [int(part) for part in version.split(".")]
    return ".".join(map(str, [*numbers, 0, 0][:3]))
