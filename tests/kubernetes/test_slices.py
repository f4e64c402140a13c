"""The slices of a node: what is published, and how soon."""

import os
import random
import time
from dataclasses import replace

from client import Client
from published_node import NODE, PublishedNode
from publishing_part import AMD, SIMULATED, Publishing
from slices_api import SLICES

from devherd.api_server import RateLimit
from devherd.config.resolved import ResolvedConfig, write_resolved
from devherd.config.sections import KubernetesOptions
from devherd.history import History
from devherd.kubernetes import slices
from devherd.kubernetes.access import needs_process
from devherd.kubernetes.problems import Problems
from devherd.kubernetes.slices import SlicePublisher
from devherd.settings import Settings


def test_a_driver_is_published_once_the_kubelet_has_registered_it(publishing):
    """A pod that came earlier would wait for the driver for more than a minute."""
    publishing.until(lambda: publishing.server.watches == 1, "it watches")
    for _ in range(3):
        publishing.part.tend()
    assert publishing.server.writes() == []
    publishing.node.register(AMD, process="b")
    publishing.until_published(AMD)
    [slice_] = publishing.of(AMD)
    assert slice_["metadata"]["name"].startswith(f"00000-{AMD}-{NODE}-")
    assert slice_["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "first", "controller": True}
    ]
    assert slice_["spec"]["pool"] == {"name": NODE, "generation": 1, "resourceSliceCount": 1}


def test_a_published_node_asks_nothing_but_one_watch(publishing):
    """One list, one read of the Node, one write, and then silence. A restart of the process writes nothing."""
    publishing.node.register(AMD)
    publishing.until_published(AMD)
    publishing.settle()
    for _ in range(10):
        publishing.part.tend()
    assert sorted(publishing.server.asked) == sorted(
        ["GET /apis/resource.k8s.io/v1/resourceslices", "GET watch", "GET /api/v1/nodes/node-1", f"POST {SLICES}"]
    )
    publishing.start()
    publishing.until(lambda: publishing.part._drivers, "it has begun")
    publishing.settle()
    assert publishing.server.writes() == [f"POST {SLICES}"]


def test_all_drivers_of_a_node_are_published_over_one_watch(tmp_path, server):
    """A pool of more than 64 devices has several slices, in one generation."""
    publishing = Publishing(tmp_path / "run", server, name="everything", simulated=150)
    publishing.node.write()
    drivers = sorted(publishing.node.files().pools.devices)
    assert len(drivers) >= 6
    publishing.node.register(*drivers)
    publishing.until_published(*drivers)
    assert [len(each["spec"]["devices"]) for each in publishing.of(SIMULATED)] == [64, 64, 22]
    assert len([call for call in server.asked if call == "GET watch"]) == 1
    publishing.api.close()


def test_a_driver_with_more_slices_than_may_be_written_at_once_is_published(tmp_path, server):
    """And is so after a change of each of them."""
    publishing = Publishing(tmp_path / "run", server, simulated=710)
    publishing.node.write()
    publishing.node.register(SIMULATED)
    publishing.until_published(SIMULATED)
    assert len(publishing.of(SIMULATED)) == 12
    publishing.node.away = set(publishing.node.keys(SIMULATED)[:1])
    publishing.node.write()
    publishing.until_published(SIMULATED)
    publishing.settle()
    assert len(publishing.server.writes()) == 24


