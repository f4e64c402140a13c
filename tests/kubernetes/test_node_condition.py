"""The condition of the node: when it is written, with which times, and that it comes back."""

import contextlib
import time

import offered
import pytest
from objects_api import NODE

from devherd import spool
from devherd.api_server import Api
from devherd.history import History
from devherd.kubernetes import condition as condition_module
from devherd.kubernetes.condition import CONDITION, NodeCondition
from devherd.kubernetes.node_watch import SeenNode
from devherd.kubernetes.problems import Problems
from devherd.proto import health_pb2
from devherd.proto.spool_pb2 import Device, Offer
from devherd.settings import Settings

GPU = "nvidia.com/gpu"


def status(client) -> str:
    return client.server.conditions().get(CONDITION, {}).get("status", "")


def times(client) -> tuple[str, str]:
    there = client.server.conditions()[CONDITION]
    return there["lastHeartbeatTime"], there["lastTransitionTime"]


def test_the_condition_follows_the_devices(client):
    """Also those that fail when all were well."""
    client.configure(node_condition=True)
    client.offer(GPU, a="")
    client.start()
    client.until(lambda: status(client) == "False", "it is set")
    client.offer(GPU, a="xid")
    client.until(lambda: status(client) == "True", "it is set again")

    there = client.server.conditions()
    assert there[CONDITION]["message"] == "nvidia.com/gpu a"
    assert there["Ready"] == {"type": "Ready", "status": "True"}


def test_a_lost_device_is_named_for_as_long_as_it_is_lost(client):
    """The kubelet's list, and so the offer, has it no more."""
    client.configure(node_condition=True)
    client.offer(GPU, a="")
    lost = health_pb2.Lost(devices=[health_pb2.LostDevice(vendor="nvidia", device="b", resource_name=GPU)])
    spool.write(client.settings.lost_file, lost)
    client.start()
    client.until(lambda: status(client) == "True", "it is set")
    assert client.server.conditions()[CONDITION]["message"] == "nvidia.com/gpu b"
    client.settings.lost_file.unlink()
    client.until(lambda: status(client) == "False", "it is forgotten")


def test_it_comes_back_at_once_when_the_node_was_made_anew_or_it_was_taken_away(client):
    """Defect: it was written when a device changed, and never otherwise."""
    client.configure(node_condition=True)
    client.offer(GPU, a="xid")
    client.start()
    client.until(lambda: status(client) == "True", "it is set")
    client.server.delete_node()
    client.server.create_node("second")
    client.until(lambda: status(client) == "True", "it is back")
    client.server.answer(
        "PATCH", f"{NODE}/status", {"status": {"conditions": [{"type": CONDITION, "$patch": "delete"}]}}
    )
    client.until(lambda: status(client) == "True", "it is back again")


def test_a_node_that_is_not_there_is_waited_for(client):
    """That is said, and what it is to have is written once it is there."""
    client.server.delete_node()
    client.configure(node_condition=True)
    client.offer(GPU, a="xid")
    client.start()
    client.until(lambda: client.problems("condition"), "it is a problem")
    client.server.create_node("first")
    client.until(lambda: status(client) == "True", "it is set")
    client.until(lambda: not client.problems("condition"), "the problem is over")


def test_the_heartbeat_moves_and_the_transition_stays_while_the_status_does(client):
    """As node-problem-detector has it; a message that changes turns nothing."""
    client.waits["condition_beat"] = 1.0
    client.configure(node_condition=True)
    client.offer(GPU, a="xid", b="")
    client.start()
    client.until(lambda: status(client) == "True", "it is set")
    began = times(client)
    client.until(lambda: times(client)[0] > began[0], "it beats")
    client.offer(GPU, a="xid", b="off-bus")
    client.until(
        lambda: client.server.conditions()[CONDITION]["message"].endswith("nvidia.com/gpu b"), "both are named"
    )
    assert times(client)[1] == began[1]
    time.sleep(max(0.0, 1.0 - time.time() % 1.0))  # times are of whole seconds
    client.offer(GPU, a="", b="")
    client.until(lambda: status(client) == "False", "it turns")
    assert times(client)[1] > began[1]


def test_a_restart_writes_nothing_where_nothing_has_changed(client):
    """A roll-out through thousands of nodes is no load for it, and the transition is that of before."""
    client.configure(node_condition=True)
    client.offer(GPU, a="xid")
    client.start()
    client.until(lambda: status(client) == "True", "it is set")
    before, writes = client.server.conditions()[CONDITION], len(client.server.writes)
    client.stop()
    client.server.end_watches()
    client.start()
    client.offer("example.com/more", d="")
    client.until(lambda: client.server.watches == 1 and client.server.reads == 2, "it has seen the node")
    client.server.label("example.com/x", "y")
    time.sleep(0.5)

    assert client.server.conditions()[CONDITION] == before
    assert len(client.server.writes) == writes


@pytest.mark.parametrize(("status", "cure"), [(403, "add the component"), (401, "the token is not accepted")])
def test_a_refusal_is_a_problem_with_its_cure(client, status, cure):
    """Until it is allowed."""
    client.server.refusal = (status, "nodes is forbidden")
    client.configure(node_condition=True)
    client.offer(GPU, a="xid")
    client.start()
    client.until(lambda: client.problems("condition"), "it is a problem")
    [(about, error)] = client.problems("condition")
    assert about == "node node-1"
    assert error.startswith(f"the condition {CONDITION} cannot be written: {status}: nodes is forbidden: {cure}")


def test_without_a_token_that_is_a_problem(client):
    """Whoever has asked for the condition waits for it in vain."""
    client.port = 0
    client.configure(node_condition=True)
    client.start()
    client.until(lambda: client.problems("condition"), "it is a problem")
    assert "there is no API server to talk to" in client.problems("condition")[0][1]


class Watched:
    """What the watch shows: the node as the server has it."""

    error = None

    def __init__(self, server) -> None:
        self._server = server

    @property
    def seen(self) -> SeenNode:
        return SeenNode(self._server.objects[NODE])


def test_a_device_that_flaps_each_second_is_written_five_times_at_once_and_then_each_ten_seconds(
    tmp_path, objects_api, monkeypatch
):
    """Defect: each change was written. What stands at the end is the last state."""
    monkeypatch.setenv("NODE_NAME", "node-1")
    now = [1000.0]
    monkeypatch.setattr(condition_module.time, "monotonic", lambda: now[0])
    settings = Settings(run_dir=tmp_path / "run")
    settings.run_dir.mkdir()
    problems = Problems(settings, "condition", History(settings.history_directory, "kubernetes"))
    with contextlib.closing(Api(objects_api.access)) as api:
        part = NodeCondition(settings, api, Watched(objects_api), problems)
        for second in range(101):
            reasons = ["xid"] if second % 2 else []
            offered.put(settings.run_dir, Offer(name=GPU, devices=[Device(id="a", reasons=reasons)]))
            part.tend()
            now[0] += 1.0
        assert 14 <= len(objects_api.writes) <= 15
        now[0] += 10.0
        part.tend()

    assert objects_api.conditions()[CONDITION]["status"] == "False"
