"""Labels of a Node: the three writers (NFD's feature file, a NodeFeature object, a patch), and the removal."""

import http
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from devherd import spool
from devherd.api_server import Api, ApiError, Json, past_conflicts
from devherd.config.api_access import ApiAccess
from devherd.kubernetes.condition import CONDITION, no_condition

LARGEST_BYTES = 65_536
"""NFD's worker ignores a larger file."""
LIFETIME_SECONDS = 24 * 3600.0
"""Without devherd, NFD removes its labels after this time: enough for a repair, during which pods keep their node."""
REFRESH_SECONDS = 3600.0
WORKER_LISTENS_AGAIN_SECONDS = 1.5
"""The worker reads at the first event, perhaps before the file is complete, and drops further events for a second
(`runNotifier` in source/local/local.go). It would find what it has missed only at its next poll, a minute later."""
_EXPIRY = "# +expiry-time="
_MODE = 0o644
"""Readable for the worker, which does not run as root."""
GROUP = "nfd.k8s-sigs.io/v1alpha1"
NODE_LABEL = "nfd.node.kubernetes.io/node-name"
ANNOTATION = "devherd.io/labels"
"""The names of the labels that devherd has written, separated by commas."""
_NAMED = 3


class CannotLabelError(Exception):
    """Labels cannot be written or removed: the place, and the reason with the cure."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place}: {why}")
        self.place = place
        self.why = why


class LabelWriter(Protocol):
    """A writer of labels. Both methods are idempotent."""

    def write(self, labels: Mapping[str, str]) -> str:
        """Set these labels, and remove others that this writer has written before.

        Returns which labels could not be set and why; empty if all are. Raises CannotLabelError and ApiError.
        """

    def remove(self) -> None:
        """Remove all labels of this writer. Raises CannotLabelError and ApiError."""


class FeatureFile:
    """NFD's feature file, replaced atomically: the worker ignores the temporary file, whose name begins with a dot.

    `pause` sleeps for a number of seconds.
    """

    def __init__(self, path: Path, pause: Callable[[float], None] = time.sleep) -> None:
        self._path = path
        self._pause = pause

    def write(self, labels: Mapping[str, str]) -> str:
        """Write the file; returns an empty text. Raises CannotLabelError."""
        now = time.time()
        if self._is_current(labels, now):
            return ""
        content = rendered(labels, now + LIFETIME_SECONDS)
        if len(content) > LARGEST_BYTES:
            why = f"{len(content)} bytes of labels exceed the limit of {LARGEST_BYTES}"
            raise CannotLabelError(str(self._path), f"{why}: leave some out with `node_labels.omit`")
        try:
            spool.replace(self._path, content, mode=_MODE)
            self._pause(WORKER_LISTENS_AGAIN_SECONDS)
            self._path.chmod(_MODE)  # no change, but an event for the worker
        except OSError as error:
            raise self._refused(error) from error
        return ""

    def remove(self) -> None:
        """Remove the file. Raises CannotLabelError."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise self._refused(error) from error

    def _is_current(self, labels: Mapping[str, str], now: float) -> bool:
        try:
            content = self._path.read_text()
        except (OSError, ValueError):
            return False
        expiry = expiry_in(content)
        return (
            now + LIFETIME_SECONDS - REFRESH_SECONDS <= expiry <= now + LIFETIME_SECONDS
            and content.encode() == rendered(labels, expiry)
        )

    def _refused(self, error: OSError) -> CannotLabelError:
        if isinstance(error, FileNotFoundError):
            whose = "does not exist, the directory of Node Feature Discovery's worker"
            return CannotLabelError(str(self._path.parent), f"{whose}: mount it, or choose another `node_labels.write`")
        return CannotLabelError(str(self._path), f"cannot be written: {error.strerror or error}")


