"""Give a cordoned device back to the kubelet, unless something else is held against it.

Also a device that is gone: it can be named by its id for as long as it is cordoned.
"""

import argparse

from devherd import instance
from devherd.cli import cordons
from devherd.cli.instance import instance_settings, require_running
from devherd.cli.named_device import device_named, resource_named, unknown
from devherd.cli.operator import operator, record
from devherd.errors import ExitCode, UsageError
from devherd.health.sources.cordon import Changes
from devherd.instance import Herd
from devherd.inventory import DeviceKey, key_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument("resource", metavar="RESOURCE", help="resource name: nvidia.com/gpu")
    parser.add_argument("device", metavar="DEVICE", help="device id, as `devherd status` shows it")


def run(arguments: argparse.Namespace) -> int:
    """Uncordon it. Raises UnreachableError when no instance runs, UsageError when it knows no such device."""
    settings = instance_settings(arguments)
    require_running(settings)
    herd = instance.read(settings)
    with cordons.changing(settings) as changes:
        was_cordoned = [changes.uncordon(key) for key in _keys(herd, changes, arguments.resource, arguments.device)]
    if any(was_cordoned):
        record(settings, "cordon", f"uncordoned by {operator()}", arguments.resource, arguments.device)
    said = "is no longer cordoned" if any(was_cordoned) else "was not cordoned"
    print(f"{arguments.resource} {arguments.device} {said}")
    return ExitCode.DONE


def _keys(herd: Herd, changes: Changes, resource_name: str, device_id: str) -> list[DeviceKey]:
    """One, unless several that are cordoned have the id and none of them is offered any more."""
    try:
        return [key_of(device_named(resource_named(herd, resource_name), device_id))]
    except UsageError as error:
        gone = [key for key in changes.keys if key[2] == device_id]
        if gone:
            return gone
        if changes.keys:
            raise unknown("cordoned device", device_id, [key[2] for key in changes.keys]) from error
        raise
