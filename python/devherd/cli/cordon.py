"""`devherd cordon`, `uncordon`, `forget` and `clear`: operators' decisions about devices."""

import argparse
import contextlib
import errno
import fcntl
import getpass
import os
import sys
import time
from collections.abc import Iterator, Sequence

from devherd import spool
from devherd.cli.instance import instance_settings, require_running, unknown
from devherd.cli.subject import (
    NAMES,
    ONE_DEVICE,
    Known,
    devices_named,
    known_devices,
    lost_subjects,
    offered_device,
    one_device,
    only,
    split,
)
from devherd.errors import ExitCode, UnreachableError, UsageError
from devherd.health.cordon import Changes, Cordons, NotKeptError, clear
from devherd.health.held import Now
from devherd.health.lost import forget_at_rest, order
from devherd.health.verdicts import finding_of
from devherd.history import History, Kind
from devherd.instance.read import read_instance
from devherd.inventory import DeviceKey
from devherd.kubelet.registration import knock
from devherd.proto import health_pb2
from devherd.reasons.registry import MEANINGS, meaning_of
from devherd.settings import Settings
from devherd.text import sharing_of


@contextlib.contextmanager
def changing_cordons(settings: Settings) -> Iterator[Changes]:
    """The cordoned devices, written at the end. Raises UnreachableError if they cannot be read or written.

    Prints a warning if they are in force but will not survive a reboot.
    """
    directory = settings.findings_directory
    try:
        with Cordons(directory, settings.kept_cordons_file).changing() as changes:
            yield changes
    except NotKeptError as error:
        cure = "have the instance run with a --state-dir that can be written"
        print(f"devherd: a boot will undo this — cannot write {error} — {cure}", file=sys.stderr)
    except spool.SpoolError as error:
        cure = f"remove {error.path}, which ends all cordons"
        raise UnreachableError("cannot read the cordons", str(error), cure) from error
    except OSError as error:
        raise unwritable(f"cannot write the cordons below {directory}", error) from error