def test_an_ill_device_is_tainted_with_its_reason_and_keeps_the_time(publishing):
    """NoSchedule, or what `health.taint` says; a cordon keeps new pods away and no more."""
    first, *_ = publishing.node.keys(AMD)
    publishing.node.register(AMD)
    publishing.until_published(AMD)
    publishing.node.reasons[first] = ["wedged"]
    publishing.node.write()
    publishing.until_published(AMD)
    name = publishing.node.files().pools.devices[AMD][0].name
    [taint] = publishing.devices(AMD)[name]["taints"]
    assert (taint["key"], taint["effect"]) == ("devherd.io/wedged", "NoSchedule")
    publishing.node.reasons[first] = ["cordoned", "wedged"]
    publishing.node.write()
    publishing.until_published(AMD)
    assert publishing.devices(AMD)[name]["taints"][1] == taint
    publishing.start(effect="NoExecute")
    publishing.until(lambda: publishing.devices(AMD)[name]["taints"][1]["effect"] == "NoExecute")
    assert publishing.devices(AMD)[name]["taints"][0]["effect"] == "NoSchedule"
    publishing.node.reasons[first] = []
    publishing.node.write()
    publishing.until_published(AMD)
    assert "taints" not in publishing.devices(AMD)[name]


def test_a_device_that_is_gone_is_withdrawn_unless_a_claim_holds_it(publishing):
    """Held, it stays with a taint: what its pod's claim says of it is told by its slice."""
    first, *_ = publishing.node.keys(AMD)
    name = publishing.node.files().pools.devices[AMD][0].name
    publishing.node.register(AMD)
    publishing.until_published(AMD)
    publishing.node.hold(name, driver=AMD)
    publishing.node.gone(first)
    publishing.node.write()
    publishing.until(lambda: publishing.devices(AMD)[name].get("taints"), "it is tainted")
    assert publishing.devices(AMD)[name]["taints"][0]["key"] == "devherd.io/gone"
    publishing.node.hold(driver=AMD)
    publishing.until(lambda: name not in publishing.devices(AMD), "it is withdrawn")
    publishing.node.gone(first, since=None)
    publishing.node.write()
    publishing.until_published(AMD)
    assert name in publishing.devices(AMD)


def test_a_device_that_is_read_anew_stays_published(publishing, monkeypatch):
    """After a start facts come a second late: it is not away meanwhile. One that is read for long is withdrawn."""
    now = [time.monotonic()]
    monkeypatch.setattr(slices.time, "monotonic", lambda: now[0])
    publishing.node.register(AMD)
    publishing.until_published(AMD)
    publishing.settle()
    before = publishing.of(AMD)
    publishing.node.read_anew(publishing.node.keys(AMD)[0], "vram_bytes")
    publishing.start()
    for _ in range(5):
        publishing.part.tend()
    assert publishing.of(AMD) == before
    now[0] += slices._EARLY_SECONDS + 1
    publishing.until(lambda: not publishing.devices(AMD), "it is withdrawn")


def test_a_device_that_is_read_anew_for_long_is_withdrawn_though_nothing_else_happens(publishing, monkeypatch):
    """All was as it was to be before, so that nothing was due."""
    now = [time.monotonic()]
    monkeypatch.setattr(slices.time, "monotonic", lambda: now[0])
    publishing.node.register(AMD)
    publishing.until_published(AMD)
    publishing.settle()
    publishing.node.read_anew(publishing.node.keys(AMD)[0], "vram_bytes")
    for _ in range(5):
        publishing.part.tend()
    assert publishing.devices(AMD)
    now[0] += slices._EARLY_SECONDS
    for _ in range(5):
        publishing.part.tend()
    assert not publishing.devices(AMD)
    publishing.settle()


def test_a_driver_that_always_has_something_to_write_keeps_no_other_from_it(tmp_path, server, monkeypatch):
    """A device whose health changes all the time uses up the limit of writes."""
    publishing = Publishing(tmp_path / "run", server, simulated=1)
    publishing.node.write()
    publishing.node.register(AMD)
    publishing.until_published(AMD)
    publishing.node.register(AMD, SIMULATED)
    [key, *_] = publishing.node.keys(AMD)
    left = []
    monkeypatch.setattr(RateLimit, "allows", lambda _limit: bool(left and left.pop()))
    rounds = iter(range(20))

    def flaps():
        publishing.node.reasons[key] = [f"reason-{next(rounds)}"]
        publishing.node.write()
        left[:] = [True]  # one write a round
        return publishing.of(SIMULATED)

    publishing.until(flaps, "the other driver is published")


