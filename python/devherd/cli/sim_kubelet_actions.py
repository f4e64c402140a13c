"""The actions of `devherd sim kubelet`: what each asks of the running one, and how the answer is shown."""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from devherd.cli.tables import plain, table
from devherd.errors import DevherdError, ExitCode, UnreachableError, UsageError

LOOK_AGAIN_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Action:
    """One action."""

    summary: str
    example: str
    add_words: Callable[[argparse.ArgumentParser], None]
    run: Callable[[Path, argparse.Namespace], int]


def _ask(kubelet_dir: Path, command: str, **words: Any) -> Any:
    from devherd_sim.kubelet.control import ask

    return ask(kubelet_dir, command, **words)


def _show(arguments: argparse.Namespace, answer: Any, as_table: Callable[[Any], RenderableType]) -> int:
    """Print the answer as JSON or as a table."""
    if arguments.output == "json":
        print(json.dumps(answer, indent=2))
    else:
        from devherd.cli.tables import console

        console().print(as_table(answer))
    return ExitCode.DONE


def _seconds(text: str) -> float:
    from devherd.config.values import parse_duration

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
    return _show(arguments, _ask(kubelet_dir, "status"), status_table)


def _devices(kubelet_dir: Path, arguments: argparse.Namespace) -> int:
    return _show(arguments, _ask(kubelet_dir, "devices", resource=arguments.resource), device_table)


def _add_wait_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "resource",
        metavar="RESOURCE",
        nargs="?",
        default=None,
        help="such as example.com/gpu; without one: until the kubelet takes registrations",
    )
    parser.add_argument(
        "--allocatable",
        metavar="N",
        type=int,
        default=None,
        help="until exactly N devices are Healthy, and their plugin is connected; 0: none; default: any list",
    )
    parser.add_argument(
        "--capacity",
        metavar="N",
        type=int,
        default=None,
        help="until it has exactly N devices, Healthy or not, also during the grace period",
    )
    parser.add_argument(
        "--registrations",
        metavar="N",
        type=int,
        default=None,
        help="until Register was called at least N times since the kubelet's start, successfully or not",
    )
    parser.add_argument("--gone", action="store_true", default=False, help="until a plugin that was connected has gone")
    parser.add_argument("--timeout", metavar="TIME", type=_seconds, default=10.0, help="default: 10s")
    _add_output(parser)


_COUNTS = ("allocatable", "capacity", "registrations")


def _wait(kubelet_dir: Path, arguments: argparse.Namespace) -> int:
    numbers = {name: getattr(arguments, name) for name in _COUNTS}
    given = any(number is not None for number in numbers.values())
    if arguments.gone and given:
        raise UsageError("--gone with a number", "either the plugin is gone or it has devices", "wait twice")
    if arguments.resource is None and (given or arguments.gone):
        raise UsageError("a number, but no resource", "the kubelet itself has none", "name the RESOURCE")
    deadline = time.monotonic() + arguments.timeout
    answer = None
    while answer is None:
        left = max(0.0, deadline - time.monotonic())
        try:
            if arguments.resource is None:
                answer = _kubelet_takes_registrations(kubelet_dir)
            else:
                words = {"resource": arguments.resource, **numbers, "gone": arguments.gone}
                answer = _ask(kubelet_dir, "wait", **words, seconds=left, of_seconds=arguments.timeout)
        except UnreachableError:  # perhaps it has just been started
            if not left:
                raise
            time.sleep(LOOK_AGAIN_SECONDS)
    if arguments.output == "json":
        print(json.dumps(answer, indent=2))
    elif arguments.resource is None:
        print(f"plugins may register at {answer['kubelet_dir']}/device-plugins/kubelet.sock")
    elif arguments.gone:
        print(f"{answer['resource']}: no plugin is connected")
    else:
        print(f"{answer['resource']}: {answer['allocatable']} of {answer['capacity']} devices are allocatable")
    return ExitCode.DONE


def _kubelet_takes_registrations(kubelet_dir: Path) -> Any:
    status = _ask(kubelet_dir, "status")
    if not status["running"]:
        raise UnreachableError(
            "the kubelet takes no registrations", "it is stopped", "start it with `devherd sim kubelet start`"
        )
    return status


