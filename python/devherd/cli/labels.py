"""Scan the host once and print the labels that `node_labels` would give the node. Nothing is changed.

Each is a line `NAME=VALUE`. Lines that begin with `#` name labels that the vendors' labellers may write and devherd
does not, with the reason.

With --remove: remove devherd's labels and its condition DevicesUnhealthy from nodes of the cluster. Do this when you
uninstall devherd, after it has ended: a running instance writes them again. It runs with --kubeconfig or in a pod, by
an account that may get, list and patch nodes and patch nodes/status. deploy/kubernetes/clean-nodes has such a
Job; the Helm chart runs it. Other labels stay.
"""

import argparse
import contextlib
import http
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from devherd.cli.options import load_config
from devherd.errors import ExitCode, UnreachableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devherd.api_server import Api, ApiError
    from devherd.config.model import Config
    from devherd.kubernetes.labels import WrittenToNode
    from devherd.node_labels.node import Labels

_CURES: dict[int, str] = {
    http.HTTPStatus.UNAUTHORIZED: "give the pod a token that the API server takes",
    http.HTTPStatus.FORBIDDEN: "give the service account the rights of deploy/kubernetes/clean-nodes",
    http.HTTPStatus.NOT_FOUND: "see `kubectl get nodes`",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument("--output", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument("--remove", action="store_true", help="remove devherd's labels and condition from nodes")
    parser.add_argument("nodes", metavar="NODE", nargs="*", help="with --remove: names of nodes; default: all")
    parser.add_argument(
        "--dry-run", action="store_true", help="with --remove: print what would be removed, and change nothing"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the labels, or remove them. Raises UsageError; UnreachableError where the API server is not reached."""
    if arguments.remove:
        if arguments.output != "text":
            raise UsageError("cannot print JSON", "`--remove` prints a line for each node", "leave out `--output`")
        return _remove(load_config(arguments), arguments.nodes, is_tried=arguments.dry_run)
    if arguments.nodes or arguments.dry_run:
        given = f"`{arguments.nodes[0]}`" if arguments.nodes else "`--dry-run`"
        raise UsageError(f"{given} without `--remove`", "only a removal takes it", "see `devherd labels --help`")
    config = load_config(arguments)
    labels = _labels(config)
    if arguments.output == "json":
        shown = {"write": config.node_labels.write, "labels": labels.values, "missing": labels.missing}
        print(json.dumps(shown, indent=2, sort_keys=True))
        return ExitCode.DONE
    for name, value in sorted(labels.values.items()):
        print(f"{name}={value}")
    for name, why in sorted(labels.missing.items()):
        print(f"# {name}: {why}")
    if config.node_labels.write == "none":
        print("# not written: node_labels.write is none")
    return ExitCode.DONE


def _labels(config: "Config") -> "Labels":
    from devherd.cli.scan import check_host_root
    from devherd.config.loader import resolve
    from devherd.node_labels.node import node_of
    from devherd.node_labels.others import labels_of_node
    from devherd.scanner.once import scan_once

    check_host_root(config)
    resolved = resolve(config)
    # With a writer configured, NVML is asked for the facts of the labels.
    asking = replace(resolved, node_labels=replace(resolved.node_labels, write="node"))
    report = scan_once(asking)
    return labels_of_node(node_of(resolved, report.inventory, report.offers), resolved.node_labels.omit)


def _remove(config: "Config", nodes: list[str], *, is_tried: bool) -> int:
    """Clean the nodes. Raises UnreachableError without access to the API server, or if the nodes cannot be read."""
    from devherd.api_server import Api, ApiError
    from devherd.config.loader import resolve

    access = resolve(config).api_access()
    if access is None:
        raise UnreachableError(
            "cannot clean the nodes",
            "there is no API server to talk to: no `kubeconfig` is named or there, and this is no pod with a token",
            "give --kubeconfig, or run it in a pod, as deploy/kubernetes/clean-nodes does",
        )
    with contextlib.closing(Api(access)) as api:
        try:
            found = _found(api, nodes)
        except ApiError as error:
            raise UnreachableError("cannot read the nodes", str(error), _cure(error)) from error
        return _clean(api, found, is_tried=is_tried)


def _found(api: "Api", nodes: list[str]) -> "list[WrittenToNode]":
    """The nodes to clean, all read before the first is changed: a list that is read slowly expires."""
    from devherd.kubernetes.labels import written_on_every_node, written_on_node

    each = (written_on_node(api, node) for node in nodes) if nodes else written_on_every_node(api)
    return [written for written in each if str(written)]


def _clean(api: "Api", found: "Iterable[WrittenToNode]", *, is_tried: bool) -> int:
    from devherd.api_server import ApiError
    from devherd.kubernetes.labels import take_back

    code = ExitCode.DONE
    for written in found:
        try:
            if not is_tried:
                take_back(api, written)
        except ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                continue  # it has left the cluster meanwhile
            code = ExitCode.PROBLEM_FOUND
            print(f"devherd: cannot clean node {written.node} — {error} — {_cure(error)}", file=sys.stderr)
        else:
            print(f"{written.node}: {'would be ' * is_tried}removed: {written}")
    return code


def _cure(error: "ApiError") -> str:
    return _CURES.get(error.status, "try again")