def rendered(labels: Mapping[str, str], expiry: float) -> bytes:
    """The content of a feature file that expires at a Unix second."""
    time_text = datetime.fromtimestamp(int(expiry), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    lines = [f"{name}={value}" for name, value in sorted(labels.items())]
    return "\n".join(["# Written by devherd: node_labels", f"{_EXPIRY}{time_text}", *lines, ""]).encode()


def expiry_in(content: str) -> float:
    """The Unix second at which the labels of a file expire; 0 if it has none."""
    for line in content.splitlines():
        if line.startswith(_EXPIRY):
            try:
                return datetime.fromisoformat(line.removeprefix(_EXPIRY)).timestamp()
            except ValueError:
                break
    return 0.0


class NodeFeature:
    """NodeFeature `devherd-features-for-NODE` in the pod's namespace, owned by the pod's DaemonSet."""

    def __init__(self, api: Api, access: ApiAccess, node: str) -> None:
        self._api = api
        self._access = access
        self._node = node
        self._owners: list[Json] | None = None

    def write(self, labels: Mapping[str, str]) -> str:
        """Create or update the object; returns an empty text. Raises CannotLabelError and ApiError."""
        wanted = node_feature(self._name, self._node, labels, self._owners_of_the_pod())
        if (cached := self._get("?resourceVersion=0")) and _is_equal(cached, wanted):
            return ""
        there = self._get()
        if there is None:
            self._create(wanted)
        elif not _is_equal(there, wanted):
            wanted["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"]
            self._api.replace(f"{self._collection}/{self._name}", wanted)
        return ""

    def remove(self) -> None:
        """Remove the object. Raises CannotLabelError and ApiError."""
        self._api.delete(f"{self._collection}/{self._name}")

    @property
    def _name(self) -> str:
        return f"devherd-features-for-{self._node}"

    @property
    def _collection(self) -> str:
        namespace = self._access.namespace()
        if not namespace:
            why = "the namespace is unknown: neither the token's file `namespace` nor the kubeconfig names it"
            raise CannotLabelError("NodeFeature", why)
        return f"/apis/{GROUP}/namespaces/{namespace}/nodefeatures"

    def _get(self, query: str = "") -> Json | None:
        """The object; `?resourceVersion=0` has it from the API server's cache, which may be older."""
        try:
            return self._api.get(f"{self._collection}/{self._name}{query}")
        except ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                return None
            raise

    def _create(self, wanted: Json) -> None:
        try:
            self._api.create(self._collection, wanted)
        except ApiError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise
            why = "the cluster has no such kind: install Node Feature Discovery, or use `node_labels: {write: node}`"
            raise CannotLabelError(f"NodeFeature {self._name}", why) from error

    def _owners_of_the_pod(self) -> list[Json]:
        """The pod's DaemonSet as an owner; empty if unknown."""
        pod = os.environ.get("POD_NAME")
        if self._owners is None and pod:
            try:
                found = self._api.get(f"/api/v1/namespaces/{self._access.namespace()}/pods/{pod}", metadata_alone=True)
            except ApiError:
                return []  # perhaps the pod may not read pods: asked again with the next change
            self._owners = [
                {key: owner[key] for key in ("apiVersion", "kind", "name", "uid")}
                for owner in found["metadata"].get("ownerReferences", ())
                if owner.get("kind") == "DaemonSet"
            ]
        return self._owners or []


def node_feature(name: str, node: str, labels: Mapping[str, str], owners: list[Json]) -> Json:
    """The NodeFeature object."""
    metadata: Json = {"name": name, "labels": {NODE_LABEL: node}}
    if owners:
        metadata["ownerReferences"] = owners
    features: Json = {"attributes": {}, "flags": {}, "instances": {}}
    spec = {"features": features, "labels": dict(labels)}
    return {"apiVersion": GROUP, "kind": "NodeFeature", "metadata": metadata, "spec": spec}


def _is_equal(there: Json, wanted: Json) -> bool:
    old, new = there["metadata"], wanted["metadata"]
    return bool(
        there.get("spec", {}).get("labels", {}) == wanted["spec"]["labels"]
        and old.get("labels", {}).get(NODE_LABEL) == new["labels"][NODE_LABEL]
        and (old.get("ownerReferences", []) == new["ownerReferences"] if "ownerReferences" in new else True)
    )


@dataclass(frozen=True, slots=True)
class LabelDifference:
    """The changes to a node's labels, and the labels that belong to others."""

    labels: dict[str, str | None]
    """The labels to set; None: to remove."""
    owned: list[str]
    """The names of devherd's labels after the change."""
    foreign: list[str]
    """Names to which another program or a person has given other values."""


class NodePatch:
    """Writes the labels of the Node itself.

    `known` returns the last seen metadata of the Node, or None; outdated metadata are read again.
    """

    def __init__(self, api: Api, node: str, known: Callable[[], Json | None] = lambda: None) -> None:
        self._api = api
        self._path = f"/api/v1/nodes/{node}"
        self._known = known

    def write(self, labels: Mapping[str, str]) -> str:
        """Set these labels, except those that belong to others; returns a text about those. Raises ApiError."""
        known = self._known()
        if known is not None:
            try:
                return self._change(known, labels)
            except ApiError as error:
                if error.status != http.HTTPStatus.CONFLICT:
                    raise
        return self._change(self._api.get(self._path, metadata_alone=True)["metadata"], labels)

    def _change(self, metadata: Json, labels: Mapping[str, str]) -> str:
        change = difference(metadata.get("labels", {}), owned(metadata), labels)
        if change.labels or set(change.owned) != set(owned(metadata)):
            self._api.patch(self._path, patch(change, metadata["resourceVersion"]))
        return complaint(change.foreign)

    def remove(self) -> None:
        """Remove all of devherd's labels. Raises ApiError."""
        self.write({})


def difference(there: Mapping[str, str], owned: list[str], wanted: Mapping[str, str]) -> LabelDifference:
    """The changes from the present labels to the wanted ones that leave others' labels alone."""
    others = {name for name in there if name not in owned}
    mine = {name: value for name, value in wanted.items() if name not in others}
    changed: dict[str, str | None] = {name: value for name, value in mine.items() if there.get(name) != value}
    gone: dict[str, str | None] = {name: None for name in owned if name not in mine and name in there}
    foreign = sorted(name for name in wanted if name in others and there[name] != wanted[name])
    return LabelDifference(changed | gone, sorted(mine), foreign)


def patch(change: LabelDifference, version: str) -> Json:
    """The patch of the Node; the server refuses it if the Node has another version by then."""
    annotations = {ANNOTATION: ",".join(change.owned) or None}
    return {"metadata": {"resourceVersion": version, "labels": change.labels, "annotations": annotations}}


def complaint(foreign: list[str]) -> str:
    """The problem with labels that belong to others; empty if there are none."""
    if not foreign:
        return ""
    others = f" and {len(foreign) - _NAMED} more" if len(foreign) > _NAMED else ""
    return (
        f"{', '.join(foreign[:_NAMED])}{others}: written by another program or a person, with other values, and not"
        " changed: disable the other labeller and remove its labels, or leave them out with `node_labels.omit`"
    )


def owned(metadata: Json) -> list[str]:
    """The names of the labels that devherd has written, from the node's metadata."""
    return [name for name in metadata.get("annotations", {}).get(ANNOTATION, "").split(",") if name]


_NODES = "/api/v1/nodes"
_PAGE = 25
"""Nodes per page; each takes tens of KB, mostly for the list of its images."""


@dataclass(frozen=True, slots=True)
class WrittenToNode:
    """What devherd has written to a node."""

    node: str
    labels: list[str]
    """Names of the labels that devherd itself has written."""
    has_condition: bool

    def __str__(self) -> str:
        """A summary for users; empty if there is nothing to remove."""
        labels = f"{len(self.labels)} label{'s' * (len(self.labels) != 1)}" if self.labels else ""
        return ", ".join(filter(None, [labels, f"condition {CONDITION}" * self.has_condition]))


def written_on(node: Json) -> WrittenToNode:
    """The labels and the condition of a Node that devherd has written."""
    conditions = node.get("status", {}).get("conditions", [])
    return WrittenToNode(
        node=node["metadata"]["name"],
        labels=owned(node["metadata"]),
        has_condition=any(each.get("type") == CONDITION for each in conditions),
    )


def written_on_node(api: Api, name: str) -> WrittenToNode:
    """As `written_on`, for the Node of this name. Raises ApiError."""
    return written_on(api.get(f"{_NODES}/{quote(name, safe='')}"))


def written_on_every_node(api: Api) -> list[WrittenToNode]:
    """As `written_on`, for each Node of the cluster. Raises ApiError."""
    return api.collection(_NODES, written_on, page=_PAGE)[0]


def take_back(api: Api, written: WrittenToNode) -> None:
    """Remove devherd's labels and condition from the node; those of others stay. Raises ApiError."""
    if written.labels:
        past_conflicts(NodePatch(api, written.node).remove)
    if written.has_condition:
        api.patch(f"{_NODES}/{written.node}/status", no_condition())