def _add_check_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "resources", metavar="RESOURCE", nargs="*", default=[], help="check the plugins of these; default: all"
    )
    parser.add_argument("--no-restart", action="store_true", default=False, help="do not restart the kubelet")
    parser.add_argument(
        "--down", metavar="TIME", type=_seconds, default=10.0, help="how long the kubelet is away; default: 10s"
    )
    parser.add_argument(
        "--timeout", metavar="TIME", type=_seconds, default=30.0, help="time to return after the restart; default: 30s"
    )
    parser.add_argument(
        "--ignore",
        metavar="FINDING",
        type=_finding,
        action="append",
        default=[],
        help="accept this, such as `empty-answer`; may be given several times",
    )
    _add_output(parser)


def _finding(text: str) -> str:
    from devherd_sim.kubelet.plugin_findings import require_check

    try:
        return require_check(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(f"{error.what}; {error.cure}") from None


def _check(kubelet_dir: Path, arguments: argparse.Namespace) -> int:
    words = {"resources": arguments.resources, "restart": not arguments.no_restart, "seconds": arguments.timeout}
    found = _ask(kubelet_dir, "check", **words, down=arguments.down, ignored=arguments.ignore)
    if arguments.output == "json":
        print(json.dumps(found, indent=2))
    for finding in found if arguments.output != "json" else ():
        print(f"{finding['resource']}: {finding['check']}: {finding['problem']} — {finding['cure']}")
    if not found and arguments.output != "json":
        print("no findings")
    return ExitCode.PROBLEM_FOUND if found else ExitCode.DONE


def _add_events_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("resource", metavar="RESOURCE", nargs="?", default=None, help="only this resource")
    parser.add_argument("--follow", action="store_true", default=False, help="print new events until interrupted")
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
        line = json.dumps(event) if arguments.output == "json" else sentence(event)
        if line is not None:
            print(line if arguments.output == "json" else f"{event['time']} {line}", flush=True)


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
    if answer is None:
        raise DevherdError(
            f"no plugin has registered {arguments.resource}",
            "the kubelet would start the pod without it",
            "see `devherd sim kubelet status` for the names of resources",
        )
    return _show(arguments, answer, allocation_table)


def _add_admit_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="a pod's manifest in YAML")
    _add_output(parser)


def _admit(kubelet_dir: Path, arguments: argparse.Namespace) -> int:
    from devherd_sim.kubelet import pod

    manifest = pod.load(arguments.file)
    pod.parse(manifest, str(arguments.file))
    return _show(arguments, _ask(kubelet_dir, "admit", manifest=manifest), pod_table)


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


def _add_restart_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--down",
        metavar="TIME",
        type=_seconds,
        default=0.0,
        help="how long the kubelet is away and its sockets refuse; a real one takes seconds; default: 0s",
    )


def _restart(kubelet_dir: Path, arguments: argparse.Namespace) -> int:
    _ask(kubelet_dir, "restart", down=arguments.down)
    print("restarted; plugins must register again")
    return ExitCode.DONE


def _stop(kubelet_dir: Path, _: argparse.Namespace) -> int:
    _ask(kubelet_dir, "stop")
    print("stopped; its sockets stay, and refuse")
    return ExitCode.DONE


def _start(kubelet_dir: Path, _: argparse.Namespace) -> int:
    _ask(kubelet_dir, "start")
    print("started; plugins must register again")
    return ExitCode.DONE


def _add_refuse_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("resource", metavar="RESOURCE", help="such as example.com/gpu")
    _add_times(parser)
    parser.add_argument(
        "--error", metavar="TEXT", default=None, help="the error message; its code is UNKNOWN, as with a real kubelet"
    )
    parser.add_argument(
        "--delay",
        metavar="TIME",
        type=_seconds,
        default=0.0,
        help="wait before the refusal; if long: no answer; default: 0s",
    )


def _add_delay_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("resource", metavar="RESOURCE", help="such as example.com/gpu")
    parser.add_argument("delay", metavar="TIME", type=_seconds, help="wait before the plugin is called, such as 5s")
    _add_times(parser)


