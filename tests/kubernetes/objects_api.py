"""An API server with one node and NodeFeature objects: it merges, replaces and refuses what is out of date."""

import copy
from pathlib import Path

from small_api import SmallApi

NODE = "/api/v1/nodes/node-1"
FEATURES = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/devherd/nodefeatures"
FEATURE = f"{FEATURES}/devherd-features-for-node-1"
POD = "/api/v1/namespaces/devherd/pods/devherd-x"
DAEMON_SET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "devherd", "uid": "42"}


class ObjectsApi(SmallApi):
    """`objects` has what there is, by path."""

    def __init__(self, directory: Path) -> None:
        self.objects: dict[str, dict] = {
            NODE: {"metadata": {"name": "node-1", "labels": {}, "annotations": {}, "resourceVersion": "1"}},
            POD: {"metadata": {"name": "devherd-x", "ownerReferences": [DAEMON_SET | {"controller": True}]}},
        }
        self.remembered: dict[str, dict] = {}
        """What is answered from memory, by path, where that is older than what there is."""
        self.asked_of_memory = 0
        self.has_features = True
        """Whether Node Feature Discovery is installed."""
        self.refuses_events = False
        self.writes: list[str] = []
        directory.mkdir(parents=True)
        (directory / "namespace").write_text("devherd")
        super().__init__(directory)

    def answer(self, method: str, path: str, body: dict) -> tuple[int, dict]:
        path, _, query = path.partition("?")
        if self.refusal:
            return self.refusal[0], {"kind": "Status", "message": self.refusal[1]}
        if query == "resourceVersion=0":
            self.asked_of_memory += 1
            if path in self.remembered:
                return 200, self.remembered[path]
        if method != "GET":
            self.writes.append(f"{method} {path}")
        if method == "POST":
            return self._create(path, body)
        if path not in self.objects:
            return 404, {"message": f"{path} not found"}
        there = self.objects[path]
        if method in {"PATCH", "PUT"}:
            return self._change(method, path, body)
        if method == "DELETE":
            del self.objects[path]
        return 200, copy.deepcopy(there)

    def _create(self, path: str, body: dict) -> tuple[int, dict]:
        if path.endswith("/events"):
            if self.refuses_events:
                return 500, {"message": "etcd is slow"}
            self.events.append(body)
            return 201, body
        if not self.has_features or path != FEATURES:
            return 404, {"message": "the server could not find the requested resource"}
        body["metadata"]["resourceVersion"] = "1"
        self.objects[f"{path}/{body['metadata']['name']}"] = body
        return 201, body

    def _change(self, method: str, path: str, body: dict) -> tuple[int, dict]:
        there = self.objects[path]
        if body["metadata"]["resourceVersion"] != there["metadata"]["resourceVersion"]:
            return 409, {"message": "the object has been modified"}
        if method == "PUT":
            there = self.objects[path] = body
        else:
            merge(there["metadata"], body["metadata"])
        there["metadata"]["resourceVersion"] = str(len(self.writes) + 1)
        return 200, copy.deepcopy(there)


def merge(there: dict, changes: dict) -> None:
    """As a merge patch does: null removes."""
    for key, value in changes.items():
        if isinstance(value, dict):
            merge(there.setdefault(key, {}), value)
        elif value is None:
            there.pop(key, None)
        else:
            there[key] = value
