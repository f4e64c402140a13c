"""Show what the running instance knows of a device, a resource or a pod; without a word, of all that is not well.

A device is named by its id or the beginning of it, the id of a replica, its PCI
address, slot, index, serial number, UUID or path, also after its resource; a pod as
NAMESPACE/NAME; a problem or note of the last scan by its PCI address or path.
For each finding against a device: the source, the file and the value that were
read, since when, how often, what ends it, and why it still stands. For a pod:
its devices, why it has none, and what happened to them while it held them.
Without a word, the worst comes first.

It exits with 1 if it shows something that is wrong now: a device that is lost or
Unhealthy, other than by a cordon, a resource that is not registered, a pod that
lacks a device, or a problem of the last scan.
"""

import argparse
import json
from collections.abc import Iterator, Sequence

from devherd import history
from devherd.cli import explain_device, explain_pod, explain_resource
from devherd.cli.events import event_json
from devherd.cli.instance import instance_settings, pods_of, require_running
from devherd.cli.subject import (
    Known,
    devices_named,
    known_devices,
    lost_subjects,
    normal_address,
    not_offered,
    split,
    unknown_word,
)
from devherd.errors import ExitCode, UnreachableError
from devherd.history import HistoryEvent
from devherd.instance import lost_devices
from devherd.instance.inventory_json import Json, is_ill
from devherd.instance.read import read_instance
from devherd.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument(
        "words",
        metavar="ANYTHING",
        nargs="*",
        help="a resource; a device by id, address, slot, index, serial, UUID, path; NAMESPACE/POD; or RESOURCE DEVICE",
    )
    parser.add_argument("--output", choices=("text", "json"), default="text", help="default: text")


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation. Raises UnreachableError if no instance runs, UsageError if it knows no such thing."""
    settings = instance_settings(arguments)
    require_running(settings)
    try:
        explanation, code = _explanation(settings, arguments.words)
    except OSError as error:
        raise UnreachableError(f"cannot read {error.filename}", error.strerror or str(error), "use sudo") from error
    if arguments.output == "json":
        print(json.dumps(explanation, indent=2))
    else:
        from devherd.cli.tables import plain

        print("\n".join(plain(line) for line in _lines(explanation)))
    return code


def _explanation(settings: Settings, words: Sequence[str]) -> tuple[Json, ExitCode]:
    """What is known of the words, and the exit code. Raises UsageError, UnreachableError, OSError."""
    from devherd.kubelet.pod_resources import parse

    herd, pods = read_instance(settings), pods_of(settings)
    known = known_devices(settings, herd, herd.known_holders(None if pods is None else parse(pods)))
    events = history.events(settings.run_dir)
    if not words:
        return explain_resource.of_everything(known)
    resource_name, word = split(words)
    offer = next((each for each in herd.resources if each.name == (resource_name or word)), None)
    if offer is not None and not resource_name:
        return explain_resource.of_resource(known, offer)
    subjects = [each for each in known.subjects if not resource_name or each.resource_name == resource_name]
    found = devices_named(subjects, word)
    if found:
        shown = [explain_device.of_device(known, subject, events) for subject in found]
        explanation = shown[0] if len(shown) == 1 else {"kind": "devices", "devices": shown}
        return explanation, _code(is_problem=any(each.device and is_ill(each.device) for each in found))
    if lost := _lost(known, events, resource_name, word):
        return lost
    if resource_name:
        raise not_offered(known, words)
    if told := _of_the_scan(known, word):
        return told
    if explain_pod.is_name(word):
        return explain_pod.of_pod(settings, known, pods, events, word)
    raise unknown_word(known, word)


def _code(*, is_problem: bool) -> ExitCode:
    return ExitCode.PROBLEM_FOUND if is_problem else ExitCode.DONE


def _lost(known: Known, events: Sequence[HistoryEvent], resource_name: str, word: str) -> tuple[Json, ExitCode] | None:
    """The lost devices that a word names, or those of a resource that has no others; None without any."""
    subjects = [each for each in lost_subjects(known.herd.lost) if resource_name in ("", each.resource_name)]
    named = [each.lost for each in devices_named(subjects, word) if each.lost]
    found = named or [device for device in known.herd.lost if device.resource_name == word]
    devices = lost_devices.lost_json(found)
    for device in devices:
        device["held_before"] = None if device["last_held_by"] else _held_before(events, device)
    explanation = {"kind": "lost", "devices": devices}
    return (explanation, ExitCode.PROBLEM_FOUND) if found else None


def _held_before(events: Sequence[HistoryEvent], device: Json) -> Json | None:
    """The last pod that was seen with a lost device that no pod held when it was lost, and when it was seen."""
    seen = [
        event
        for event in events
        if event.kind == "allocation" and event.resource_name == device["resource"] and history.pod_of(event)
        if any(each.partition("::")[0] == device["device"] for each in history.devices_of(event))
    ]
    return {"pod": history.pod_of(seen[-1]), "time": event_json(seen[-1])["time"]} if seen else None


def _of_the_scan(known: Known, word: str) -> tuple[Json, ExitCode] | None:
    """The problems and notes of the last scan about a function or path that is no device; None without any."""
    scan = known.herd.scan
    if scan is None:
        return None
    address = normal_address(word)
    found = [
        {
            "vendor": one.vendor,
            "device": one.device or None,
            "path": one.path,
            "error": one.error,
            "is_problem": is_problem,
        }
        for is_problem, listed in ((True, scan.problems), (False, scan.notices))
        for one in listed
        if word in (one.device, one.path) or address in (one.device, one.device.rpartition(".")[0])
    ]
    explanation = {"kind": "problems", "problems": found}
    return (explanation, _code(is_problem=any(one["is_problem"] for one in found))) if found else None


def _lines(explanation: Json) -> Iterator[str]:
    """An explanation as text."""
    if explanation["kind"] == "pod":
        yield from explain_pod.lines(explanation)
    elif explanation["kind"] == "resource":
        yield from explain_resource.lines_of_resource(explanation)
    elif explanation["kind"] == "lost":
        for number, device in enumerate(explanation["devices"]):
            yield from ("",) * bool(number)
            yield from lost_devices.explanation(device)
    elif explanation["kind"] == "problems":
        for problem in explanation["problems"]:
            yield f"{problem['device'] or problem['path']}: {problem['error']}"
            yield f"  vendor:      {problem['vendor']}"
            yield f"  where:       {problem['path']}"
    elif explanation["kind"] == "node":
        yield from explain_resource.lines_of_everything(explanation)
    else:
        for number, device in enumerate(explanation.get("devices", [explanation])):
            yield from ("",) * bool(number)
            yield from explain_device.lines(device)