def unwritable(what: str, error: OSError) -> UnreachableError:
    """The error for a file of the instance that cannot be written: no space is left, or this user may not write it."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return UnreachableError(what, error.strerror or str(error), "make room there" if is_full else "use sudo")


PROCESS = "operator"
"""Name under which commands write events."""


def operator() -> str:
    """The name of the calling user, also under sudo."""
    return os.environ.get("SUDO_USER") or getpass.getuser()


def record(settings: Settings, kind: Kind, what: str, resource_name: str, device_id: str) -> None:
    """Write to the history what a command has done; a failure is ignored."""
    history = History(settings.history_directory, PROCESS)
    history.note(kind, what, resource_name=resource_name, device_id=device_id, details={"operator": operator()})
    directory = settings.history_directory
    with contextlib.suppress(OSError):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (directory / f".{PROCESS}.lock").open("w") as lock:  # not beside the events: those may be removed
            fcntl.flock(lock, fcntl.LOCK_EX)  # commands may run at the same time
            history.keep()


def _add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", metavar=ONE_DEVICE, nargs="+", help=NAMES)


def _known(settings: Settings) -> Known:
    """The devices of the running instance. Raises UnreachableError if none runs."""
    require_running(settings)
    try:
        return known_devices(settings, read_instance(settings), None)
    except OSError as error:
        raise UnreachableError(f"cannot read {error.filename}", error.strerror or str(error), "use sudo") from error


def add_cordon_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    _add_device(parser)
    parser.add_argument("--reason", metavar="TEXT", default="", help="the reason, which `devherd explain` shows")


def run_cordon(arguments: argparse.Namespace) -> int:
    """Keep a device from new pods: it becomes Unhealthy with reason `cordoned`; pods that hold it keep it.

    The cordon survives restarts of devherd, absences of the device and, in the state directory, reboots, until
    `devherd uncordon`.
    """
    settings = instance_settings(arguments)
    found = one_device(_known(settings), arguments.words)
    device_id = found.key[2]
    with changing_cordons(settings) as changes:
        changes.cordon(found.key, arguments.reason, operator())
    why = f": {arguments.reason}" if arguments.reason else ""
    record(settings, "cordon", f"cordoned by {operator()}{why}", found.resource_name, device_id)
    sharing = sharing_of(found.device) if found.device else ""
    with_all = f" with its {sharing}" if sharing else ""
    print(f"{found.resource_name} {device_id} is cordoned{with_all}; pods that hold it keep it")
    return ExitCode.DONE


def add_uncordon_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    _add_device(parser)


def run_uncordon(arguments: argparse.Namespace) -> int:
    """Give a cordoned device back to the kubelet; it stays Unhealthy if it has other findings.

    A device that is gone can be uncordoned, too.
    """
    settings = instance_settings(arguments)
    known = _known(settings)
    with changing_cordons(settings) as changes:
        found = offered_device(known, arguments.words)
        keys = [found.key] if found else _away(known, changes, arguments.words)
        was_cordoned = [changes.uncordon(key) for key in keys]
    resource_name = found.resource_name if found else split(arguments.words)[0]
    device_id = keys[0][2]
    if any(was_cordoned):
        record(settings, "cordon", f"uncordoned by {operator()}", resource_name, device_id)
    outcome = "is no longer cordoned" if any(was_cordoned) else "was not cordoned"
    print(f"{resource_name} {device_id} {outcome}".lstrip())
    return ExitCode.DONE


def _away(known: Known, changes: Changes, words: Sequence[str]) -> list[DeviceKey]:
    """The keys of a cordoned device that is no longer offered; several only if several have this id.

    Raises UsageError without one.
    """
    word = split(words)[1]
    if gone := [key for key in changes.keys if key[2] == word]:
        return gone
    lost = (each for each in lost_subjects(known.herd.lost) if each.key in changes.keys)
    if found := only(devices_named(lost, word), word):
        return [found.key]
    if changes.keys:
        raise unknown("cordoned device", word, [key[2] for key in changes.keys])
    return [one_device(known, words).key]


def add_forget_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument("words", metavar=f"[{ONE_DEVICE}]", nargs="*", help=NAMES)
    parser.add_argument("--all", action="store_true", help="every lost device")


def run_forget(arguments: argparse.Namespace) -> int:
    """Forget a lost device: remove it from status, page and metrics.

    A device is lost if it was offered and scans no longer find it. devherd remembers it, even after a reboot, until
    it returns or this command removes it. While a pod holds it, it stays in the kubelet's list, Unhealthy. The
    command also works without a running instance.
    """
    if bool(arguments.words) == arguments.all:
        raise UsageError("what to forget is not clear", "one device or `--all`", "see `devherd status`")
    settings = instance_settings(arguments)
    is_running = settings.control_socket.exists() and knock(settings.control_socket) is None
    lost = _lost_devices(settings)
    chosen = lost if arguments.all else [_lost_named(lost, arguments.words)]
    try:
        if is_running:
            order(settings.findings_directory, chosen)
        else:
            forget_at_rest(settings.lost_file, settings.kept_lost_file, chosen)
    except OSError as error:
        raise unwritable("cannot forget the device", error) from error
    if is_running and not _are_forgotten(settings, chosen):
        print("devherd: not forgotten yet — the scanner does not answer — devherd ctl status", file=sys.stderr)
        return ExitCode.PROBLEM_FOUND
    for device in chosen:
        if settings.run_dir.is_dir():
            record(settings, "lost", f"forgotten by {operator()}", device.resource_name, device.device)
        print(f"{device.resource_name} {device.device} is forgotten{_held_on(device)}")
    if not chosen:
        print("no device is lost")
    return ExitCode.DONE


def _held_on(device: health_pb2.LostDevice) -> str:
    """What keeps a forgotten device in the kubelet's list; empty if nothing does."""
    if not (device.is_listed and device.pods):
        return ""
    return f"; it stays in the kubelet's list, Unhealthy, until its pod has ended: {', '.join(device.pods)}"


def _lost_devices(settings: Settings) -> list[health_pb2.LostDevice]:
    """The lost devices from the run directory or, if it has no file, for example after a boot, the state directory."""
    try:
        for file in filter(None, (settings.lost_file, settings.kept_lost_file)):
            with contextlib.suppress(FileNotFoundError):
                return list(spool.read(file, health_pb2.Lost).devices)
    except spool.SpoolError as error:
        raise UnreachableError("cannot read which devices are lost", str(error), "use sudo") from error
    return []


