"""Run the device manager of a kubelet in its own directory, without a cluster, or send a request to a running one.

It accepts registrations from any device plugin, connects to it, follows its ListAndWatch, and allocates devices through
GetPreferredAllocation, Allocate and PreStartContainer, with the checks and messages of Kubernetes 1.37 or 1.36. It also
finds plugins in plugins_registry, aligns devices to NUMA nodes by a policy, keeps a kubelet's checkpoint and serves
PodResources. Without an action it runs in the foreground until SIGTERM or SIGINT and prints what happens.

  export DEVHERD_KUBELET_DIR=/tmp/kubelet         # or --kubelet-dir each time
  devherd sim kubelet                             # a plugin may register now
  devherd sim kubelet --topology-policy restricted --numa-nodes 2
  devherd sim kubelet --kubelet-root-dir /tmp/data   # as a kubelet's --root-dir
  devherd sim kubelet --kubernetes 1.36           # registration as up to 1.36
  devherd sim kubelet exec -- ./my-plugin         # fixed to /var/lib/kubelet
  devherd sim kubelet wait example.com/gpu --allocatable 4
  devherd sim kubelet check                       # errors of the plugins
  devherd sim kubelet status                      # registered resources
  devherd sim kubelet events --follow             # past events
  devherd sim kubelet devices                     # devices, health and pods
  devherd sim kubelet allocate example.com/gpu 2 --pod train
  devherd sim kubelet admit pod.yaml              # init containers, sidecars
  devherd sim kubelet free train
  devherd sim kubelet restart --down 10s          # plugins must register again
  devherd sim kubelet refuse example.com/gpu      # the next registration fails

docs/test-your-plugin.md shows how to test a device plugin with it.
"""

import argparse
from pathlib import Path
from typing import Any

from devherd.cli.options import load_config
from devherd.cli.parser import OWN_KUBELET_DIR, add_common_options
from devherd.cli.sim_kubelet_actions import ACTIONS
from devherd.cli.sim_kubelet_answers import described
from devherd.errors import ExitCode, UsageError

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
RELEASES = ("1.36", "1.37")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the node, and the actions with their arguments."""
    node = parser.add_argument_group("the node, without an action")
    node.add_argument(
        "--kubernetes",
        choices=RELEASES,
        default=RELEASES[-1],
        help="use the registration rules of this release; 1.36: also of older ones; default: the newest",
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
    node.add_argument(
        "--end-with-parent", action="store_true", default=False, help="stop when the process that started this one ends"
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions (default: run)")
    for name, action in ACTIONS.items():
        parser_of_action = actions.add_parser(
            name,
            help=action.summary,
            description=f"{action.summary[:1].upper()}{action.summary[1:]}.",
            epilog=f"example:\n  devherd sim kubelet {_with_directory(action.example)}\n\n{described(name)}",
        )
        parser_of_action.argument_default = argparse.SUPPRESS  # options before the action count, too
        add_common_options(parser_of_action, ("--kubelet-dir",), OWN_KUBELET_DIR)
        action.add_words(parser_of_action)


def _with_directory(example: str) -> str:
    words, dashes, program = example.partition(" -- ")
    return f"{words} --kubelet-dir /tmp/kubelet{dashes}{program}"


def run(arguments: argparse.Namespace) -> int:
    """Run the kubelet, or send a request. Raises UnreachableError if none runs, UsageError without a directory."""
    kubelet_dir = _directory(arguments)
    if arguments.action is not None:
        return ACTIONS[arguments.action].run(kubelet_dir, arguments)
    from devherd_sim.kubelet.foreground import run_until_signal

    run_until_signal(
        kubelet_dir,
        lambda line: print(line, flush=True),
        end_with_parent=arguments.end_with_parent,
        **_node(arguments),
    )
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
        "root_dir": load_config(arguments).kubelet_root_dir,
        "kubernetes": arguments.kubernetes,
        "topology_policy": arguments.topology_policy,
        "numa_nodes": arguments.numa_nodes,
        "grace_seconds": arguments.grace_period,
    }
