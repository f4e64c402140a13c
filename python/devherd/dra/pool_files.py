"""The pools of this node from the scanner's two files: facts from devices.pb, rules, sharing and health from offers.pb.

The scanner writes devices.pb first. While offers.pb names a device that devices.pb does not have, the files are of
different moments, and the earlier pools stay. Which of the devices that are gone are held by claims, the file of those
says.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from devherd import spool
from devherd.config.sections import PreStart
from devherd.dra.objects import is_node_name
from devherd.dra.pools import Pools, Published, pools_of
from devherd.errors import UsageError
from devherd.health.policy import Verdict
from devherd.instance.inventory_json import host_name
from devherd.inventory import DeviceKey, Entry, inventory_of, key_of
from devherd.offers import rules
from devherd.proto import devices_pb2, spool_pb2
from devherd.settings import Settings
from devherd.spool import DRA_FRONT_END, Identity, identity_of


class PoolFiles:
    """The pools of this node, from devices.pb and offers.pb; read again when a file has changed."""

    def __init__(self, settings: Settings) -> None:
        self._devices_file, self._offers_file = settings.devices_file, settings.offers_file
        self._claims_file = settings.prepared_claims_file
        self._devices_seen: Identity | None = None
        self._offers_seen: Identity | None = None
        self._claims_seen: Identity | None = None
        self._held: frozenset[tuple[str, str]] = frozenset()
        """Driver and name of the devices of prepared claims."""
        self._entries: Mapping[DeviceKey, Entry] = {}
        self._offers: list[spool_pb2.Offer] | None = None
        self._content: object = None
        self._by_name: dict[tuple[str, str], Published] = {}
        self.pools: Pools | None = None
        """None until both files are there."""
        self.edits: Mapping[DeviceKey, spool_pb2.Edits] = MappingProxyType({})
        """What a container gets for each offered device; `cdi_devices` are the ids of CDI specs that are there."""

    def look(self) -> bool:
        """Read the files if they have changed; True if the pools, or edits, have.

        A file that is missing or cannot be parsed leaves all as it was. Raises OSError without a descriptor.
        """
        seen = identity_of(self._devices_file), identity_of(self._offers_file)
        claims_have_changed = self._read_claims()
        if seen == (self._devices_seen, self._offers_seen) and not claims_have_changed:
            return False
        try:
            self._read(*seen)
        except (FileNotFoundError, spool.SpoolError):
            return False
        if self._devices_seen is None or self._offers is None:
            return False
        found = offers_from(self._entries, self._offers)
        if found is None:
            return False
        return self._use(*found)

    def device(self, driver: str, name: str) -> Published | None:
        """The device of this name in the driver's pool; None if it is not published."""
        return self._by_name.get((driver, name))

    def _read(self, devices: Identity | None, offers: Identity | None) -> None:
        """Read what is new. Raises FileNotFoundError, SpoolError and OSError as `spool.read`."""
        if devices != self._devices_seen:
            message = spool.read(self._devices_file, devices_pb2.Inventory)
            self._entries, self._devices_seen = inventory_of(message).entries, devices
        if offers != self._offers_seen:
            self._offers = spool.read(self._offers_file, spool_pb2.Offers).offers[:]
            self._offers_seen = offers

    def _read_claims(self) -> bool:
        """Read the file of claims if it has changed; True if that matters: only for devices that are gone."""
        seen = identity_of(self._claims_file)
        if seen == self._claims_seen:
            return False
        try:
            prepared = spool.read(self._claims_file, spool_pb2.PreparedClaims)
        except FileNotFoundError:
            prepared = spool_pb2.PreparedClaims()
        except spool.SpoolError:
            return False
        before, self._claims_seen = self._held, seen
        self._held = frozenset((claim.driver, each.device) for claim in prepared.claims for each in claim.devices)
        return before != self._held and any(entry.gone_since is not None for entry in self._entries.values())

    def _use(self, offers: rules.Offers, verdicts: Mapping[DeviceKey, Verdict]) -> bool:
        pools = pools_of(offers, verdicts, self._held)
        edits = {key_of(device): device.edits for offer in self._offers or () for device in offer.devices}
        content = _content(pools), edits
        if content == self._content:
            return False
        self._content, self.pools, self.edits = content, pools, edits
        self._by_name = {(driver, one.name): one for driver, devices in pools.devices.items() for one in devices}
        return True


def offers_from(
    entries: Mapping[DeviceKey, Entry], offers: Iterable[spool_pb2.Offer]
) -> tuple[rules.Offers, dict[DeviceKey, Verdict]] | None:
    """What the rules decided and the verdicts, from the offers of DRA; None if a device of theirs is not in `entries`.

    What must hold before a start is left out: DRA asks nothing. Pure.
    """
    found = rules.Offers()
    verdicts: dict[DeviceKey, Verdict] = {}
    for offer in offers:
        if offer.front_end != DRA_FRONT_END:
            continue
        made = rules.Offer(
            offer.name, offer.vendor, fail_requests_greater_than_one=offer.fail_requests_greater_than_one
        )
        for device in offer.devices:
            key = key_of(device)
            if key not in entries:
                return None
            made.devices.append(
                rules.Offered(entries[key], device.replicas, PreStart(), device.rule, by_mps=device.by_mps)
            )
            found.rules[key] = device.rule
            if device.reasons or device.warnings:
                verdicts[key] = Verdict(tuple(device.reasons), tuple(device.warnings))
        found.offers.append(made)
    return found, verdicts


def _content(pools: Pools) -> Any:
    """What readers use of the pools, for comparison: a device's type has functions, which are equal to no others."""
    devices = {
        driver: [(one.name, one.key, one.attributes, one.capacities, one.taints, one.subject) for one in published]
        for driver, published in pools.devices.items()
    }
    return devices, pools.withheld, pools.notices


def node_name() -> str:
    """The name under which the kubelet registers, which its pools have, too: `NODE_NAME`, or the host's, in lower case.

    Raises UsageError if that is no name of a node.
    """
    name = host_name().strip().lower()
    if not is_node_name(name):
        raise UsageError(f"`{name}` is no name of a node", "it is no DNS name", "set NODE_NAME to the node's name")
    return name