def _lost_named(lost: list[health_pb2.LostDevice], words: Sequence[str]) -> health_pb2.LostDevice:
    """The lost device that the words name. Raises UsageError for none, and for several."""
    resource_name, word = split(words)
    subjects = (each for each in lost_subjects(lost) if resource_name in ("", each.resource_name))
    chosen = only(devices_named(subjects, word), word)
    if chosen is None or chosen.lost is None:
        raise unknown("lost device", word, [device.device for device in lost])
    return chosen.lost


FORGET_SECONDS = 10.0
"""Limit for the scanner to forget a device: even a scan of a thousand devices takes less."""


def _are_forgotten(settings: Settings, devices: list[health_pb2.LostDevice]) -> bool:
    """Wait until the scanner has forgotten them; False if it does not."""
    keys = {(one.vendor, one.card, one.device) for one in devices}
    until = time.monotonic() + FORGET_SECONDS
    while time.monotonic() < until:
        lost = spool.read_or_empty(settings.lost_file, health_pb2.Lost).devices
        if not keys & {(one.vendor, one.card, one.device) for one in lost}:
            return True
        time.sleep(0.05)
    return False


def add_clear_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    _add_device(parser)
    parser.add_argument("reason", metavar="REASON", help="reason, as `devherd explain` shows it")


def run_clear(arguments: argparse.Namespace) -> int:
    """Clear a finding that does not end by itself, after you have removed its cause.

    It also clears a finding that devherd cannot check now, for example on a sleeping card, and one about a link that is
    slower than before: its present speed becomes the reference.

    The finding returns if its cause does. Other findings of the device stay.
    """
    settings = instance_settings(arguments)
    device = one_device(_known(settings), arguments.words)
    device_id = device.key[2]
    verdicts = spool.read_or_empty(settings.verdicts_file, health_pb2.Verdicts)
    held = _held_against(verdicts, device.key)
    _check(held, arguments.reason, device_id)
    _write(settings, device.key, arguments.reason, verdicts.boot_id)
    record(settings, "clear", f"{arguments.reason} cleared by {operator()}", device.resource_name, device_id)
    others = sorted({one.reason for one in held} - {arguments.reason})
    still = f"; still held against it: {', '.join(others)}" if others else ""
    print(f"{device.resource_name} {device_id}: {arguments.reason} is cleared{still}")
    return ExitCode.DONE


def _held_against(verdicts: health_pb2.Verdicts, key: DeviceKey) -> list[health_pb2.Held]:
    of_device = (one.held for one in verdicts.verdicts if (one.vendor, one.card, one.device) == key)
    return [one for held in of_device for one in held if (one.source, one.reason) in MEANINGS and not one.is_over]


def _check(held: list[health_pb2.Held], reason: str, device_id: str) -> None:
    """Raises UsageError for a reason without a finding, and for a finding that is still seen."""
    meant = [one for one in held if one.reason == reason]
    if not meant:
        raise unknown(f"reason against {device_id}", reason, sorted({one.reason for one in held}))
    if all(_is_seen(one) for one in meant):
        cure = "remove the cause, or give it another action in `health.rules`"
        raise UsageError(f"`{reason}` cannot be cleared", "it lasts as long as its cause, and ends by itself", cure)


def _is_seen(held: health_pb2.Held) -> bool:
    """Whether the finding lasts only while it is seen, is not held longer for flapping, and its source can look.

    False also if it is worse than it was: an operator may say that it is right now.
    """
    meaning = meaning_of(finding_of(held))
    return not (meaning.is_event or meaning.is_relative or held.damped_seconds or held.is_unseen)


def _write(settings: Settings, key: DeviceKey, reason: str, boot_id: str) -> None:
    directory = settings.findings_directory
    try:
        clear(directory, key, reason, Now(time.time(), time.monotonic(), boot_id))
    except OSError as error:
        raise unwritable(f"cannot write below {directory}", error) from error
