"""Slices that others wipe or change, and servers that drop fields or refuse: what is done and said."""

import itertools
import time

import pytest
from published_node import NODE
from publishing_part import AMD, RDMA, Publishing
from slices_api import SLICES

from devherd.kubernetes import driver_slices, slices
from devherd.kubernetes.driver_slices import COME_BACKS


def test_slices_that_were_wiped_are_back_at_once(publishing):
    """As a kubelet does that starts. The Node is looked up again: it may be another."""
    publishing.node.register(AMD)
    publishing.until_published(AMD)
    publishing.settle()
    for uid in ("first", "second"):
        publishing.server.node_uid = uid
        for name in list(publishing.server.store.slices):
            publishing.server.deed(publishing.server.store.delete, name)
        publishing.until_published(AMD)
    [slice_] = publishing.of(AMD)
    assert slice_["metadata"]["ownerReferences"][0]["uid"] == "second"


def test_slices_that_others_have_changed_are_repaired(publishing):
    """Devices, foreign slices of the driver; those of other drivers are nobody's business."""
    publishing.node.register(AMD)
    publishing.until_published(AMD)
    store = publishing.server.store
    [name] = store.slices
    owner = publishing.of(AMD)[0]
    foreign = {**owner, "metadata": {"name": "a-name"}}
    other = {**owner, "metadata": {"name": "other"}, "spec": {**owner["spec"], "driver": "other.example.com"}}
    publishing.server.deed(store.create, other, "another-driver")
    publishing.server.deed(store.create, foreign, "kubectl")
    publishing.until_published(AMD)
    publishing.server.deed(store.change, name, lambda each: each["spec"]["devices"].pop(), "kubectl-edit")
    publishing.until_published(AMD)
    assert len(store.of("other.example.com")) == 1
    assert publishing.problem == ""


def test_a_second_publisher_is_left_alone_after_it_came_back_three_times(publishing, monkeypatch):
    """Both would write for ever. The others of the drivers go on; a reload, or some minutes, begin again."""
    now = [time.monotonic()]
    monkeypatch.setattr(slices.time, "monotonic", lambda: now[0])
    publishing.node.register(AMD)
    publishing.until_published(AMD)
    store = publishing.server.store

    def fight():
        [name] = [each["metadata"]["name"] for each in publishing.of(AMD)]
        publishing.server.deed(store.change, name, lambda each: each["spec"].pop("devices"), "k8s-gpu-dra-driver")

    def clock_goes_on(seconds):
        now[0] += seconds

    for _ in range(COME_BACKS):
        fight()
        publishing.until_published(AMD)
        clock_goes_on(5)
    fight()
    publishing.until(lambda: publishing.problem, "it is a problem")
    assert "gpu.amd.com: k8s-gpu-dra-driver writes its slices, too, and came back 3 times" in publishing.problem
    assert "`devherd reload`" in publishing.problem
    writes = len(publishing.server.writes())
    clock_goes_on(200)
    for _ in range(5):
        publishing.part.tend()
    assert len(publishing.server.writes()) == writes
    clock_goes_on(101)
    publishing.until_published(AMD)
    publishing.until(lambda: not publishing.problem, "the problem is over")
    for _ in range(COME_BACKS + 1):
        fight()
        publishing.until(lambda: publishing.is_published(AMD) or publishing.problem)
    publishing.settings.resolved_config_file.write_text("{}")
    publishing.until_published(AMD)
    publishing.until(lambda: not publishing.problem, "the problem is over")


def test_a_second_devherd_is_named_as_such(publishing):
    """Both write as devherd: two instances with run directories of their own."""
    publishing.node.register(AMD)
    publishing.until_published(AMD)
    for _ in range(COME_BACKS + 1):
        publishing.until_published(AMD)
        [name] = [each["metadata"]["name"] for each in publishing.of(AMD)]
        publishing.server.deed(
            publishing.server.store.change, name, lambda each: each["spec"].pop("devices"), "devherd"
        )
        publishing.until(lambda: publishing.is_published(AMD) or publishing.problem)
    assert "gpu.amd.com: another devherd writes its slices, too" in publishing.problem


def test_slices_of_other_drivers_are_read_however_large_they_are(tmp_path, server):
    """A store takes objects of 1.5 MiB; the client takes answers of 4 MiB."""
    for number in range(5):
        server.store.create(
            {
                "metadata": {"name": f"large-{number}", "annotations": {"a": "x" * (3 << 19)}},
                "spec": {"driver": "large.example.com", "nodeName": NODE, "pool": {"name": NODE}},
            }
        )
    publishing = Publishing(tmp_path / "run", server)
    publishing.node.write()
    publishing.node.register(AMD)
    publishing.until_published(AMD)