def _add_times(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--times", metavar="N", type=int, default=1, help="how many calls; 0: end it; default: 1")


def _refuse(kubelet_dir: Path, arguments: argparse.Namespace) -> int:
    error = "refused by `devherd sim kubelet refuse`" if arguments.error is None else arguments.error
    return _disturb(kubelet_dir, arguments, "refused", error)


def _delay(kubelet_dir: Path, arguments: argparse.Namespace) -> int:
    return _disturb(kubelet_dir, arguments, "delayed", None)


def _disturb(kubelet_dir: Path, arguments: argparse.Namespace, what: str, error: str | None) -> int:
    if arguments.times < 0:
        raise UsageError(f"{arguments.times} calls", "there is no such number", "give N ≥ 0")
    _ask(
        kubelet_dir,
        "refuse" if error is not None else "delay",
        resource=arguments.resource,
        times=arguments.times,
        delay=arguments.delay,
        error=error,
    )
    calls = (
        f"the next {arguments.times} calls of Register for" if arguments.times != 1 else "the next call of Register for"
    )
    print(f"{calls} {arguments.resource}: {what}" if arguments.times else f"no call for {arguments.resource} is {what}")
    return ExitCode.DONE


def _add_exec_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timeout",
        metavar="TIME",
        type=_seconds,
        default=10.0,
        help="time to wait for the kubelet; 0: none; default: 10s",
    )
    parser.add_argument(
        "--end-with-parent", action="store_true", default=False, help="kill the program when the caller ends"
    )
    parser.add_argument(
        "command", metavar="PROGRAM", nargs=argparse.REMAINDER, help="the program and its arguments, after `--`"
    )


def _exec(kubelet_dir: Path, arguments: argparse.Namespace) -> int:
    from devherd_sim.kubelet import namespace

    command = arguments.command[arguments.command[:1] == ["--"] :]
    if not command:
        raise UsageError("no program given", "there is nothing to run", "see `devherd sim kubelet exec --help`")
    plugin_directory = kubelet_dir / "device-plugins"
    if arguments.timeout:
        namespace.wait_for_kubelet(plugin_directory / "kubelet.sock", arguments.timeout)
    plugin_directory.mkdir(parents=True, exist_ok=True)
    namespace.execute(kubelet_dir, command, end_with_parent=arguments.end_with_parent)


ACTIONS = {
    "status": Action("show each resource, its plugin, and which pod holds what", "status", _add_output, _status),
    "wait": Action(
        "wait until a resource is registered with its devices, or is gone, or until the kubelet runs; exit code 1"
        " after the time limit",
        "wait example.com/gpu --allocatable 4 --timeout 30s",
        _add_wait_words,
        _wait,
    ),
    "exec": Action(
        "run a program that sees this kubelet's directory at /var/lib/kubelet, in a mount namespace; needs no root",
        "exec -- ./my-plugin --verbose",
        _add_exec_words,
        _exec,
    ),
    "check": Action(
        "check plugins for errors, and that they return after a restart of the kubelet; exit code 1 with"
        " each finding and its cure, and when there is no plugin",
        "check example.com/gpu --ignore empty-answer",
        _add_check_words,
        _check,
    ),
    "events": Action("print past events", "events --follow --output json", _add_events_words, _events),
    "devices": Action(
        "show each device, its health and its pod", "devices example.com/gpu", _add_resource_and_output, _devices
    ),
    "allocate": Action(
        "admit a container that requests devices, and print the plugin's answer; exit code 1 if it is rejected,"
        " or no plugin has registered the resource",
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
        "restart --down 10s",
        _add_restart_words,
        _restart,
    ),
    "stop": Action(
        "stop the kubelet, but not this program: its sockets stay, and refuse", "stop", lambda _: None, _stop
    ),
    "start": Action("start the kubelet after `stop`", "start", lambda _: None, _start),
    "refuse": Action(
        "refuse the next calls of Register for a resource",
        "refuse example.com/gpu --times 3 --error 'try again'",
        _add_refuse_words,
        _refuse,
    ),
    "delay": Action(
        "answer the next calls of Register for a resource later", "delay example.com/gpu 5s", _add_delay_words, _delay
    ),
}


