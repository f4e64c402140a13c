"""What devherd has written to nodes, to be taken back when it has left the cluster: its labels and its condition.

The NodeFeature objects are not of the nodes: they go with the DaemonSet, and the labels that follow from them, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from devherd.kubernetes.api import Api, Json
from devherd.kubernetes.conflicts import past_conflicts
from devherd.kubernetes.node_patch import NodePatch, owned
from devherd.kubernetes.objects import CONDITION, no_condition

_NODES = "/api/v1/nodes"
_PAGE = 25
"""Nodes an answer: some tens of KB each, with the images that they have."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a node has of devherd."""

    node: str
    labels: list[str]
    """Names of labels that devherd itself has put on it."""
    has_condition: bool

    def __str__(self) -> str:
        """For people; empty when there is nothing."""
        labels = f"{len(self.labels)} label{'s' * (len(self.labels) != 1)}" if self.labels else ""
        return ", ".join(filter(None, [labels, f"condition {CONDITION}" * self.has_condition]))


def written_on(node: Json) -> Written:
    """What is on a Node."""
    conditions = node.get("status", {}).get("conditions", [])
    return Written(
        node=node["metadata"]["name"],
        labels=owned(node["metadata"]),
        has_condition=any(each.get("type") == CONDITION for each in conditions),
    )


def written_on_node(api: Api, name: str) -> Written:
    """What is on the Node of this name. Raises ApiError."""
    return written_on(api.get(f"{_NODES}/{quote(name, safe='')}"))


def written_on_every_node(api: Api) -> Iterator[Written]:
    """What is on each Node of the cluster. Raises ApiError."""
    more = ""
    while True:
        page = api.get(f"{_NODES}?limit={_PAGE}{more}")
        yield from map(written_on, page.get("items", []))
        following = page["metadata"].get("continue")
        if not following:
            return
        more = f"&continue={quote(following, safe='')}"


def take_back(api: Api, written: Written) -> None:
    """Have it on the node no more; what is somebody else's stays. Raises ApiError."""
    if written.labels:
        past_conflicts(NodePatch(api, written.node).remove)
    if written.has_condition:
        api.patch(f"{_NODES}/{written.node}/status", no_condition())