def test_changes_far_between_are_no_fight(publishing, monkeypatch):
    """A person at work, or a controller that comes each hour."""
    now = [time.monotonic()]
    monkeypatch.setattr(slices.time, "monotonic", lambda: now[0])
    publishing.node.register(AMD)
    publishing.until_published(AMD)
    for _ in range(10):
        [slice_] = publishing.of(AMD)
        name = slice_["metadata"]["name"]
        publishing.server.deed(publishing.server.store.change, name, lambda each: each["spec"].pop("devices"))
        publishing.until_published(AMD)
        now[0] += 31
    assert publishing.problem == ""


def test_a_writer_that_never_ends_gets_ten_answers_a_second_at_most(publishing):
    """Whatever it is: each of its changes by another name."""
    publishing.node.register(AMD)
    publishing.until_published(AMD)
    began, names, before = time.monotonic(), itertools.count(), len(publishing.server.writes())
    while time.monotonic() < began + 1.5:
        for each in publishing.of(AMD):
            change = publishing.server.store.change
            publishing.server.deed(
                change, each["metadata"]["name"], lambda one: one["spec"].pop("devices", None), f"writer-{next(names)}"
            )
        publishing.part.tend()
    seconds = time.monotonic() - began
    assert len(publishing.server.writes()) - before <= slices.WRITES + seconds / slices.WRITE_SECONDS + 1


def test_a_server_that_drops_taints_has_no_ill_device(publishing):
    """Kubernetes 1.34 and 1.35: it is withdrawn, never there without its taint, and comes back when it is well."""
    publishing.server.store.dropped = {"taints"}
    first, *_ = publishing.node.keys(AMD)
    name = publishing.node.files().pools.devices[AMD][0].name
    publishing.node.reasons[first] = ["wedged"]
    publishing.node.write()
    publishing.node.register(AMD)
    publishing.until(lambda: publishing.of(AMD), "it is published")
    publishing.settle()
    assert name not in publishing.devices(AMD)
    assert publishing.server.writes() == [f"POST {SLICES}?dryRun=All", f"POST {SLICES}"]
    shown = [one["name"] for _, _, each in publishing.server.store.history for one in each["spec"].get("devices", ())]
    assert name not in shown
    publishing.node.reasons[first] = []
    publishing.node.write()
    publishing.until_published(AMD)
    assert publishing.problem == ""


def test_a_server_that_learns_taints_is_given_them(publishing):
    """An upgrade: the watch breaks, all is read again, and the server asked once more."""
    publishing.server.store.dropped = {"taints"}
    first, *_ = publishing.node.keys(AMD)
    name = publishing.node.files().pools.devices[AMD][0].name
    publishing.node.reasons[first] = ["wedged"]
    publishing.node.write()
    publishing.node.register(AMD)
    publishing.until(lambda: publishing.of(AMD), "it is published")
    publishing.settle()
    publishing.server.store.dropped = set()
    publishing.server.has_forgotten = True
    publishing.server.end_watches()
    publishing.until_published(AMD)
    assert publishing.devices(AMD)[name]["taints"]


def test_a_field_that_is_dropped_is_told_once_and_sent_once(tmp_path, server, caplog):
    """Shared devices on Kubernetes 1.34: they are there for one claim each."""
    server.store.dropped = {"allowMultipleAllocations"}
    publishing = Publishing(tmp_path / "run", server)
    publishing.node.write()
    real = slices.slices_of

    def shared(*arguments, **options):
        for each in real(*arguments, **options):
            for one in each["spec"].get("devices", ()):
                one["allowMultipleAllocations"] = True
            yield each

    slices.slices_of, before = shared, slices.slices_of
    try:
        publishing.node.register(AMD)
        publishing.until(lambda: publishing.of(AMD), "it is published")
        publishing.settle()
        for _ in range(5):
            publishing.part.tend()
        assert server.writes() == [f"POST {SLICES}"]
    finally:
        slices.slices_of = before
    told = [each.message for each in caplog.records if "drops `allowMultipleAllocations`" in each.message]
    assert len(told) == 1
    assert "feature gate DRAConsumableCapacity is off" in told[0]
    publishing.api.close()


REFUSALS = {
    401: "neither its token nor its certificate is accepted",
    403: "set NODE_NAME if that is not the node's name, or give the account a role with the rules apiGroups:",
    404: "use Kubernetes 1.34 or newer",
    429: "trying again",
    500: "trying again",
    503: "trying again",
}


