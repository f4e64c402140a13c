"""Labels that devherd itself puts on the Node. Which of them are its own stands beside them, in an annotation."""

from collections.abc import Mapping
from dataclasses import dataclass

from devherd.kubernetes.api import Api, Json

ANNOTATION = "devherd.io/labels"
"""The names of the labels that devherd has written, separated by commas."""
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Difference:
    """What is to be changed of a node, and which labels are somebody else's."""

    labels: dict[str, str | None]
    """None: to be removed."""
    owned: list[str]
    """The names that devherd has written, afterwards."""
    foreign: list[str]
    """Names that another program or a person has given another value."""


class NodePatch:
    """The Node of this name."""

    def __init__(self, api: Api, node: str) -> None:
        self._api = api
        self._path = f"/api/v1/nodes/{node}"

    def write(self, labels: Mapping[str, str]) -> str:
        """Have these labels on it, others' being left alone: those are answered. Raises ApiError."""
        metadata = self._api.get(self._path, metadata_alone=True)["metadata"]
        change = difference(metadata.get("labels", {}), owned(metadata), labels)
        if change.labels or set(change.owned) != set(owned(metadata)):
            self._api.patch(self._path, patch(change, metadata["resourceVersion"]))
        return complaint(change.foreign)

    def remove(self) -> None:
        """Have none of devherd's labels on it. Raises ApiError."""
        self.write({})


def difference(there: Mapping[str, str], owned: list[str], wanted: Mapping[str, str]) -> Difference:
    """What makes a node's labels those that are wanted, without touching what devherd has not written."""
    others = {name for name in there if name not in owned}
    mine = {name: value for name, value in wanted.items() if name not in others}
    changed: dict[str, str | None] = {name: value for name, value in mine.items() if there.get(name) != value}
    gone: dict[str, str | None] = {name: None for name in owned if name not in mine and name in there}
    foreign = sorted(name for name in wanted if name in others and there[name] != wanted[name])
    return Difference(changed | gone, sorted(mine), foreign)


def patch(change: Difference, version: str) -> Json:
    """What to merge into the Node, if it is still of this version."""
    annotations = {ANNOTATION: ",".join(change.owned) or None}
    return {"metadata": {"resourceVersion": version, "labels": change.labels, "annotations": annotations}}


def complaint(foreign: list[str]) -> str:
    """What to say of labels that are somebody else's; empty where there is none."""
    if not foreign:
        return ""
    others = f" and {len(foreign) - _NAMED} more" if len(foreign) > _NAMED else ""
    return (
        f"{', '.join(foreign[:_NAMED])}{others}: written by another program or a person, with other values, and left"
        " so: switch the other labeller off and remove its labels, or leave them out with `node_labels.omit`"
    )


def owned(metadata: Json) -> list[str]:
    """The names of the labels that devherd has put on a node, by the node's metadata."""
    return [name for name in metadata.get("annotations", {}).get(ANNOTATION, "").split(",") if name]
