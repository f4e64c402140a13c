"""Show what the running instance knows of a device, a resource or a pod; without a word, of all that is not well.

A device is named by its id or the beginning of it, the id of a replica, its PCI address, slot, serial number or path; a
pod as NAMESPACE/NAME; a problem or note of the last scan by its PCI address or path. For each finding against a device:
the source, the file and the value that were read, since when, how often, what ends it, and why it still stands. For a
pod: its devices, why it has none, and what happened to them while it held them. Without a word, the worst comes first.

It exits with 1 if it shows a problem: a device that is Unhealthy, other than by a cordon, a resource that is not
registered, or a problem of the last scan. With RESOURCE DEVICE it exits with 0.
"""

import argparse
import json
from collections.abc import Iterator, Sequence

from devherd import history
from devherd.cli import explain_device, explain_pod, explain_resource
from devherd.cli.instance import device_named, instance_settings, pods_of, require_running, resource_named
from devherd.cli.subject import Known, devices_named, known_devices, normal_address, unknown_word
from devherd.errors import ExitCode, UnreachableError, UsageError
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
        help="a resource; a device by id, PCI address, slot, serial or path; NAMESPACE/POD; or RESOURCE DEVICE",
    )
    parser.add_argument("--output", choices=("text", "json"), default="text", help="default: text")


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation. Raises UnreachableError if no instance runs, UsageError if it knows no such thing."""
    if len(arguments.words) > 2:
        raise UsageError(
            f"unknown argument `{arguments.words[2]}`", "`devherd explain` takes two words at most", "leave it out"
        )
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
    known = known_devices(settings, herd, None if pods is None else parse(pods))
    events = history.events(settings.run_dir)
    if len(words) == 2:
        return _two_words(known, events, *words), ExitCode.DONE
    if not words:
        return explain_resource.of_everything(known)
    [word] = words
    offer = next((each for each in herd.resources if each.name == word), None)
    if offer is not None:
        return explain_resource.of_resource(known, offer)
    found = devices_named(known.subjects, word)
    if found:
        shown = [explain_device.of_device(known, subject, events) for subject in found]
        explanation = shown[0] if len(shown) == 1 else {"kind": "devices", "devices": shown}
        return explanation, _code(is_problem=any(each.device and is_ill(each.device) for each in found))
    if gone_or_told := _lost(known, word) or _of_the_scan(known, word):
        return gone_or_told
    if explain_pod.is_name(word):
        return explain_pod.of_pod(settings, known, pods, events, word)
    raise unknown_word(known, word)


def _code(*, is_problem: bool) -> ExitCode:
    return ExitCode.PROBLEM_FOUND if is_problem else ExitCode.DONE


def _lost(known: Known, word: str) -> tuple[Json, ExitCode] | None:
    """The lost devices that a word names, or those of a resource that has no others; None without any."""
    devices = lost_devices.named(known.herd.lost, word) or lost_devices.named(known.herd.lost, normal_address(word))
    found = devices or [device for device in known.herd.lost if device.resource_name == word]
    explanation = {"kind": "lost", "devices": lost_devices.lost_json(found)}
    return (explanation, ExitCode.PROBLEM_FOUND) if found else None


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


def _two_words(known: Known, events: Sequence[HistoryEvent], resource_name: str, device_id: str) -> Json:
    """The device of a resource, by its id or its beginning. Raises UsageError."""
    offer = resource_named(known.herd, resource_name)
    of_offer = [each for each in known.subjects if each.offer is offer]
    found = devices_named(of_offer, device_id)
    if not found and (lost := _lost(known, device_id)):
        return lost[0]
    if not found:
        device_named(offer, device_id)
    return explain_device.of_device(known, found[0], events)


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