@pytest.mark.parametrize("status", REFUSALS)
def test_a_server_that_refuses_is_asked_less_and_less_and_said_once(tmp_path, server, status, caplog):
    """One problem, with its cure; what is wanted is there once it answers."""
    server.refusal = (status, "as ordered")
    publishing = Publishing(tmp_path / "run", server)
    publishing.node.write()
    publishing.node.register(AMD)
    publishing.until(lambda: publishing.problem, "it is a problem")
    assert f"{status}: as ordered: " in publishing.problem
    assert REFUSALS[status] in publishing.problem
    for _ in range(20):
        publishing.part.tend()
    assert len([one for one in caplog.records if "not up to date" in one.message and one.levelname == "WARNING"]) == 1
    server.refusal = None
    publishing.until_published(AMD)
    publishing.until(lambda: not publishing.problem, "the problem is over")
    publishing.api.close()


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500])
def test_writes_that_are_refused_are_tried_again_after_what_the_server_says(publishing, monkeypatch, status):
    """Listing is allowed, writing is not. `Retry-After` counts, and nothing is sent before."""
    now = [1000.0]
    monkeypatch.setattr(slices.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(driver_slices.RateLimit, "allows", lambda _: True)
    publishing.server.refusals["POST"] = (status, "as ordered")
    publishing.server.retry_after = "30"
    publishing.node.register(AMD)
    publishing.until(lambda: publishing.problem, "it is a problem")
    writes = len(publishing.server.writes())
    now[0] += 29
    publishing.part.tend()
    assert len(publishing.server.writes()) == writes
    publishing.server.refusals.clear()
    now[0] += 2
    publishing.until_published(AMD)


def test_a_driver_whose_device_is_refused_costs_no_other(tmp_path, server):
    """422: the device and the server's reason are named; another content is tried at once."""
    publishing = Publishing(tmp_path / "run", server, name="everything")
    publishing.node.write()
    name = publishing.node.files().pools.devices[AMD][1].name
    server.refusals[f"POST {AMD}"] = (
        422,
        "ResourceSlice is invalid: spec.devices[1].attributes[model].string: Too long",
    )
    publishing.node.register(AMD, RDMA)
    publishing.until_published(RDMA)
    publishing.until(lambda: publishing.problem, "it is a problem")
    assert f"{AMD}: device {name}: the API server refuses it: 422: ResourceSlice is invalid" in publishing.problem
    writes = len(server.writes())
    for _ in range(5):
        publishing.part.tend()
    assert len(server.writes()) <= writes + 1
    server.refusals.clear()
    publishing.node.reasons[publishing.node.keys(AMD)[0]] = ["wedged"]
    publishing.node.write()
    publishing.until_published(AMD)
    publishing.until(lambda: not publishing.problem, "the problem is over")
    publishing.api.close()


def test_an_ill_device_that_is_refused_costs_no_other_driver(tmp_path, server):
    """The server is asked whether it keeps taints without what it refuses."""
    publishing = Publishing(tmp_path / "run", server, name="everything")
    publishing.node.write()
    publishing.node.reasons[publishing.node.keys(AMD)[0]] = ["wedged"]
    publishing.node.write()
    refused = "spec.devices[0].attributes[model].string: Too long"
    server.store._wrong = lambda made: (
        refused if made["spec"]["driver"] == AMD and "attributes" in made["spec"]["devices"][0] else ""
    )
    publishing.node.register(AMD, RDMA)
    publishing.until_published(RDMA)
    publishing.until(lambda: refused in publishing.problem, "it is a problem")
    publishing.api.close()


def test_a_conflict_is_no_problem(publishing):
    """409: somebody was faster, and the watch tells of it."""
    publishing.node.register(AMD)
    publishing.until_published(AMD)
    store = publishing.server.store
    real, conflicts = store.replace, []

    def replace(name, body, manager="another"):
        if manager == "devherd" and not conflicts:
            conflicts.append(store.change(name, lambda each: each["metadata"].update(labels={"a": "b"}), "kubectl"))
        return real(name, body, manager)

    store.replace = replace
    publishing.node.reasons[publishing.node.keys(AMD)[0]] = ["wedged"]
    publishing.node.write()
    publishing.until_published(AMD)
    assert conflicts
    assert publishing.problem == ""


def test_a_node_that_is_not_there_is_waited_for(publishing):
    """And said: it may be the name that is wrong."""
    publishing.server.node_uid = ""
    publishing.node.register(AMD)
    publishing.until(lambda: publishing.problem, "it is a problem")
    assert "set NODE_NAME if that is not the node's name" in publishing.problem
    publishing.server.node_uid = "first"
    publishing.until_published(AMD)


def test_without_the_right_to_watch_slices_are_read_in_its_place(publishing):
    """What others change is found then, too, and what is missing is said."""
    publishing.server.may_watch = False
    publishing.server.end_watches()
    publishing.node.register(AMD)
    publishing.until_published(AMD)
    publishing.until(lambda: "403: resourceslices is forbidden: cannot watch" in publishing.problem, "it is said")
    for name in list(publishing.server.store.slices):
        publishing.server.store.delete(name)
    publishing.until_published(AMD)


def test_a_version_that_is_forgotten_and_a_watch_that_ends_lose_nothing(publishing):
    """410, and what happened meanwhile."""
    publishing.node.register(AMD)
    publishing.until_published(AMD)
    publishing.settle()
    for forgets in (False, True):
        publishing.server.has_forgotten = forgets
        with publishing.server.changed:
            for name in list(publishing.server.store.slices):
                publishing.server.store.delete(name)
        publishing.server.end_watches()
        publishing.until_published(AMD)
    assert publishing.problem == ""
