"""The devices that a reader selects by the query of the page's URL."""

from dataclasses import dataclass
from urllib.parse import parse_qs, urlencode

from devherd.inventory import Allocations, Holder
from devherd.proto import spool_pb2

LONGEST_FILTER = 200
"""Limit in characters; longer filters are truncated."""


@dataclass(frozen=True, slots=True)
class View:
    """A selection of devices: of one resource or of all, by a filter, from position `start` on."""

    filter: str = ""
    resource: str = ""
    start: int = 0
    skip: int = 0
    """Number of resources that are skipped."""

    @classmethod
    def of_query(cls, query: str) -> "View":
        """Parse `filter`, `resource`, `from` and `skip`; other parameters and invalid numbers are ignored."""
        asked = {name: values[-1] for name, values in parse_qs(query).items()}
        return cls(
            filter=" ".join(asked.get("filter", "")[:LONGEST_FILTER].split()),
            resource=asked.get("resource", ""),
            start=_number(asked.get("from", "")),
            skip=_number(asked.get("skip", "")),
        )

    @property
    def query(self) -> str:
        """The query of the view's URL, with its question mark."""
        asked = {
            "filter": self.filter,
            "resource": self.resource,
            "from": str(self.start or ""),
            "skip": str(self.skip or ""),
        }
        return f"?{urlencode({name: value for name, value in asked.items() if value}, safe='/:')}"

    @property
    def is_narrowed(self) -> bool:
        """True if a filter or a resource limits the devices."""
        return bool(self.filter or self.resource)

    def shows(self, resource: spool_pb2.Offer) -> bool:
        """True if the view includes this resource."""
        return not self.resource or resource.name == self.resource


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


Holding = tuple[str, list[Holder]]
"""An id of a device and its holders."""


class Filter:
    """Words that must all occur in the texts of a device; words such as `free` select by its state instead."""

    def __init__(self, text: str) -> None:
        self._words = text.lower().split()

    @property
    def lets_all_through(self) -> bool:
        """True if the filter has no words."""
        return not self._words

    def lets_through(self, resource: spool_pb2.Offer, device: spool_pb2.Device, holdings: list[Holding] | None) -> bool:
        """True if the device matches. `holdings` are its allocated ids; None if unknown."""
        if not self._words:
            return True
        states = _states(device, holdings)
        text = "\n".join(_texts(resource, device, holdings or [])).lower()
        return all(states[word] if word in states else word.partition("::")[0] in text for word in self._words)


def holdings_of(device_ids: list[str], resource_name: str, allocations: Allocations | None) -> list[Holding] | None:
    """The allocated ids of a device with their holders; None if allocations are unknown."""
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
        "free": holdings == [] and not device.reasons,
    }


def _texts(resource: spool_pb2.Offer, device: spool_pb2.Device, holdings: list[Holding]) -> list[str]:
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