def test_a_process_without_an_api_server_says_so(tmp_path):
    """In words: no slice, no pod."""
    settings = Settings(run_dir=tmp_path / "run")
    problems = Problems(settings, "slices", History(settings.history_directory, "kubernetes"))
    part = SlicePublisher(settings, problems, None, None, node=NODE, effect="NoSchedule")
    part.tend()
    assert "no ResourceSlices are published: there is no API server to talk to" in problems._problem.error


def test_a_driver_whose_devices_have_all_gone_has_no_slices(publishing):
    """Nobody serves it then, or soon."""
    publishing.node.register(AMD)
    publishing.until_published(AMD)
    keys = publishing.node.keys(AMD)
    publishing.node.away = set(keys)
    publishing.node.write()
    publishing.until(lambda: not publishing.of(AMD), "they are gone")
    publishing.node.away = set()
    publishing.node.write()
    publishing.until_published(AMD)


def test_what_this_process_wrote_is_not_undone_by_older_news(publishing):
    """The watch tells of each write once more, and a list may be older than it."""
    publishing.node.register(AMD)
    publishing.until_published(AMD)
    publishing.settle()
    [slice_] = publishing.of(AMD)
    changes = publishing.watch.changes
    older = {**slice_, "metadata": {**slice_["metadata"], "resourceVersion": "1"}}
    publishing.watch._take("MODIFIED", older)
    publishing.watch._take("MODIFIED", slice_)
    assert publishing.watch.changes == changes
    publishing.watch.removed(slice_)
    publishing.watch._take("MODIFIED", slice_)
    assert publishing.watch.of(AMD) == []
    publishing.watch._take("DELETED", {"metadata": {"resourceVersion": "9"}})


def test_a_slice_that_was_wiped_before_its_write_was_answered_is_back(publishing):
    """Defect: the answer put it back into what this process believed to be there, for ever."""
    publishing.node.register(AMD)
    publishing.until_published(AMD)
    real = publishing.api.replace

    def replace_slowly(path, body):
        answer = real(path, body)
        publishing.server.deed(publishing.server.store.delete, answer["metadata"]["name"])
        publishing.until_told(str(publishing.server.store.version))
        return answer

    publishing.api.replace = replace_slowly
    publishing.node.reasons[publishing.node.keys(AMD)[0]] = ["wedged"]
    publishing.node.write()
    publishing.until(lambda: publishing.server.store.history[-1][1] == "DELETED", "it is wiped")
    publishing.api.replace = real
    publishing.until_published(AMD)


class Chance:
    """What happens on a node: to its devices, its instance, and at the API server."""

    def __init__(self, publishing, drivers):
        self.chance = random.Random(39)
        self.publishing, self.drivers = publishing, drivers
        self.node, self.server, self.store = publishing.node, publishing.server, publishing.server.store
        self.keys = sorted(self.node.entries)

    def deeds(self):
        of_devices = [self.health, self.health, self.hot_plug, self.gone]
        of_others = [self.wipe, self.write, self.write, self.make_the_node_anew, self.break_the_watch]
        return [*of_devices, *of_others, self.reload, self.publishing.start]

    def step(self):
        for deed in self.chance.sample(self.deeds(), self.chance.choice([1, 1, 2])):
            deed()
        self.node.write()

    def health(self):
        reasons = self.chance.choice([[], ["wedged"], ["cordoned"], ["cordoned", "xid"]])
        self.node.reasons[self.chance.choice(self.keys)] = reasons

    def hot_plug(self):
        self.node.away ^= {self.chance.choice(self.keys)}

    def gone(self):
        key = self.chance.choice(self.keys)
        self.node.gone(key, None if self.node.entries[key].gone_since is not None else 1.0)

    def reload(self):
        self.publishing.settings.resolved_config_file.write_text(str(self.chance.random()))

    def wipe(self):
        for each in self.publishing.of(self.chance.choice(self.drivers)):
            self.server.deed(self.store.delete, each["metadata"]["name"])

    def write(self):
        """By another each time: one who comes back is left alone."""
        there = self.publishing.of(self.chance.choice(self.drivers))
        if there:
            name, manager = self.chance.choice(there)["metadata"]["name"], f"writer-{self.chance.random()}"
            self.server.deed(self.store.change, name, self.chance.choice(CHANGES), manager)

    def make_the_node_anew(self):
        self.server.node_uid = str(self.chance.random())
        for each in list(self.store.slices):
            self.server.deed(self.store.delete, each)

    def break_the_watch(self):
        self.server.has_forgotten = True
        self.server.end_watches()


