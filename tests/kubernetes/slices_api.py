"""An API server with a Node and ResourceSlices that can be watched."""

import http.server
import json
import threading
import time
import urllib.parse
from pathlib import Path

from slice_store import SliceStore, status
from small_api import SmallApi

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
NODE = "/api/v1/nodes/node-1"


class SlicesApi(SmallApi):
    """`store` has the slices; use `deed` for what others do to them."""

    def __init__(self, directory: Path) -> None:
        self.store = SliceStore()
        self.node_uid = "first"
        """Empty: there is no Node."""
        self.refusals: dict[str, tuple[int, str]] = {}
        """By method, or by method and driver: status and message of each such call."""
        self.may_watch = True
        self.has_forgotten = False
        """Whether it says so of the version from which the next watch wants to go on."""
        self.asked: list[str] = []
        """Method and path of each call."""
        self.created_at = 0.0
        """Monotonic second of the last creation."""
        self.watches = 0
        self.changed = threading.Condition()
        self.is_ended = False
        super().__init__(directory)

    def state(self) -> object:
        return self.asked[-20:], self.store.slices

    def close(self) -> None:
        self.end_watches()
        super().close()

    def end_watches(self) -> None:
        """Each watch that runs comes to its end."""
        with self.changed:
            self.is_ended = True
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.watches == 0, 10)
            self.is_ended = False

    def deed(self, do, *arguments: object) -> object:
        """What `do` does to the store is told to watches."""
        with self.changed:
            done = do(*arguments)
            self.changed.notify_all()
            return done

    def writes(self) -> list[str]:
        """The calls that change something, if only as a trial."""
        with self.changed:
            return [call for call in self.asked if not call.startswith("GET ")]

    def answer(self, method: str, path: str, body: dict) -> tuple[int, dict]:
        path, _, query = path.partition("?")
        asked = dict(urllib.parse.parse_qsl(query))
        driver = body.get("spec", {}).get("driver", "")
        with self.changed:
            self.asked.append(f"{method} {path}{'?' + query if query and method != 'GET' else ''}")
            if refusal := self.refusal or self.refusals.get(f"{method} {driver}") or self.refusals.get(method):
                return refusal[0], status(refusal[1])
            if path == NODE:
                if not self.node_uid:
                    return 404, status('nodes "node-1" not found')
                return 200, {"metadata": {"name": "node-1", "uid": self.node_uid, "resourceVersion": "1"}}
            if not path.startswith(SLICES):
                return 404, status("the server could not find the requested resource")
            name = path.removeprefix(SLICES).removeprefix("/")
            try:
                return self._answer(method, name, asked, body)
            finally:
                self.changed.notify_all()

    def _answer(self, method: str, name: str, asked: dict, body: dict) -> tuple[int, dict]:
        if method == "GET":
            names = [each for each in sorted(self.store.slices) if each > asked.get("continue", "")]
            node = asked["fieldSelector"].removeprefix("spec.nodeName=")
            names = [each for each in names if self.store.slices[each]["spec"]["nodeName"] == node]
            page = names[: int(asked["limit"])]
            more = {"continue": page[-1]} if len(names) > len(page) else {}
            items = [self.store.slices[each] for each in page]
            return 200, {"metadata": {"resourceVersion": str(self.store.version), **more}, "items": items}
        if method == "POST":
            self.created_at = time.monotonic()
            return self.store.create(body, "devherd", is_dry=asked.get("dryRun") == "All")
        if method == "PUT":
            return self.store.replace(name, body, "devherd")
        return self.store.delete(name, body.get("preconditions"))

    def _handler(api) -> type[http.server.BaseHTTPRequestHandler]:  # noqa: N805 - the handler has a self of its own
        class Handler(super()._handler()):
            def do_GET(self) -> None:
                asked = dict(urllib.parse.parse_qsl(self.path.partition("?")[2]))
                if "watch" not in asked or api.refusal or not api.may_watch:
                    if "watch" in asked and not api.may_watch and not api.refusal:
                        self.path = "/forbidden"
                        api.refusals["GET"] = 403, "resourceslices is forbidden: cannot watch"
                        super().do_GET()
                        del api.refusals["GET"]
                        return
                    super().do_GET()
                    return
                assert asked["fieldSelector"] == "spec.nodeName=node-1"
                assert self.headers["User-Agent"] == "devherd"
                api.calls.append((self.command, self.path, self.headers["Accept"]))
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                with api.changed:
                    api.asked.append("GET watch")
                    api.watches += 1
                    try:
                        api.tell_changes(int(asked["resourceVersion"]), self._tell)
                    finally:
                        api.watches -= 1
                        api.changed.notify_all()
                self.wfile.write(b"0\r\n\r\n")

            def _tell(self, kind: str, changed: dict) -> None:
                line = json.dumps({"type": kind, "object": changed}).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

        return Handler

    def tell_changes(self, version: int, tell) -> None:
        """What a watch from this version is told, until it is ended."""
        if self.has_forgotten:
            self.has_forgotten = False
            tell("ERROR", {"code": 410, "message": "too old resource version"})
            return
        tell("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})
        told = version
        while not self.is_ended:
            for number, kind, slice_ in self.store.history:
                if number > told and slice_["spec"]["nodeName"] == "node-1":
                    tell(kind, slice_)
            told = self.store.version
            self.changed.wait_for(lambda seen=told: self.is_ended or self.store.version > seen, 60)
