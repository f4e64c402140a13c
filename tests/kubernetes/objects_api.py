"""An API server with a Node that can be watched, Events and NodeFeature objects.

It merges, replaces, and refuses what is out of date or there already.
"""

import copy
import http.server
import json
import threading
import urllib.parse
from collections.abc import Callable
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
            NODE: new_node("1", "first"),
            POD: {"metadata": {"name": "devherd-x", "ownerReferences": [DAEMON_SET | {"controller": True}]}},
        }
        self.changed = threading.Condition()
        self.version = 1
        self.history: list[tuple[int, str, dict]] = []
        """What has happened to the Node: version, kind of event, the Node."""
        self.has_features = True
        """Whether Node Feature Discovery is installed."""
        self.refuses_events = False
        self.writes: list[str] = []
        self.reads = self.watches = 0
        """Of the Node: how often it was read, and how many watches run."""
        self.has_forgotten = False
        """Whether it says so of the version from which the next watch wants to go on."""
        self.may_watch = True
        self.is_ended = False
        directory.mkdir(parents=True)
        (directory / "namespace").write_text("devherd")
        super().__init__(directory)

    def state(self) -> object:
        return self.objects, self.events

    def close(self) -> None:
        self.end_watches()
        super().close()

    def label(self, name: str, value: str | None) -> None:
        """As a person would."""
        self.relabel(merged(self.objects[NODE]["metadata"]["labels"], {name: value}))

    def relabel(self, labels: dict[str, str]) -> None:
        """The Node has these labels from now on."""
        with self.changed:
            self.objects[NODE]["metadata"]["labels"] = labels
            self._note("MODIFIED", self.objects[NODE])

    def delete_node(self) -> None:
        """As `kubectl delete node`."""
        with self.changed:
            self._note("DELETED", self.objects.pop(NODE))

    def create_node(self, uid: str) -> None:
        """As the kubelet does when it registers."""
        with self.changed:
            self.objects[NODE] = new_node("", uid)
            self._note("ADDED", self.objects[NODE])

    def conditions(self) -> dict[str, dict]:
        """Of the Node, by type."""
        with self.changed:
            return {each["type"]: each for each in self.objects.get(NODE, new_node("", ""))["status"]["conditions"]}

    def end_watches(self) -> None:
        """Each watch that runs comes to its end."""
        with self.changed:
            self.is_ended = True
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.watches == 0, 10)
            self.is_ended = False

    def answer(self, method: str, path: str, body: dict) -> tuple[int, dict]:
        path, _, _ = path.partition("?")
        if self.refusal:
            return self.refusal[0], {"kind": "Status", "message": self.refusal[1]}
        with self.changed:
            if method != "GET":
                self.writes.append(f"{method} {path}")
            if method == "POST":
                return self._create(path, body)
            if "/events/" in path:
                return self._change_event(path, body)
            self.reads += method == "GET" and path == NODE
            if path.removesuffix("/status") not in self.objects:
                return 404, {"message": f"{path} not found"}
            if method in {"PATCH", "PUT"}:
                return self._change(method, path, body)
            there = self.objects[path]
            if method == "DELETE":
                del self.objects[path]
            return 200, copy.deepcopy(there)

    def _create(self, path: str, body: dict) -> tuple[int, dict]:
        if path.endswith("/events"):
            if self.refuses_events:
                return 500, {"message": "etcd is slow"}
            if any(each["metadata"]["name"] == body["metadata"]["name"] for each in self.events):
                return 409, {"message": "already exists"}
            self.events.append(body)
            return 201, body
        if not self.has_features or path != FEATURES:
            return 404, {"message": "the server could not find the requested resource"}
        body["metadata"]["resourceVersion"] = "1"
        self.objects[f"{path}/{body['metadata']['name']}"] = body
        return 201, body

    def _change_event(self, path: str, body: dict) -> tuple[int, dict]:
        for event in self.events:
            if event["metadata"]["name"] == path.rpartition("/")[2]:
                event.update(body)
                return 200, event
        return 404, {"message": f"{path} not found"}

    def _change(self, method: str, path: str, body: dict) -> tuple[int, dict]:
        if path == f"{NODE}/status":
            there = self.objects[NODE]
            changed = body["status"]["conditions"]
            kept = [each for each in there["status"]["conditions"] if each["type"] not in {c["type"] for c in changed}]
            there["status"]["conditions"] = kept + [each for each in changed if "$patch" not in each]
            self._note("MODIFIED", there)
            return 200, copy.deepcopy(there)
        there = self.objects[path]
        if body["metadata"]["resourceVersion"] != there["metadata"]["resourceVersion"]:
            return 409, {"message": "the object has been modified"}
        if method == "PUT":
            there = self.objects[path] = body
        else:
            merge(there["metadata"], body["metadata"])
        if path == NODE:
            self._note("MODIFIED", there)
        else:
            there["metadata"]["resourceVersion"] = str(len(self.writes) + 1)
        return 200, copy.deepcopy(there)

    def _note(self, kind: str, node: dict) -> None:
        self.version += 1
        node["metadata"]["resourceVersion"] = str(self.version)
        self.history.append((self.version, kind, copy.deepcopy(node)))
        self.changed.notify_all()

    def _handler(api) -> type[http.server.BaseHTTPRequestHandler]:  # noqa: N805 - the handler has a self of its own
        class Handler(super()._handler()):
            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                if path != "/api/v1/nodes" or api.refusal:
                    super().do_GET()
                    return
                api.calls.append((self.command, self.path, self.headers["Accept"]))
                asked = dict(urllib.parse.parse_qsl(query))
                assert (asked["watch"], asked["fieldSelector"]) == ("true", "metadata.name=node-1")
                if not api.may_watch:
                    self._refuse(b'{"message": "nodes is forbidden: cannot watch"}')
                    return
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self._watch(int(asked["resourceVersion"]))
                self.wfile.write(b"0\r\n\r\n")

            def _refuse(self, content: bytes) -> None:
                self.send_response(403)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def _watch(self, version: int) -> None:
                with api.changed:
                    api.watches += 1
                    try:
                        api.tell_changes(version, self._tell)
                    finally:
                        api.watches -= 1
                        api.changed.notify_all()

            def _tell(self, kind: str, changed: dict) -> None:
                line = json.dumps({"type": kind, "object": changed}).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

        return Handler

    def tell_changes(self, version: int, tell: Callable[[str, dict], None]) -> None:
        """What a watch from this version is told, until it is ended."""
        if self.has_forgotten:
            self.has_forgotten = False
            tell("ERROR", {"code": 410, "message": "too old resource version"})
            return
        tell("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})
        told = [version]
        while self.changed.wait_for(lambda: self.is_ended or self.version > told[-1], 60) and not self.is_ended:
            for number, kind, node in self.history:
                if number > told[-1]:
                    tell(kind, node)
            told.append(self.version)


def new_node(version: str, uid: str) -> dict:
    """A Node as a kubelet has just made it."""
    metadata = {"name": "node-1", "uid": uid, "labels": {}, "annotations": {}, "resourceVersion": version}
    return {"metadata": metadata, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}


def merged(there: dict, changes: dict) -> dict:
    """A changed copy."""
    made = copy.deepcopy(there)
    merge(made, changes)
    return made


def merge(there: dict, changes: dict) -> None:
    """As a merge patch does: null removes."""
    for key, value in changes.items():
        if isinstance(value, dict):
            merge(there.setdefault(key, {}), value)
        elif value is None:
            there.pop(key, None)
        else:
            there[key] = value
