"""What a source names becomes devices: the one place where that is done."""

from collections.abc import Iterable, Mapping

from devherd.inventory import DeviceKey, Entry
from devherd.proto import health_pb2


def targets(at: health_pb2.Target, entries: Iterable[Entry]) -> list[DeviceKey]:
    """The devices for which every part holds that a target gives; none for a target that gives no part.

    An instance of a GPU is no part by itself: it leaves out partitions of other instances.
    """
    if not (at.vendor or at.card or at.device or at.pci_address or at.uuid):
        return []
    return [entry.key for entry in entries if _is_target(at, entry)]


def _is_target(at: health_pb2.Target, entry: Entry) -> bool:
    device = entry.device
    return (
        at.vendor in {"", device.vendor}
        and at.card in {"", device.card}
        and at.device in {"", device.id}
        and (not at.uuid or at.uuid == device.attributes.get("uuid"))
        and _is_part(at, device.attributes)
        and (not at.partition or at.partition == device.attributes.get("partition"))
        and (not at.pci_address or _is_at(at.pci_address, device.attributes.get("pci_address", "")))
    )


def _is_part(at: health_pb2.Target, attributes: Mapping[str, str]) -> bool:
    """Whether a device is, or has, the instance of a GPU that is wanted: what is no partition has every one."""
    return at.gpu_instance in {"", attributes.get("gpu_instance", at.gpu_instance)} and at.compute_instance in {
        "",
        attributes.get("compute_instance", at.compute_instance),
    }


def _is_at(wanted: str, addresses: str) -> bool:
    """Whether one of a device's functions, with commas between, is the wanted one, or of the wanted PCI device."""
    known = addresses.split(",")
    return any(address == wanted or address.rpartition(".")[0] == wanted for address in known)