def status_table(answer: dict[str, Any]) -> RenderableType:
    """The resources, and the devices that each container holds."""
    parts: list[RenderableType] = [_resources(answer["resources"])]
    if not answer["resources"]:
        yet = "" if answer["forgotten"] else " yet"
        there = "has sent a list of devices" if not answer["forgotten"] else "is registered"
        parts = [Text(f"no plugin {there} at {answer['kubelet_dir']}/device-plugins{yet}")]
    if not answer["running"]:
        parts.insert(0, Text("the kubelet is stopped; `devherd sim kubelet start` starts it"))
    parts += [Text(f"{each['resource']}: refused: {_error(each['last_error'])}") for each in answer["refused"]]
    for each in answer["forgotten"]:
        error = f": {_error(each['last_error'])}" if each["last_error"] else ""
        parts.append(Text(f"{each['resource']}: forgotten {_age(each['seconds_ago'])} ago{error}"))
    if answer["allocations"]:
        parts += [Text(), _allocations(answer["allocations"])]
    parts.append(Text(f"by the rules of Kubernetes {answer['kubernetes']}"))
    return Group(*parts)


def _resources(answer: list[dict[str, Any]]) -> Table:
    numbers = ("allocatable", "capacity", "in_use", "registrations")
    made = table(
        "RESOURCE", "ALLOCATABLE", "CAPACITY", "IN USE", "REGISTRATIONS", "AGE", "SOCKET", "OPTIONS", "LAST ERROR"
    )
    for resource in answer:
        plugin = resource["plugin"]
        error = resource["last_error"]
        counts = (str(resource[number]) for number in numbers)
        about = _stream(plugin) if plugin else ("-",) * 3
        made.add_row(resource["resource"], *counts, *about, plain(_error(error)) if error else "-")
        asked = plugin and (plugin["socket"], plugin["connected_seconds"])
        for stream in resource["streams"]:
            if (stream["socket"], stream["connected_seconds"]) != asked:
                made.add_row("", *("" for _ in numbers), *_stream(stream), "one more stream is open")
    return made


def _stream(plugin: dict[str, Any]) -> tuple[Any, ...]:
    return _age(plugin["connected_seconds"]), plain(plugin["socket"]), _options(plugin)


def _options(plugin: dict[str, Any]) -> str:
    words = {"pre_start_required": "pre-start", "get_preferred_allocation_available": "preferred"}
    return ",".join(word for option, word in words.items() if plugin[option]) or "-"


def _age(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds < 120 else f"{seconds / 60:.0f}m"


def _error(error: dict[str, Any]) -> str:
    return f"{error['error']} ({_age(error['seconds_ago'])} ago)"


def device_table(answer: list[dict[str, Any]]) -> Table:
    """A table with a row for each device."""
    made = table("RESOURCE", "DEVICE", "HEALTH", "NUMA", "POD")
    for device in answer:
        nodes = ",".join(map(str, device["numa_nodes"] or ())) or "-"
        made.add_row(device["resource"], plain(device["id"]), device["health"], nodes, device["pod"] or "-")
    return made


def allocation_table(answer: dict[str, Any]) -> Table:
    """A table with a row for each thing that a container gets."""
    made = table("GETS", "ON THE HOST", "IN THE CONTAINER", "HOW")
    for device_id in answer["device_ids"]:
        made.add_row("device id", plain(device_id), "", "")
    for node in answer["devices"]:
        made.add_row("node", node["host_path"], node["container_path"], node["permissions"])
    for mount in answer["mounts"]:
        made.add_row("mount", mount["host_path"], mount["container_path"], "ro" if mount["read_only"] else "rw")
    for kind in ("envs", "annotations"):
        for name, value in answer[kind].items():
            made.add_row(kind.removesuffix("s"), "", plain(f"{name}={value}"), "")
    for name in answer["cdi_devices"]:
        made.add_row("CDI device", plain(name), "", "")
    return made


def pod_table(answer: list[dict[str, Any]]) -> RenderableType:
    """A table for each container, with what it gets."""
    return Group(
        *(part for each in answer for part in (Text(f"container {each['container']}"), allocation_table(each)))
    )


def _allocations(answer: list[dict[str, Any]]) -> Table:
    made = table("POD", "CONTAINER", "RESOURCE", "DEVICES")
    for held in answer:
        made.add_row(held["pod"], held["container"], held["resource"], plain(" ".join(held["device_ids"])))
    return made
