"""`<run-dir>/devices.pb`: the inventory as a file, so that it outlives a restart of the scanner."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from devherd import spool
from devherd._native import Device, Fact, HostPath, Platform
from devherd.inventory import Entry, Inventory
from devherd.proto import devices_pb2

if TYPE_CHECKING:
    from google.protobuf.internal.containers import MessageMap


class DevicesFile:
    """Its one writer, and reader at start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: int | None = None

    def read(self) -> Inventory:
        """What an earlier scanner wrote; empty if nothing can be read."""
        try:
            message = spool.read(self._path, devices_pb2.Inventory)
        except (FileNotFoundError, spool.SpoolError):
            return Inventory()
        return inventory_of(message)

    def write(self, inventory: Inventory) -> None:
        """Bring the file up to date with the inventory. Raises OSError."""
        if self._written != inventory.version:
            spool.write(self._path, message_of(inventory))
            self._written = inventory.version


def message_of(inventory: Inventory) -> devices_pb2.Inventory:
    """The whole inventory as a message."""
    message = devices_pb2.Inventory()
    for entry in inventory.entries.values():
        known = message.devices.add(resource_name=entry.resource_name, gone_since_seconds=entry.gone_since)
        _fill_device(known.device, entry.device)
    for vendor, platform in inventory.platforms.items():
        _fill_facts(message.platforms[vendor].attributes, platform.facts)
        message.platforms[vendor].paths.extend(map(_path_message, platform.paths))
    message.vendor_options.update(inventory.vendor_options)
    return message


def inventory_of(message: devices_pb2.Inventory) -> Inventory:
    """The inventory in a message."""
    inventory = Inventory(_entry_of(known) for known in message.devices)
    for vendor, platform in message.platforms.items():
        inventory.platforms[vendor] = Platform(
            facts=_facts_of(platform.attributes), paths=list(map(_path_of, platform.paths))
        )
    inventory.vendor_options.update(message.vendor_options)
    return inventory


def _entry_of(known: devices_pb2.KnownDevice) -> Entry:
    device = known.device
    return Entry(
        Device(
            vendor=device.vendor,
            card=device.card,
            id=device.id,
            resource_name=device.resource_name or None,
            first_sight_resource_name=device.first_sight_resource_name or None,
            numa_nodes=device.numa_nodes,
            numa_source=device.numa_source,
            paths=list(map(_path_of, device.paths)),
            facts=_facts_of(device.attributes),
            distances=dict(device.distances),
        ),
        known.resource_name,
        gone_since=known.gone_since_seconds if known.HasField("gone_since_seconds") else None,
    )


def _fill_device(message: devices_pb2.Device, device: Device) -> None:
    message.vendor = device.vendor
    message.card = device.card
    message.id = device.id
    message.resource_name = device.resource_name or ""
    message.first_sight_resource_name = device.first_sight_resource_name or ""
    message.numa_nodes.extend(device.numa_nodes)
    message.numa_source = device.numa_source
    message.paths.extend(map(_path_message, device.paths))
    _fill_facts(message.attributes, device.facts)
    message.distances.update(device.distances)


def _fill_facts(attributes: "MessageMap[str, devices_pb2.Fact]", facts: Mapping[str, Fact]) -> None:
    for name, fact in facts.items():
        message = attributes[name]
        message.source = fact.source
        if fact.kind == "integer":
            message.integer = int(fact.text)
        elif fact.kind == "version":
            message.version = fact.text
        else:
            message.text = fact.text


def _facts_of(attributes: "MessageMap[str, devices_pb2.Fact]") -> dict[str, Fact]:
    facts = {}
    for name, message in attributes.items():
        kind = message.WhichOneof("value") or "text"
        facts[name] = Fact(kind, str(getattr(message, kind)), message.source)
    return facts


def _path_message(path: HostPath) -> devices_pb2.HostPath:
    message = devices_pb2.HostPath(
        path=path.path, role=path.role, is_node=path.is_node, is_required=path.is_required, target=path.target
    )
    if path.number is not None:
        message.number.major, message.number.minor = path.number
    if path.access is not None:
        message.access.group, message.access.mode = path.access
    return message


def _path_of(message: devices_pb2.HostPath) -> HostPath:
    number = (message.number.major, message.number.minor) if message.HasField("number") else None
    access = (message.access.group, message.access.mode) if message.HasField("access") else None
    return HostPath(message.path, message.role, message.is_node, number, message.is_required, message.target, access)