ROUNDS = int(os.environ.get("DEVHERD_TEST_CHANGES", "50"))
CHANGES = [
    lambda each: each["spec"].pop("devices", None),
    lambda each: each["spec"]["pool"].update(generation=each["spec"]["pool"]["generation"] + 5),
    lambda each: each["metadata"].pop("ownerReferences"),
    lambda each: each["spec"].get("devices", [{}])[-1].update(allowMultipleAllocations=True),
]


def test_random_changes_are_each_published(tmp_path, server, monkeypatch):
    """Health, hot plug, reloads, restarts, wipes, foreign writers, a Node made anew: the server has what is to be.

    Without a limit, which has a test of its own.
    """
    monkeypatch.setattr(slices, "WRITES", 10_000)
    publishing = Publishing(tmp_path / "run", server, name="everything", simulated=70)
    publishing.node.write()
    drivers = sorted(publishing.node.files().pools.devices)
    publishing.node.register(*drivers)
    publishing.until_published(*drivers)
    chance = Chance(publishing, drivers)
    for _ in range(ROUNDS):
        chance.step()
        publishing.until_published(*drivers)
    assert publishing.problem == ""
    publishing.api.close()


def test_the_process_publishes_and_sees_at_once_what_changes(tmp_path, server, monkeypatch):
    """By the files of the run directory, and by the watch; its rounds are too far between to be seen here."""
    client = Client(tmp_path / "run", server)
    client.waits |= {"round": 5.0}
    node = PublishedNode(client.settings)
    config = ResolvedConfig(common=client.settings, front_end="dra", ways=("cdi",))
    write_resolved(client.settings.resolved_config_file, replace(config, kubernetes=KubernetesOptions(events=False)))
    node.write()
    (client.settings.dra_directory / "a").mkdir(parents=True)
    client.start()
    try:
        client.until(lambda: server.watches == 1, "it watches")
        node.register(AMD)
        client.until(lambda: server.store.of(AMD), "it is published")
        node.reasons[node.keys(AMD)[0]] = ["wedged"]
        node.write()
        client.until(lambda: server.store.of(AMD)[0]["spec"]["devices"][0].get("taints"), "it is tainted")
        for name in list(server.store.slices):
            server.deed(server.store.delete, name)
        client.until(lambda: server.store.of(AMD), "it is back")
        server.refusal = 403, "resourceslices is forbidden"
        server.end_watches()
        client.until(lambda: client.problems("slices"), "it is a problem")
    finally:
        client.stop()
    assert "Traceback" not in client.log.read_text()


def test_the_process_is_needed_for_slices_alone(tmp_path):
    """And says so where there is no API server."""
    settings = Settings(run_dir=tmp_path, kubelet_dir=tmp_path)
    served = ResolvedConfig(common=settings, kubernetes=KubernetesOptions(events=False))
    assert not needs_process(served, settings)
    assert needs_process(replace(served, front_end="dra", ways=("cdi",)), settings)


def test_an_answer_that_is_no_slice_is_an_error(publishing):
    """Of a proxy."""
    real = publishing.server.answer
    publishing.server.answer = lambda method, *rest: (
        (200, {"hello": "there"}) if method == "POST" else real(method, *rest)
    )
    publishing.node.register(AMD)
    publishing.until(lambda: "not a ResourceSlice" in publishing.problem, "it is a problem")
    publishing.server.answer = real
    publishing.until_published(AMD)
