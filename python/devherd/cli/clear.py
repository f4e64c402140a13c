"""Take back what is held against a device and does not end by itself: the cause is mended, and an operator says so.

Also what stands where nobody can look: on a card that is asleep.

Only what happened before counts: if it happens again, it is held again. What else is held against the device stays.
"""

import argparse
import time

from devherd import instance, spool
from devherd.cli.instance import instance_settings, require_running
from devherd.cli.named_device import device_named, resource_named, unknown
from devherd.cli.operator import operator, record
from devherd.errors import ExitCode, UnreachableError, UsageError
from devherd.health.clears import Level
from devherd.health.registry import MEANINGS, meaning_of
from devherd.health.seen import Now
from devherd.health.sources.clear import clear
from devherd.health.verdicts_file import finding_of
from devherd.inventory import DeviceKey, key_of
from devherd.proto import health_pb2
from devherd.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument("resource", metavar="RESOURCE", help="resource name: nvidia.com/gpu")
    parser.add_argument("device", metavar="DEVICE", help="device id, as `devherd status` shows it")
    parser.add_argument("reason", metavar="REASON", help="reason, as `devherd explain` shows it")


def run(arguments: argparse.Namespace) -> int:
    """Clear it. Raises UnreachableError when no instance runs, UsageError where there is no such thing to clear."""
    settings = instance_settings(arguments)
    require_running(settings)
    device = device_named(resource_named(instance.read(settings), arguments.resource), arguments.device)
    verdicts = spool.read_or_empty(settings.verdicts_file, health_pb2.Verdicts)
    held = _held_against(verdicts, key_of(device))
    _check(held, arguments.reason, arguments.device)
    _write(settings, key_of(device), arguments.reason, verdicts.boot_id)
    record(settings, "clear", f"{arguments.reason} cleared by {operator()}", arguments.resource, device.id)
    others = sorted({one.reason for one in held} - {arguments.reason})
    still = f"; still held against it: {', '.join(others)}" if others else ""
    print(f"{arguments.resource} {device.id}: {arguments.reason} is taken back{still}")
    return ExitCode.DONE


def _held_against(verdicts: health_pb2.Verdicts, key: DeviceKey) -> list[health_pb2.Held]:
    of_device = (one.held for one in verdicts.verdicts if (one.vendor, one.card, one.device) == key)
    return [one for held in of_device for one in held if (one.source, one.reason) in MEANINGS and not one.is_over]


def _check(held: list[health_pb2.Held], reason: str, device_id: str) -> None:
    """Raises UsageError for what is not held, and for what is seen all the time."""
    meant = [one for one in held if one.reason == reason]
    if not meant:
        raise unknown(f"reason against {device_id}", reason, sorted({one.reason for one in held}))
    if all(_is_seen(one) for one in meant):
        cure = "mend the cause, or give it another action in `health.rules`"
        raise UsageError(f"`{reason}` cannot be taken back", "it stands while it is seen, and ends by itself", cure)


def _is_seen(held: health_pb2.Held) -> bool:
    """Whether it stands while it is seen, is not held for longer than that, and its source can look."""
    is_level = isinstance(meaning_of(finding_of(held)).clears, Level)
    return is_level and not (held.damped_seconds or held.is_unseen)


def _write(settings: Settings, key: DeviceKey, reason: str, boot_id: str) -> None:
    directory = settings.findings_directory
    try:
        clear(directory, key, reason, Now(time.time(), time.monotonic(), boot_id))
    except OSError as error:
        why = error.strerror or str(error)
        raise UnreachableError(f"cannot write below {directory}", why, "use sudo") from error
