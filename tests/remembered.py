"""What a scanner that is started again knows of what an earlier one left."""

from pathlib import Path

from devherd.health.policy import Earlier
from devherd.health.verdicts import earlier_in
from devherd.health.verdicts import message_of as verdicts_of
from devherd.inventory import DevicesFile, Inventory, inventory_of
from devherd.proto import devices_pb2, health_pb2
from devherd.scanner.observer import Observer


def remembered(before: Observer) -> Inventory:
    """The inventory as read back from the bytes of its file."""
    return inventory_of(message_of(before.inventory))


def message_of(inventory: Inventory) -> devices_pb2.Inventory:
    """The content of the file of an inventory of which nothing has been written before."""
    return devices_pb2.Inventory.FromString(DevicesFile(Path("not written"))._content(inventory))


def earlier(before: Observer) -> Earlier:
    """What is held against devices, by way of the bytes of its file."""
    content = verdicts_of(before.policy, before.now()).SerializeToString()
    return earlier_in(health_pb2.Verdicts.FromString(content))
