"""What a reader wants to see of the devices: the query of the page's address."""

from dataclasses import dataclass
from urllib.parse import parse_qs, urlencode

from devherd.instance import Allocations, Holder
from devherd.proto import spool_pb2

LONGEST_FILTER = 200
"""Characters. What is longer is cut."""


@dataclass(frozen=True, slots=True)
class View:
    """The devices of one resource, or of all; those that a filter lets through; from which one on."""

    filter: str = ""
    resource: str = ""
    start: int = 0
    skip: int = 0
    """Resources that are left out before the first."""

    @classmethod
    def of_query(cls, query: str) -> "View":
        """`filter`, `resource`, `from` and `skip`; everything else is ignored, and so is what makes no sense."""
        asked = {name: values[-1] for name, values in parse_qs(query).items()}
        return cls(
            filter=" ".join(asked.get("filter", "")[:LONGEST_FILTER].split()),
            resource=asked.get("resource", ""),
            start=_number(asked.get("from", "")),
            skip=_number(asked.get("skip", "")),
        )

    @property
    def query(self) -> str:
        """As it stands in an address, with its question mark."""
        asked = {
            "filter": self.filter,
            "resource": self.resource,
            "from": str(self.start or ""),
            "skip": str(self.skip or ""),
        }
        return f"?{urlencode({name: value for name, value in asked.items() if value}, safe='/:')}"

    @property
    def is_narrowed(self) -> bool:
        """Whether there may be devices that it does not show."""
        return bool(self.filter or self.resource)

    def shows(self, resource: spool_pb2.Resource) -> bool:
        """Whether devices of this resource may be shown."""
        return not self.resource or resource.name == self.resource


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


Holding = tuple[str, list[Holder]]
"""An id of a device, and who holds it."""


class Filter:
    """Words, all of which must be found in what is known of a device; some words ask for its state."""

    def __init__(self, text: str) -> None:
        self._words = text.lower().split()

    @property
    def lets_all_through(self) -> bool:
        """Whether it has no words."""
        return not self._words

    def lets_through(
        self, resource: spool_pb2.Resource, device: spool_pb2.Device, holdings: list[Holding] | None
    ) -> bool:
        """`holdings` are those of the device's ids that are held; None while that is unknown."""
        if not self._words:
            return True
        states = _states(device, holdings)
        text = "\n".join(_texts(resource, device, holdings or [])).lower()
        return all(states[word] if word in states else word.partition("::")[0] in text for word in self._words)


def holdings_of(device_ids: list[str], resource_name: str, allocations: Allocations | None) -> list[Holding] | None:
    """Of a device, by its ids; None while they are unknown."""
    if allocations is None:
        return None
    found = ((device_id, allocations.get((resource_name, device_id))) for device_id in device_ids)
    return [(device_id, holders) for device_id, holders in found if holders]


def _states(device: spool_pb2.Device, holdings: list[Holding] | None) -> dict[str, bool]:
    return {
        "healthy": not device.reasons,
        "unhealthy": bool(device.reasons),
        "warning": bool(device.warnings),
        "allocated": bool(holdings),
        "free": holdings == [],
    }


def _texts(resource: spool_pb2.Resource, device: spool_pb2.Device, holdings: list[Holding]) -> list[str]:
    return [
        resource.name,
        device.id,
        device.card,
        *device.reasons,
        *device.warnings,
        *device.attributes.values(),
        *(node.host_path for node in device.edits.nodes),
        *(f"{holder['namespace']}/{holder['pod']}/{holder['container']}" for _, held in holdings for holder in held),
    ]
