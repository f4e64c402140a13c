"""Labels by a NodeFeature object, which Node Feature Discovery's master reads.

<https://kubernetes-sigs.github.io/node-feature-discovery/stable/usage/custom-resources.html#nodefeature>
"""

import http
import os
from collections.abc import Mapping

from devherd.kubernetes.access import Access
from devherd.kubernetes.api import Api, ApiError, Json
from devherd.kubernetes.labels_way import CannotLabelError

GROUP = "nfd.k8s-sigs.io/v1alpha1"
NODE_LABEL = "nfd.node.kubernetes.io/node-name"


class NodeFeature:
    """`devherd-features-for-NODE` in the pod's namespace. It belongs to the pod's DaemonSet, and goes with it."""

    def __init__(self, api: Api, access: Access, node: str) -> None:
        self._api = api
        self._access = access
        self._node = node
        self._owners: list[Json] | None = None

    def write(self, labels: Mapping[str, str]) -> str:
        """Have these labels in it; an empty text. Raises CannotLabelError and ApiError."""
        there = self._get()
        wanted = node_feature(self._name, self._node, labels, self._owners_of_the_pod())
        if there is None:
            self._create(wanted)
        elif not _says(there, wanted):
            wanted["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"]
            self._api.replace(f"{self._collection}/{self._name}", wanted)
        return ""

    def remove(self) -> None:
        """Have no such object. Raises CannotLabelError and ApiError."""
        self._api.delete(f"{self._collection}/{self._name}")

    @property
    def _name(self) -> str:
        return f"devherd-features-for-{self._node}"

    @property
    def _collection(self) -> str:
        namespace = self._access.namespace()
        if not namespace:
            raise CannotLabelError("NodeFeature", "the pod's namespace is unknown: its token has no file `namespace`")
        return f"/apis/{GROUP}/namespaces/{namespace}/nodefeatures"

    def _get(self) -> Json | None:
        try:
            return self._api.get(f"{self._collection}/{self._name}")
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
        """Its DaemonSet; nobody where that is unknown."""
        pod = os.environ.get("POD_NAME")
        if self._owners is None and pod:
            try:
                found = self._api.get(f"/api/v1/namespaces/{self._access.namespace()}/pods/{pod}", metadata_alone=True)
            except ApiError:
                return []  # the right to read pods is for this alone: asked again with the next change
            self._owners = [
                {key: owner[key] for key in ("apiVersion", "kind", "name", "uid")}
                for owner in found["metadata"].get("ownerReferences", ())
                if owner.get("kind") == "DaemonSet"
            ]
        return self._owners or []


def node_feature(name: str, node: str, labels: Mapping[str, str], owners: list[Json]) -> Json:
    """The object."""
    metadata: Json = {"name": name, "labels": {NODE_LABEL: node}}
    if owners:
        metadata["ownerReferences"] = owners
    features: Json = {"attributes": {}, "flags": {}, "instances": {}}
    spec = {"features": features, "labels": dict(labels)}
    return {"apiVersion": GROUP, "kind": "NodeFeature", "metadata": metadata, "spec": spec}


def _says(there: Json, wanted: Json) -> bool:
    old, new = there["metadata"], wanted["metadata"]
    return bool(
        there.get("spec", {}).get("labels", {}) == wanted["spec"]["labels"]
        and old.get("labels", {}).get(NODE_LABEL) == new["labels"][NODE_LABEL]
        and (old.get("ownerReferences", []) == new["ownerReferences"] if "ownerReferences" in new else True)
    )
