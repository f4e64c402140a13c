"""Slices at a real API server: what it makes of them is no difference, and what others do is repaired."""

import threading
import time

import pytest
from bare_api_server import BareApiServer
from published_node import NODE, PublishedNode
from slice_store import SliceStore

from devherd.api_server import Api
from devherd.dra.slice_plan import content_of
from devherd.history import History
from devherd.kubernetes.problems import Problems
from devherd.kubernetes.slice_watch import SLICES, SliceWatch
from devherd.kubernetes.slices import SlicePublisher
from devherd.settings import Settings
from devherd.waits import Waits

WAITS = Waits(watch_again=0.1, watch_again_at_last=0.5)


@pytest.fixture(scope="module")
def server(programs, tmp_path_factory):
    made = BareApiServer(programs, tmp_path_factory.mktemp("server"))
    yield made
    made.close()


class RealPublishing:
    """The publisher of a node on a server, tended as its process does."""

    def __init__(self, directory, server):
        self.server = server
        self.settings = Settings(run_dir=directory, waits=WAITS)
        self.node = PublishedNode(self.settings, "everything", simulated=70)
        self.node.write()
        self.drivers = sorted(self.node.files().pools.devices)
        self.changed = threading.Event()
        self.api = Api(server.access)
        watch = SliceWatch(Api(server.access), NODE, self.changed, waits=WAITS)
        self.problems = Problems(self.settings, "slices", History(self.settings.history_directory, "kubernetes"))
        self.part = SlicePublisher(self.settings, self.problems, self.api, watch, node=NODE, effect="NoSchedule")
        watch.start()
        self.node.register(*self.drivers)

    def slices(self):
        """By driver."""
        found = {}
        for each in self.server.ask(SLICES)[1]["items"]:
            found.setdefault(each["spec"]["driver"], []).append(each)
        return found

    def is_published(self):
        uid = self.server.ask(f"/api/v1/nodes/{NODE}")[1]["metadata"]["uid"]
        wanted, there = self.node.wanted(uid), self.slices()
        contents = [{name: [*map(content_of, each)] for name, each in of.items()} for of in (wanted, there)]
        owners = {
            one["uid"]
            for of in there.values()
            for each in of
            for one in each["metadata"].get("ownerReferences", ({"uid": ""},))
        }
        return contents[0] == contents[1] and owners == {uid}

    def until_published(self):
        deadline = time.monotonic() + 60
        while not self.is_published():
            assert time.monotonic() < deadline, self.problems._problem
            self.part.tend()
            self.changed.wait(0.05)
            self.changed.clear()

    def until_at_rest(self):
        """Until all is written, and each echo of it has come."""
        self.until_published()
        for _ in range(20):
            self.part.tend()
            self.changed.wait(0.02)
            self.changed.clear()

    def versions(self):
        return {
            one["metadata"]["name"]: one["metadata"]["resourceVersion"] for of in self.slices().values() for one in of
        }


@pytest.fixture
def publishing(server, tmp_path):
    server.ask("/api/v1/nodes", "POST", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    made = RealPublishing(tmp_path / "run", server)
    yield made
    made.api.close()
    server.ask(SLICES, "DELETE")
    server.ask(f"/api/v1/nodes/{NODE}", "DELETE")


def test_a_real_server_has_every_driver_and_nothing_is_written_twice(publishing):
    """Devices of every vendor, an ill one in a pool of several slices: it normalises, and is left in peace then."""
    publishing.node.reasons[publishing.node.keys("simulated.devherd.io")[65]] = ["wedged", "cordoned"]
    publishing.node.write()
    publishing.until_at_rest()
    before = publishing.versions()
    assert len(before) == len(publishing.drivers) + 1
    publishing.part._seen = None
    publishing.until_at_rest()
    assert publishing.versions() == before
    assert publishing.problems._problem is None


def test_what_others_do_at_a_real_server_is_repaired(publishing):
    """Wiped as a kubelet does, edited, foreign, a generation far ahead, a Node made anew, the server restarted."""
    publishing.until_at_rest()
    server = publishing.server
    assert server.ask(f"{SLICES}?fieldSelector=spec.nodeName%3D{NODE}", "DELETE", agent="kubelet")[0] == 200
    publishing.until_published()
    one = publishing.slices()["gpu.amd.com"][0]
    one["spec"]["devices"].pop()
    one["spec"]["pool"]["generation"] = 2**63 - 1
    assert server.ask(f"{SLICES}/{one['metadata']['name']}", "PUT", one)[0] == 200
    publishing.until_published()
    foreign = {**one, "metadata": {"name": "a-name"}}
    assert server.ask(SLICES, "POST", foreign)[0] == 201
    publishing.until_published()
    server.ask(f"/api/v1/nodes/{NODE}", "DELETE")
    server.ask("/api/v1/nodes", "POST", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    server.ask(SLICES, "DELETE", agent="garbage-collector")
    publishing.until_published()
    server.stop_server()
    publishing.node.reasons[publishing.node.keys("gpu.amd.com")[0]] = ["wedged"]
    publishing.node.write()
    publishing.part.tend()
    server.start_server()
    publishing.until_published()


def test_the_store_of_the_other_tests_does_what_a_real_server_does(publishing):
    """The same slice, sent to both: what each makes of it, and of its change."""
    publishing.until_at_rest()
    server, store = publishing.server, SliceStore()
    for driver, slices in publishing.node.wanted("uid").items():
        sent = {**slices[0], "metadata": {"name": f"alike-{driver}"}}
        sent["spec"] = {**sent["spec"], "nodeName": "node-2", "pool": {**sent["spec"]["pool"], "name": "node-2"}}
        for device in sent["spec"]["devices"][:2]:
            device["taints"] = [{"key": "devherd.io/gone", "effect": "NoSchedule"}]
        status, answer = server.ask(SLICES, "POST", sent)
        assert (status, content_of(answer)) == (201, content_of(store.create(sent)[1]))
        assert content_of(answer) == content_of(sent)
        name = answer["metadata"]["name"]
        stale = {**answer, "metadata": {**answer["metadata"], "labels": {"a": "b"}}}
        assert server.ask(f"{SLICES}/{name}", "PUT", stale)[0] == 200
        stale["metadata"]["labels"] = {"a": "c"}
        assert server.ask(f"{SLICES}/{name}", "PUT", stale)[0] == 409
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "another"}}
        assert server.ask(f"{SLICES}/{name}", "DELETE", options)[0] == 409
        assert server.ask(f"{SLICES}/{name}", "DELETE")[0] == 200


def test_a_server_without_the_gates_of_taints_has_no_ill_device(programs, tmp_path):
    """As releases before 1.36 are: it drops the field, which is asked first."""
    gates = "--feature-gates=DRADeviceTaints=false,DRADeviceTaintRules=false"
    server = BareApiServer(programs, tmp_path, gates)
    try:
        server.ask("/api/v1/nodes", "POST", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        publishing = RealPublishing(tmp_path / "run", server)
        ill, name = publishing.node.keys("gpu.amd.com")[0], publishing.node.files().pools.devices["gpu.amd.com"][0].name
        publishing.node.reasons[ill] = ["wedged"]
        publishing.node.write()
        deadline = time.monotonic() + 60
        while set(publishing.slices()) != set(publishing.drivers):
            assert time.monotonic() < deadline
            publishing.part.tend()
            publishing.changed.wait(0.05)
        names = [one["name"] for each in publishing.slices()["gpu.amd.com"] for one in each["spec"]["devices"]]
        assert name not in names
        publishing.node.reasons[ill] = []
        publishing.node.write()
        publishing.until_published()
    finally:
        server.close()
