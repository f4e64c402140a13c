"""Finds and removes what devherd has written to Nodes, its labels and its condition, after it has left the cluster.

NodeFeature objects are not on the Nodes: they are removed with the DaemonSet, and so are the labels made from them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from devherd.kubernetes.api import Api, Json, past_conflicts
from devherd.kubernetes.condition import CONDITION, no_condition
from devherd.kubernetes.labels import NodePatch, owned

_NODES = "/api/v1/nodes"
_PAGE = 25
"""Nodes per page; each takes tens of KB, mostly for the list of its images."""


@dataclass(frozen=True, slots=True)
class Written:
    """What devherd has written to a node."""

    node: str
    labels: list[str]
    """Names of the labels that devherd itself has written."""
    has_condition: bool

    def __str__(self) -> str:
        """A summary for users; empty if there is nothing to remove."""
        labels = f"{len(self.labels)} label{'s' * (len(self.labels) != 1)}" if self.labels else ""
        return ", ".join(filter(None, [labels, f"condition {CONDITION}" * self.has_condition]))


def written_on(node: Json) -> Written:
    """The labels and the condition of a Node that devherd has written."""
    conditions = node.get("status", {}).get("conditions", [])
    return Written(
        node=node["metadata"]["name"],
        labels=owned(node["metadata"]),
        has_condition=any(each.get("type") == CONDITION for each in conditions),
    )


def written_on_node(api: Api, name: str) -> Written:
    """The same for the Node of this name. Raises ApiError."""
    return written_on(api.get(f"{_NODES}/{quote(name, safe='')}"))


def written_on_every_node(api: Api) -> Iterator[Written]:
    """The same for each Node of the cluster. Raises ApiError."""
    more = ""
    while True:
        page = api.get(f"{_NODES}?limit={_PAGE}{more}")
        yield from map(written_on, page.get("items", []))
        following = page["metadata"].get("continue")
        if not following:
            return
        more = f"&continue={quote(following, safe='')}"


def take_back(api: Api, written: Written) -> None:
    """Remove it from the node; labels and conditions of others stay. Raises ApiError."""
    if written.labels:
        past_conflicts(NodePatch(api, written.node).remove)
    if written.has_condition:
        api.patch(f"{_NODES}/{written.node}/status", no_condition())
