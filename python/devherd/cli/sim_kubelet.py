"""Run the device manager of a kubelet in its own directory, without a cluster, or send a request to a running one.

It accepts registrations from any device plugin, connects to it, follows its ListAndWatch, and allocates devices through
GetPreferredAllocation, Allocate and PreStartContainer, with the checks and messages of Kubernetes 1.37 or 1.36. It also
finds plugins in plugins_registry, aligns devices to NUMA nodes by a policy, keeps a kubelet's checkpoint and serves
PodResources. Without an action it runs in the foreground until SIGTERM or SIGINT and prints what happens.

  devherd sim kubelet --kubelet-dir /tmp/kubelet                        # a plugin may register now
  devherd sim kubelet --topology-policy restricted --numa-nodes 2 --kubelet-dir /tmp/kubelet
  devherd sim kubelet --kubernetes 1.36 --kubelet-dir /tmp/kubelet      # the rules of registration up to 1.36
  devherd sim kubelet wait example.com/gpu --allocatable 4 --kubelet-dir /tmp/kubelet
  devherd sim kubelet check --kubelet-dir /tmp/kubelet                  # what is amiss with the plugins
  devherd sim kubelet status --kubelet-dir /tmp/kubelet                 # what it has registered
  devherd sim kubelet events --follow --kubelet-dir /tmp/kubelet        # what has happened
  devherd sim kubelet devices --kubelet-dir /tmp/kubelet                # each device, its health and its pod
  devherd sim kubelet allocate example.com/gpu 2 --pod train --kubelet-dir /tmp/kubelet
  devherd sim kubelet admit pod.yaml --kubelet-dir /tmp/kubelet         # init containers, sidecars, several resources
  devherd sim kubelet free train --kubelet-dir /tmp/kubelet
  devherd sim kubelet restart --kubelet-dir /tmp/kubelet                # every plugin has to register again

docs/test-your-plugin.md shows how to test a device plugin with it.
"""

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

from devherd.cli.parser import add_common_options, load_config
from devherd.cli.tables import plain, table
from devherd.errors import ExitCode, UnreachableError, UsageError


def status_table(answer: dict[str, Any]) -> RenderableType:
    """The resources, and the devices that each container holds."""
    parts: list[RenderableType] = [_resources(answer["resources"])]
    if not answer["resources"]:
        parts = [Text(f"no plugin has sent a list of devices to {answer['kubelet_dir']}/device-plugins yet")]
    parts += [Text(f"{each['name']}: refused: {_error(each['last_error'])}") for each in answer["refused"]]
    if answer["allocations"]:
        parts += [Text(), _allocations(answer["allocations"])]
    return Group(*parts)


def _resources(answer: list[dict[str, Any]]) -> Table:
    numbers = ("allocatable", "capacity", "in_use", "registrations")
    made = table(
        "RESOURCE", "ALLOCATABLE", "CAPACITY", "IN USE", "REGISTRATIONS", "AGE", "SOCKET", "OPTIONS", "LAST ERROR"
    )
    for resource in answer:
        plugin = resource["plugin"]
        about = (_age(plugin["connected_seconds"]), plain(plugin["socket"]), _options(plugin)) if plugin else ("-",) * 3
        error = resource["last_error"]
        counts = (str(resource[number]) for number in numbers)
        made.add_row(resource["name"], *counts, *about, plain(_error(error)) if error else "-")
    return made


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
        except UnreachableError:  # perhaps it has just been started
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
    if answer is None and arguments.output != "json":
        print(f"no plugin has registered {arguments.resource}; the kubelet would start the pod without it")
        return ExitCode.DONE
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


POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
RELEASES = ("1.36", "1.37")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the node, and the actions with their arguments."""
    node = parser.add_argument_group("the node, without an action")
    node.add_argument(
        "--kubernetes",
        choices=RELEASES,
        default=RELEASES[-1],
        help="the release whose rules of registration it has; 1.36: those up to it; default: the newest",
    )
    node.add_argument("--topology-policy", choices=POLICIES, default="none", help="default: none")
    node.add_argument("--numa-nodes", metavar="N", type=int, default=1, help="nodes 0 to N-1; default: 1")
    node.add_argument(
        "--grace-period",
        metavar="SECONDS",
        type=float,
        default=300.0,
        help="how long a resource without a plugin keeps its capacity; default: 300",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions (default: run)")
    for name, action in ACTIONS.items():
        described = actions.add_parser(
            name,
            help=action.summary,
            description=f"{action.summary[:1].upper()}{action.summary[1:]}.",
            epilog=f"example:\n  devherd sim kubelet {action.example} --kubelet-dir /tmp/kubelet\n",
        )
        described.argument_default = argparse.SUPPRESS  # options before the action count, too
        add_common_options(described, ("--kubelet-dir",))
        action.add_words(described)


def run(arguments: argparse.Namespace) -> int:
    """Run the kubelet, or send a request. Raises UnreachableError if none runs, UsageError without a directory."""
    kubelet_dir = _directory(arguments)
    if arguments.action is not None:
        return ACTIONS[arguments.action].run(kubelet_dir, arguments)
    from devherd_sim.kubelet.foreground import run_until_signal

    run_until_signal(kubelet_dir, lambda line: print(line, flush=True), **_node(arguments))
    return ExitCode.DONE


def _directory(arguments: argparse.Namespace) -> Path:
    """The directory that the user names.

    Raises UsageError without one: the default is a real kubelet's, which would lose its plugins to this one.
    """
    config = load_config(arguments)
    directory = config.settings().kubelet_dir
    if "kubelet_dir" not in config.model_fields_set:
        raise UsageError(
            "no directory given",
            f"without one it would be {directory}, which is a real kubelet's",
            "give one of your own, like `--kubelet-dir /tmp/kubelet`",
        )
    return directory


def _node(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of the node. Raises UsageError for an impossible one."""
    if arguments.numa_nodes < 1:
        raise UsageError(f"{arguments.numa_nodes} NUMA nodes", "a machine has one or more", "give N ≥ 1")
    if not arguments.grace_period >= 0:
        raise UsageError(
            f"a grace period of {arguments.grace_period} s", "it must not be negative", "give 0 or more seconds"
        )
    return {
        "kubernetes": arguments.kubernetes,
        "topology_policy": arguments.topology_policy,
        "numa_nodes": arguments.numa_nodes,
        "grace_seconds": arguments.grace_period,
    }
