"""Run the device manager of a kubelet, without a cluster, on a directory of its own; or ask a running one.

It accepts registrations from any device plugin, connects to it, follows its ListAndWatch, and allocates devices through
GetPreferredAllocation, Allocate and PreStartContainer, with the checks and messages of Kubernetes 1.36. It also finds
plugins in plugins_registry, aligns devices to NUMA nodes by a policy, keeps a kubelet's checkpoint and serves
PodResources. Without an action it runs in the foreground until SIGTERM or SIGINT and prints what happens.

  devherd sim kubelet --kubelet-dir /tmp/kubelet                        # a plugin may register now
  devherd sim kubelet --topology-policy restricted --numa-nodes 2 --kubelet-dir /tmp/kubelet
  devherd sim kubelet status --kubelet-dir /tmp/kubelet                 # what it has registered
  devherd sim kubelet devices --kubelet-dir /tmp/kubelet                # each device, its health and its pod
  devherd sim kubelet allocate example.com/gpu 2 --pod train --kubelet-dir /tmp/kubelet
  devherd sim kubelet admit pod.yaml --kubelet-dir /tmp/kubelet         # init containers, sidecars, several resources
  devherd sim kubelet free train --kubelet-dir /tmp/kubelet
  devherd sim kubelet restart --kubelet-dir /tmp/kubelet                # every plugin has to register again
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from devherd.cli import common_options
from devherd.cli.common_options import load_config
from devherd.errors import ExitCode, UsageError

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options: those of the node, or an action with its arguments."""
    node = parser.add_argument_group("the node, without an action")
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
    for name, summary, example, add_words in _ACTIONS:
        description = f"{summary[:1].upper()}{summary[1:]}."
        epilog = f"example:\n  devherd sim kubelet {example}\n"
        action = actions.add_parser(name, help=summary, description=description, epilog=epilog)
        action.argument_default = argparse.SUPPRESS  # options before the action count, too
        common_options.add(action, ("--kubelet-dir",))
        add_words(action)


def run(arguments: argparse.Namespace) -> int:
    """Run it, or send a request. Raises UnreachableError when none is running."""
    kubelet_dir = load_config(arguments).settings().kubelet_dir
    if arguments.action is None:
        from devherd_sim.kubelet.foreground import run_until_told

        run_until_told(kubelet_dir, lambda line: print(line, flush=True), **_node(arguments))
        return ExitCode.DONE
    from devherd_sim.kubelet.control_client import ask

    answer = ask(kubelet_dir, arguments.action, **_words(arguments))
    if getattr(arguments, "output", None) == "json":
        print(json.dumps(answer, indent=2))
    else:
        _print(arguments, answer)
    return ExitCode.DONE


def _node(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of the node. Raises UsageError for an impossible one."""
    if arguments.numa_nodes < 1:
        raise UsageError(f"{arguments.numa_nodes} NUMA nodes", "a machine has one or more", "give N ≥ 1")
    if not arguments.grace_period >= 0:
        raise UsageError(
            f"a grace period of {arguments.grace_period} s", "it must not be negative", "give 0 or more seconds"
        )
    return {
        "topology_policy": arguments.topology_policy,
        "numa_nodes": arguments.numa_nodes,
        "grace_seconds": arguments.grace_period,
    }


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", choices=("table", "json"), default="table", help="default: table")


def _add_devices_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("resource", metavar="RESOURCE", nargs="?", default=None, help="show this resource only")
    _add_output(parser)


def _add_allocate_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("resource", metavar="RESOURCE", help="such as example.com/gpu")
    parser.add_argument("count", metavar="N", type=int, help="how many devices")
    parser.add_argument("--pod", metavar="NAME", default="pod", help="default: pod")
    parser.add_argument("--container", metavar="NAME", default="main", help="default: main")
    _add_output(parser)


def _add_admit_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="a pod's manifest in YAML")
    _add_output(parser)


def _add_free_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pod", metavar="POD", help="the pod to end: NAME or NAMESPACE/NAME")
    _add_output(parser)


def _add_nothing(_: argparse.ArgumentParser) -> None:
    pass


_ACTIONS: tuple[tuple[str, str, str, Callable[[argparse.ArgumentParser], None]], ...] = (
    ("status", "show each resource, and which pod holds what", "status --output json", _add_output),
    ("devices", "show each device, its health and its pod", "devices example.com/gpu", _add_devices_words),
    (
        "allocate",
        "admit a container that asks for devices, and print what the plugin answers",
        "allocate example.com/gpu 2 --pod train --output json",
        _add_allocate_words,
    ),
    ("admit", "admit a whole pod, and print what each container gets", "admit pod.yaml", _add_admit_words),
    ("free", "end a pod: its devices are free again", "free train", _add_free_words),
    (
        "restart",
        "restart the kubelet: it removes all sockets, and every plugin must register again",
        "restart --kubelet-dir /tmp/kubelet",
        _add_nothing,
    ),
)


def _words(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments of the request."""
    match arguments.action:
        case "devices":
            return {"resource": arguments.resource}
        case "allocate":
            if arguments.count < 1:
                raise UsageError(f"cannot allocate {arguments.count} devices", "a pod asks for 1 or more", "give N ≥ 1")
            names = ("resource", "count", "pod", "container")
            return {name: getattr(arguments, name) for name in names}
        case "admit":
            return {"manifest": _manifest(arguments.file)}
        case "free":
            return {"pod": arguments.pod}
    return {}


def _manifest(path: Path) -> Any:
    """The file as plain data. Raises UsageError when it is not a pod's manifest."""
    from devherd_sim.kubelet import pod_manifest

    manifest = pod_manifest.load(path)
    pod_manifest.parse(manifest, str(path))
    return manifest


def _print(arguments: argparse.Namespace, answer: Any) -> None:
    from devherd.cli import sim_kubelet_table
    from devherd.cli.inventory_table import console

    match arguments.action:
        case "status":
            console().print(sim_kubelet_table.status(answer))
        case "devices":
            console().print(sim_kubelet_table.devices(answer))
        case "allocate" if answer is None:
            print(f"no plugin has registered {arguments.resource}: the kubelet starts the pod without it")
        case "allocate":
            console().print(sim_kubelet_table.allocation(answer))
        case "admit":
            console().print(sim_kubelet_table.pod(answer))
        case "free":
            freed = [device_id for held in answer for device_id in held["device_ids"]]
            print(f"free again: {' '.join(freed)}" if freed else f"{arguments.pod} held nothing")
        case "restart":
            print("restarted; plugins must register again")
