"""What the embedded kubelet can be asked: the words of each action, its request and how the answer is shown."""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from devherd.errors import ExitCode, UnreachableError, UsageError

LOOK_AGAIN_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Action:
    """One action."""

    summary: str
    example: str
    add_words: Callable[[argparse.ArgumentParser], None]
    run: Callable[[Path, argparse.Namespace], int]


def _ask(kubelet_dir: Path, command: str, **words: Any) -> Any:
    from devherd_sim.kubelet.control_client import ask

    return ask(kubelet_dir, command, **words)


def _show(arguments: argparse.Namespace, answer: Any, table: str) -> int:
    """As JSON, or by that function of sim_kubelet_table."""
    if arguments.output == "json":
        print(json.dumps(answer, indent=2))
    else:
        from devherd.cli import sim_kubelet_table
        from devherd.cli.inventory_table import console

        console().print(getattr(sim_kubelet_table, table)(answer))
    return ExitCode.DONE


def _seconds(text: str) -> float:
    from devherd.config import parse_duration

    try:
        return float(parse_duration(text))
    except ValueError:
        try:
            return float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a duration, like 10s or 500ms") from None


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", choices=("table", "json"), default="table", help="default: table")


def _add_resource_and_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("resource", metavar="RESOURCE", nargs="?", default=None, help="show this resource only")
    _add_output(parser)


def _status(kubelet_dir: Path, arguments: argparse.Namespace) -> int:
    return _show(arguments, _ask(kubelet_dir, "status"), "status")


def _devices(kubelet_dir: Path, arguments: argparse.Namespace) -> int:
    return _show(arguments, _ask(kubelet_dir, "devices", resource=arguments.resource), "devices")


def _add_wait_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("resource", metavar="RESOURCE", help="such as example.com/gpu")
    parser.add_argument(
        "--allocatable", metavar="N", type=int, default=None, help="until N devices are Healthy; default: any list"
    )
    parser.add_argument("--timeout", metavar="TIME", type=_seconds, default=10.0, help="default: 10s")
    _add_output(parser)


def _wait(kubelet_dir: Path, arguments: argparse.Namespace) -> int:
    deadline = time.monotonic() + arguments.timeout
    answer = None
    while answer is None:
        left = max(0.0, deadline - time.monotonic())
        try:
            words = {"resource": arguments.resource, "allocatable": arguments.allocatable}
            answer = _ask(kubelet_dir, "wait", **words, seconds=left, of_seconds=arguments.timeout)
        except UnreachableError:  # it was started a moment ago, perhaps
            if not left:
                raise
            time.sleep(LOOK_AGAIN_SECONDS)
    if arguments.output == "json":
        print(json.dumps(answer, indent=2))
    else:
        print(f"{answer['name']}: {answer['allocatable']} of {answer['capacity']} devices are allocatable")
    return ExitCode.DONE


def _add_check_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "resources", metavar="RESOURCE", nargs="*", default=[], help="check the plugins of these; default: all"
    )
    parser.add_argument("--no-restart", action="store_true", default=False, help="do not restart the kubelet")
    parser.add_argument(
        "--timeout", metavar="TIME", type=_seconds, default=10.0, help="to be back after a restart; default: 10s"
    )
    _add_output(parser)


def _check(kubelet_dir: Path, arguments: argparse.Namespace) -> int:
    words = {"resources": arguments.resources, "restart": not arguments.no_restart, "seconds": arguments.timeout}
    found = _ask(kubelet_dir, "check", **words)
    if arguments.output == "json":
        print(json.dumps(found, indent=2))
    for finding in found if arguments.output != "json" else ():
        print(f"{finding['resource']}: {finding['check']}: {finding['problem']} — {finding['cure']}")
    if not found and arguments.output != "json":
        print("no findings")
    return ExitCode.PROBLEM_FOUND if found else ExitCode.DONE


def _add_events_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "resource", metavar="RESOURCE", nargs="?", default=None, help="show those of this resource only"
    )
    parser.add_argument("--follow", action="store_true", default=False, help="go on, until it is interrupted")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="one line each; default: text")


def _events(kubelet_dir: Path, arguments: argparse.Namespace) -> int:
    answer = _ask(kubelet_dir, "events", since=0)
    _print_events(arguments, answer["events"])
    if arguments.follow:
        _follow(kubelet_dir, arguments, answer["next"])
    return ExitCode.DONE


