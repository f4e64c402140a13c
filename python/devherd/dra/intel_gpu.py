"""Intel's GPUs and virtual functions as `gpu.intel.com` publishes them.

Version: intel-resource-drivers-for-kubernetes at 1da939fa.
https://github.com/intel/intel-resource-drivers-for-kubernetes/blob/1da939faa33a90dd641d0327cdcdcbbfaa1acdb4/cmd/kubelet-gpu-plugin/node_state.go
(`GetResources`), pkg/gpu/device/device.go there (`SetModelInfo`, `Health`) and pkg/gpu/discovery/.

The driver has words for what it does not know, and so has this table: `Unknown` for a model that is not in its list,
memory 0 where the kernel driver does not tell. `health` is of devherd's verdicts, without an operator's cordon.
"""

from devherd.dra.tables import BUS_ID, ROOT, Attribute, Capacity, DeviceType, Publishable, constant, flag, text
from devherd.dra.values import label

DRIVER = "gpu.intel.com"

_MEBIBYTE = 1 << 20
_UNKNOWN = "Unknown"


def _label(subject: Publishable) -> str | None:
    """`0000-04-00-0-0xe211`: PCI address and device id."""
    address, model = subject.text("pci_address"), subject.text("device_id")
    return None if address is None or model is None else f"{label(address)}-{model}"


def _bus(subject: Publishable) -> str | None:
    """The root complex without its domain: `00` of `pci0000:00`."""
    _, colon, bus = (subject.text("pcie_root") or "").partition(":")
    return bus if colon else None


def _memory(subject: Publishable) -> int:
    return (subject.number("memory_bytes") or 0) // _MEBIBYTE * _MEBIBYTE


def _type(name: str) -> DeviceType:
    return DeviceType(
        DRIVER,
        name,
        _label,
        (
            text("model", "model", otherwise=_UNKNOWN),
            text("family", "family", otherwise=_UNKNOWN),
            text("driver", "driver"),
            flag("sriov", "sriov"),
            constant("type", name),
            text("pciId", "device_id"),
            text("pciAddress", "pci_address"),
            Attribute("pciRoot", "string", _bus, ("pcie_root",), is_needed=False),
            Attribute("health", "string", lambda subject: "Unhealthy" if subject.is_ill else "Healthy"),
            ROOT,
            BUS_ID,
        ),
        (
            Capacity("memory", _memory, ("memory_bytes",)),
            Capacity("millicores", lambda _: 1000, is_binary=False),
        ),
        ("pci_address", "device_id"),
        told_by=(("driver",),),
        is_in_names=False,
    )


GPU = _type("gpu")
FUNCTION = _type("vf")


def type_of(subject: Publishable) -> DeviceType:
    """The type."""
    return FUNCTION if "physfn" in subject.facts else GPU
