"""Remove what devherd has written to nodes of the cluster: its labels, and the condition DevicesUnhealthy.

Run it at an uninstallation, after devherd has ended: a running instance writes them again. It accesses the API server
as a pod, with the token of its service account, which needs the right to get, list and patch nodes and to patch
nodes/status. deploy/kubernetes/clean-nodes has such a Job; the Helm chart runs it by itself. Labels that others have
written stay.
"""

import argparse
import contextlib
import http
import sys
from typing import TYPE_CHECKING

from devherd.errors import ExitCode, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devherd.kubernetes.api import Api, ApiError
    from devherd.kubernetes.clean_nodes import Written

_CURES: dict[int, str] = {
    http.HTTPStatus.UNAUTHORIZED: "give the pod a token that the API server takes",
    http.HTTPStatus.FORBIDDEN: "give the service account the rights of deploy/kubernetes/clean-nodes",
    http.HTTPStatus.NOT_FOUND: "see `kubectl get nodes`",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument("nodes", metavar="NODE", nargs="*", help="names of nodes; default: all nodes of the cluster")
    parser.add_argument("--dry-run", action="store_true", help="print what would be removed, and change nothing")


def run(arguments: argparse.Namespace) -> int:
    """Clean the nodes. Raises UnreachableError without access to the API server, or if the nodes cannot be read."""
    from devherd.kubernetes.access import Access
    from devherd.kubernetes.api import Api, ApiError

    access = Access.of_this_pod()
    if access is None:
        raise UnreachableError(
            "cannot clean the nodes",
            "there is no API server to talk to, or the pod has no token",
            "run it in a pod, as deploy/kubernetes/clean-nodes does",
        )
    with contextlib.closing(Api(access)) as api:
        try:
            found = _found(api, arguments.nodes)
        except ApiError as error:
            raise UnreachableError("cannot read the nodes", str(error), _cure(error)) from error
        return _clean(api, found, is_tried=arguments.dry_run)


def _found(api: "Api", nodes: list[str]) -> "list[Written]":
    """The nodes to clean, all read before the first is changed: a list that is read slowly expires."""
    from devherd.kubernetes.clean_nodes import written_on_every_node, written_on_node

    each = (written_on_node(api, node) for node in nodes) if nodes else written_on_every_node(api)
    return [written for written in each if str(written)]


def _clean(api: "Api", found: "Iterable[Written]", *, is_tried: bool) -> int:
    from devherd.kubernetes.api import ApiError
    from devherd.kubernetes.clean_nodes import take_back

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
