"""Keep a device from new pods: it becomes Unhealthy with reason `cordoned`, and pods that hold it keep it.

The cordon outlives restarts of devherd, absences of the device and, in the state directory, a reboot;
`devherd uncordon` ends it.
"""

import argparse

from devherd import instance
from devherd.cli import cordons
from devherd.cli.instance import instance_settings, require_running
from devherd.cli.named_device import device_named, resource_named
from devherd.cli.operator import operator, record
from devherd.errors import ExitCode
from devherd.inventory import key_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument("resource", metavar="RESOURCE", help="resource name: nvidia.com/gpu")
    parser.add_argument("device", metavar="DEVICE", help="device id, as `devherd status` shows it")
    parser.add_argument("--reason", metavar="TEXT", default="", help="why, for readers of `devherd explain`")


def run(arguments: argparse.Namespace) -> int:
    """Cordon it. Raises UnreachableError when no instance runs, UsageError when it has no such device."""
    settings = instance_settings(arguments)
    require_running(settings)
    device = device_named(resource_named(instance.read(settings), arguments.resource), arguments.device)
    with cordons.changing(settings) as changes:
        changes.cordon(key_of(device), arguments.reason, operator())
    why = f": {arguments.reason}" if arguments.reason else ""
    record(settings, "cordon", f"cordoned by {operator()}{why}", arguments.resource, device.id)
    replicas = f" with its {device.replicas} replicas" if device.replicas else ""
    print(f"{arguments.resource} {device.id} is cordoned{replicas}; pods that hold it keep it")
    return ExitCode.DONE
