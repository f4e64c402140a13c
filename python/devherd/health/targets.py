"""What a source names becomes devices: the one place where that is done."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from devherd.inventory import DeviceKey, Entry
from devherd.proto import health_pb2


def targets(at: health_pb2.Target, entries: Iterable[Entry]) -> list[DeviceKey]:
    """The devices for which every part holds that a target gives; none for a target that gives no part.

    An instance of a GPU is no part by itself: it leaves out partitions of other instances.
    """
    if not (at.vendor or at.card or at.device or at.pci_address or at.uuid):
        return []
    return [entry.key for entry in entries if _is_target(at, entry)]


class Named:
    """Devices by what sources name most: a thousand findings are not each compared with a thousand devices."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._all = list(entries)
        self._by_part: dict[tuple[str, str], list[Entry]] | None = None

    @property
    def keys(self) -> list[DeviceKey]:
        """All of them."""
        return [entry.key for entry in self._all]

    def targets(self, at: health_pb2.Target) -> list[DeviceKey]:
        """As the function of this name."""
        if self._by_part is None:  # for the first: most sources have nothing to say
            self._by_part = defaultdict(list)
            for entry in self._all:
                for part in _parts_of(entry):
                    self._by_part[part].append(entry)
        wanted = [("device", at.device), ("pci_address", at.pci_address), ("uuid", at.uuid), ("card", at.card)]
        narrowest = next((part for part in wanted if part[1]), ("vendor", at.vendor))
        return targets(at, self._by_part.get(narrowest, ()))


def _parts_of(entry: Entry) -> Iterator[tuple[str, str]]:
    device = entry.device
    yield from (
        ("vendor", device.vendor),
        ("device", device.id),
        ("card", device.card),
        ("uuid", device.attributes.get("uuid", "")),
    )
    for address in device.attributes.get("pci_address", "").split(","):
        yield from {("pci_address", address), ("pci_address", address.rpartition(".")[0])}


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
