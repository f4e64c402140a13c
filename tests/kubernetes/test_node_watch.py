"""The watch of the node: how it goes on, and what is done where it cannot."""

import contextlib
import threading
import urllib.parse

import pytest

from devherd.api_server import Api, ApiError
from devherd.kubernetes.main import rest
from devherd.kubernetes.node_watch import NodeWatch


@pytest.fixture
def watch(objects_api):
    """In this process, by a call for each watch."""
    with contextlib.closing(Api(objects_api.access)) as api:
        yield NodeWatch(api, "node-1", threading.Event(), metadata_alone=True)


def watches(server) -> list[str]:
    return [path for _, path, _ in server.calls if path.startswith("/api/v1/nodes?")]


def test_one_watch_and_one_read_are_for_all_that_concerns_the_node(client):
    """Labels, condition, the configuration's label and pauses; calls have a second connection, while there are any."""
    client.configure(node_condition=True, nvidia_pause=True)
    client.offer("nvidia.com/gpu", a="xid")
    client.start()
    client.until(lambda: "DevicesUnhealthy" in client.server.conditions(), "the condition is set")
    client.until(lambda: client.server.watches == 1, "it watches")

    assert (client.server.reads, len(watches(client.server)), client.server.connections) == (1, 1, 2)


def test_a_watch_that_the_server_ends_goes_on_over_the_same_connection_and_reads_nothing(client):
    """As servers do after some minutes; how long is asked for, and differs between nodes."""
    client.configure(nvidia_pause=True)
    client.start()
    for number in range(1, 4):
        client.until(lambda: client.server.watches == 1, "it watches")
        client.server.label("a/b", str(number))
        client.server.end_watches()
    client.until(lambda: client.server.watches == 1, "it watches")

    assert (client.server.reads, client.server.connections) == (1, 1)
    asked = [dict(urllib.parse.parse_qsl(path.partition("?")[2])) for path in watches(client.server)]
    assert len(asked) == 4
    assert all(300 <= int(each["timeoutSeconds"]) <= 600 for each in asked)
    assert all(each["fieldSelector"] == "metadata.name=node-1" for each in asked)


def test_a_version_that_the_server_has_forgotten_is_no_problem(client):
    """410: the node is read again, and what happened meanwhile is known."""
    client.configure(nvidia_pause=True)
    client.start()
    client.until(lambda: client.server.watches, "it watches")
    client.server.has_forgotten = True
    client.server.end_watches()
    client.until(lambda: client.server.reads == 2 and client.server.watches, "it is read again")
    assert client.problems("nvidia-pause") == []


def test_a_watch_from_which_nothing_comes_is_ended_and_the_node_read(client):
    """A connection that has died in between, behind a proxy for one: a bookmark would come each minute."""
    client.waits["watch_silence"] = 0.5
    client.configure(nvidia_pause=True)
    client.start()
    client.until(lambda: client.server.reads >= 3, "it is read again and again")


def test_without_the_right_to_watch_the_node_is_read_in_its_place(client):
    """Rights of an older devherd: what the node says is followed all the same, and what is missing is a problem."""
    client.waits["watch_again_at_last"] = 0.2
    client.server.may_watch = False
    client.configure(nvidia_pause=True)
    client.start()
    client.until(lambda: client.problems("nvidia-pause"), "it is a problem")
    client.server.label("nvidia.com/gpu.deploy.client", "paused-for-mig-change")
    client.until(client.settings.nvidia_pause_file.exists, "it is followed")

    [(_, error)] = client.problems("nvidia-pause")
    assert "403: nodes is forbidden: cannot watch: add the component deploy/kubernetes/components/nvidia-pause" in error


def test_it_is_read_less_and_less_often_while_it_cannot_be_watched(objects_api, watch, monkeypatch):
    """Defect: each second, by each node of the cluster, as reading it alone went well."""
    objects_api.may_watch = False
    waits = []
    monkeypatch.setattr("devherd.kubernetes.api_watch.time.sleep", lambda seconds: waits.append(seconds) or stop(waits))

    with pytest.raises(StopIteration):
        watch.run()
    assert [limit / 10 <= wait <= limit for wait, limit in zip(waits, [2, 4, 8, 16, 32, 60, 60], strict=True)] == [
        True
    ] * 7


def test_a_server_that_ends_each_watch_after_one_event_is_asked_each_second_at_most(watch, monkeypatch):
    """Defect: it was asked again at once, as often as it answered."""
    event = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}
    waits = []
    monkeypatch.setattr(watch._api, "watch", lambda *_, **__: iter([event]))
    monkeypatch.setattr("devherd.kubernetes.api_watch.time.sleep", waits.append)
    monkeypatch.setattr("devherd.kubernetes.api_watch.time.monotonic", lambda: 1000.0)

    watch.follow()
    watch.follow()

    assert waits == [1, 1]


def stop(waits: list[float]) -> None:
    if len(waits) == 7:
        raise StopIteration


def test_a_node_that_goes_and_comes_is_followed_by_the_same_watch(client):
    """`kubectl delete node`, and the kubelet registers again."""
    client.configure(nvidia_pause=True)
    client.server.label("nvidia.com/gpu.deploy.client", "paused-for-mig-change")
    client.start()
    client.until(client.settings.nvidia_pause_file.exists, "it is paused")
    client.server.delete_node()
    client.until(lambda: not client.settings.nvidia_pause_file.exists(), "no node is no pause")
    client.server.create_node("second")
    client.server.label("nvidia.com/gpu.deploy.client", "paused-for-mig-change")
    client.until(client.settings.nvidia_pause_file.exists, "it is paused again")

    assert (client.server.reads, len(watches(client.server))) == (1, 1)


def test_after_a_call_without_an_answer_others_fail_at_once(objects_api):
    """Each part of the process would wait in turn; a moment later the server is asked again."""
    asked = []
    api = Api(objects_api.access, lambda: asked.append(1))
    objects_api.loses_answers = True
    errors = []
    for _ in range(3):
        with pytest.raises(ApiError) as caught:
            api.get("/api/v1/nodes/node-1")
        errors.append(caught.value)
    objects_api.loses_answers = False

    assert errors[0] is errors[1] is errors[2]
    assert (objects_api.reads, len(asked)) == (1, 3)
    api._outage = (api._outage[0] - 10.0, api._outage[1])
    assert api.get("/api/v1/nodes/node-1")["metadata"]["name"] == "node-1"
    api.close()


def test_what_a_part_depends_on_is_replaced_by_another_process(client):
    """Exit code 75: the supervisor starts one at once, in a sandbox of its own."""
    client.configure(nvidia_pause=True)
    client.start()
    client.until(lambda: client.server.watches, "it watches")
    client.configure(nvidia_pause=True, events=True)

    assert client.end() == 75


def test_a_problem_of_a_part_that_is_switched_off_is_none_any_more(client):
    """Defect: its file stayed, and was shown for ever."""
    client.server.refusal = (403, "nodes is forbidden")
    client.configure(nvidia_pause=True, events=True)
    client.start()
    client.until(lambda: client.problems("nvidia-pause"), "it is a problem")
    client.configure(events=True)
    assert client.end() == 75
    assert client.problems("nvidia-pause") == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_watch_that_crashes_ends_the_process_and_so_has_a_successor(watch, monkeypatch):
    """Defect: the process went on for ever with what it had seen of the node before."""
    monkeypatch.setattr(watch, "follow", lambda: {}["a defect"])
    watch.start()
    watch.join()
    with pytest.raises(RuntimeError, match="has crashed"):
        rest(threading.Event(), [watch], 0.0)