def _follow(kubelet_dir: Path, arguments: argparse.Namespace, since: int) -> NoReturn:
    while True:
        answer = _ask(kubelet_dir, "events", since=since, follow=True)
        _print_events(arguments, answer["events"])
        since = answer["next"]


def _print_events(arguments: argparse.Namespace, events: list[dict[str, Any]]) -> None:
    from devherd_sim.kubelet.foreground import sentence

    for event in events:
        if arguments.resource not in (None, event["resource"]):
            continue
        said = json.dumps(event) if arguments.output == "json" else sentence(event)
        if said is not None:
            print(said if arguments.output == "json" else f"{event['time']} {said}", flush=True)


def _add_allocate_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("resource", metavar="RESOURCE", help="such as example.com/gpu")
    parser.add_argument("count", metavar="N", type=int, help="how many devices")
    parser.add_argument("--pod", metavar="NAME", default="pod", help="default: pod")
    parser.add_argument("--container", metavar="NAME", default="main", help="default: main")
    _add_output(parser)


def _allocate(kubelet_dir: Path, arguments: argparse.Namespace) -> int:
    if arguments.count < 1:
        raise UsageError(f"cannot allocate {arguments.count} devices", "a pod asks for 1 or more", "give N ≥ 1")
    names = ("resource", "count", "pod", "container")
    answer = _ask(kubelet_dir, "allocate", **{name: getattr(arguments, name) for name in names})
    if answer is None and arguments.output != "json":
        print(f"no plugin has registered {arguments.resource}; the kubelet would start the pod without it")
        return ExitCode.DONE
    return _show(arguments, answer, "allocation")


def _add_admit_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="a pod's manifest in YAML")
    _add_output(parser)


def _admit(kubelet_dir: Path, arguments: argparse.Namespace) -> int:
    from devherd_sim.kubelet import pod_manifest

    manifest = pod_manifest.load(arguments.file)
    pod_manifest.parse(manifest, str(arguments.file))
    return _show(arguments, _ask(kubelet_dir, "admit", manifest=manifest), "pod")


def _add_free_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pod", metavar="POD", help="the pod to end: NAME or NAMESPACE/NAME")
    _add_output(parser)


def _free(kubelet_dir: Path, arguments: argparse.Namespace) -> int:
    answer = _ask(kubelet_dir, "free", pod=arguments.pod)
    freed = [device_id for held in answer for device_id in held["device_ids"]]
    if arguments.output == "json":
        print(json.dumps(answer, indent=2))
    else:
        print(f"free again: {' '.join(freed)}" if freed else f"pod `{arguments.pod}` holds no devices")
    return ExitCode.DONE


def _restart(kubelet_dir: Path, _: argparse.Namespace) -> int:
    _ask(kubelet_dir, "restart")
    print("restarted; plugins must register again")
    return ExitCode.DONE


ACTIONS = {
    "status": Action("show each resource, its plugin, and which pod holds what", "status", _add_output, _status),
    "wait": Action(
        "wait until a resource is registered and its devices are listed; exit code 1 when they are not in time",
        "wait example.com/gpu --allocatable 4 --timeout 30s",
        _add_wait_words,
        _wait,
    ),
    "check": Action(
        "look for what is amiss with plugins, and restart the kubelet to see whether they are back; exit code 1 with"
        " each finding and its cure",
        "check example.com/gpu",
        _add_check_words,
        _check,
    ),
    "events": Action("print what has happened", "events --follow --output json", _add_events_words, _events),
    "devices": Action(
        "show each device, its health and its pod", "devices example.com/gpu", _add_resource_and_output, _devices
    ),
    "allocate": Action(
        "admit a container that asks for devices, and print what the plugin answers",
        "allocate example.com/gpu 2 --pod train --output json",
        _add_allocate_words,
        _allocate,
    ),
    "admit": Action(
        "admit a whole pod, and print what each container gets", "admit pod.yaml", _add_admit_words, _admit
    ),
    "free": Action("end a pod: its devices are free again", "free train", _add_free_words, _free),
    "restart": Action(
        "restart the kubelet: it removes all sockets, and every plugin must register again",
        "restart",
        lambda _: None,
        _restart,
    ),
}
