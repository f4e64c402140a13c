"""Events before a small API server: what is told once, later, counted, and not at all."""

import os
import time

from descriptors import none_for

from devherd import spool
from devherd.history import History
from devherd.instance.files import announce_standby, open_standby_file
from devherd.proto.spool_pb2 import DriverRestart, Reported, Standby

GPU = "nvidia.com/gpu"


def test_what_was_told_is_not_told_again_by_the_next_process(client):
    """A restart of devherd is no news of its devices."""
    client.configure(events=True)
    client.offer(GPU, a="xid", b="")
    client.start()
    client.until_told("nvidia.com/gpu: Unhealthy: a (xid)")
    client.until((client.directory / "kubernetes/reported.pb").exists, "it is remembered")

    client.stop()
    client.start()
    client.offer(GPU, a="xid", b="off-bus")

    client.until_told("nvidia.com/gpu: Unhealthy: a (xid)", "nvidia.com/gpu: Unhealthy: b (off-bus)")
    [first, _] = client.server.events
    assert (first["type"], first["reason"], first["involvedObject"]["name"]) == ("Warning", "DeviceUnhealthy", "node-1")


def test_a_restart_for_a_newer_driver_is_told_once_by_the_instance_after_it(client):
    """Whatever becomes of the process: the one that ended had no time to."""
    client.configure(events=True)
    restart = DriverRestart(driver="590.48.01", library="580.105.08", timestamp_seconds=1_800_000_000.5)
    spool.write(client.settings.driver_restart_file, restart)
    said = (
        "the NVIDIA driver 590.48.01 was newer than the library 580.105.08 of devherd's container, which was restarted"
    )
    client.start()
    client.until_told(said)
    [event] = client.server.events
    assert (event["type"], event["reason"], event["firstTimestamp"]) == (
        "Normal",
        "RestartedForDriver",
        "2027-01-15T08:00:00Z",
    )
    client.until((client.directory / "kubernetes/reported.pb").exists, "it is remembered")
    client.stop()
    client.start()
    client.offer(GPU, a="xid")
    client.until_told(said, "nvidia.com/gpu: Unhealthy: a (xid)")


def test_a_device_that_is_lost_and_one_that_is_back_are_events_of_the_node(client):
    """With what is needed to find it: the ticket of whoever replaces it."""
    client.configure(events=True)
    client.offer(GPU, a="")
    client.start()
    client.offer(GPU, a="xid")
    client.until_told("nvidia.com/gpu: Unhealthy: a (xid)")
    history = History(client.settings.history_directory, "scanner")
    missing, back = "is missing: was at 0000:83:00.0, slot 7, serial S1; last held by default/x", "is back after 3 d"
    history.note("lost", missing, resource_name=GPU, device_id="b", reasons=("gone",))
    history.note("lost", back, resource_name=GPU, device_id="b")
    history.keep()
    client.until(lambda: len(client.server.events) == 3, "both are told")
    found = sorted((event["reason"], event["type"], event["message"]) for event in client.server.events)
    assert found[:2] == [
        ("DeviceFound", "Normal", f"{GPU} b {back}"),
        ("DeviceMissing", "Warning", f"{GPU} b {missing}"),
    ]


def test_an_instance_that_stands_by_for_longer_than_a_roll_out_takes_is_told_once(client):
    """Defect: the pod of a second release was Ready, served nothing, and nothing said so."""
    client.configure(events=True)
    announced = open_standby_file(client.settings.standby_file)
    assert announce_standby(announced, Standby(version="0.2.0", revision="def", since=time.time() - 660))
    client.start()
    client.offer(GPU, a="")
    client.until(lambda: client.server.events, "an Event")
    client.offer(GPU, a="xid")
    client.until(lambda: len(client.server.events) == 2, "another one")
    os.close(announced)

    first, _ = client.server.events
    assert (first["type"], first["reason"], first["involvedObject"]["name"]) == ("Warning", "SecondInstance", "node-1")
    assert first["message"].startswith("devherd 0.2.0 (def) stands by beside the one that serves: two instances are")


def test_while_nothing_can_be_told_what_comes_to_nothing_is_not_told(client):
    """What is left of it is told once, when the server is back."""
    client.server.refusal = (503, "starting")
    client.configure(events=True)
    client.offer(GPU, a="xid", b="")
    client.start()
    client.until(lambda: "503: starting" in client.log.read_text(), "the log says so")

    client.offer(GPU, a="", b="xid")
    client.server.refusal = None

    client.until_told("nvidia.com/gpu: Unhealthy: b (xid)")


def test_a_device_that_flaps_for_ever_does_not_flood_the_server(client):
    """25 Events about the node at once, then one in five minutes, as with client-go: the last state is what counts."""
    client.configure(events=True)
    client.start()
    for number in range(40):
        client.offer(f"example.com/r{number}", d="xid")

    client.until(lambda: len(client.server.events) == 25, "25 are told")
    client.stop()

    assert len(client.server.events) == 25
    assert len({each["message"] for each in client.server.events}) == 25


def test_events_take_one_connection(client):
    """A node has thousands of neighbours: each connection costs the server a handshake."""
    client.configure(events=True)
    client.start()
    for number in range(5):
        client.offer(f"example.com/r{number}", d="xid")
        client.until(lambda told=number + 1: len(client.server.events) == told, "each is told")

    assert client.server.connections == 1


def test_what_became_of_a_lost_device_is_told_by_the_next_process_if_this_one_could_not(client):
    """Defect: a process that was replaced while the API server was away took it with it."""
    client.configure(events=True)
    client.offer(GPU, a="")
    history = History(client.settings.history_directory, "scanner")
    client.server.refusal = (503, "starting")
    client.start()
    history.note("lost", "is missing", resource_name=GPU, device_id="b", reasons=("gone",))
    history.note("lost", "is missing", resource_name=GPU, device_id="c", reasons=("gone",))
    history.keep()
    client.until(lambda: "503: starting" in client.log.read_text(), "the log says so")
    client.stop()
    client.server.refusal = None

    client.start()
    client.until_told(f"{GPU} b is missing", f"{GPU} c is missing")
    client.until(lambda: not kept_as_reported(client).lost, "it is remembered that they are told")
    client.stop()
    client.start()
    client.offer(GPU, a="xid")
    client.until_told(f"{GPU} b is missing", f"{GPU} c is missing", f"{GPU}: Unhealthy: a (xid)")


def test_a_process_without_descriptors_tells_nothing_again_that_it_could_not_read(client):
    """Defect: the process ended; devices whose file it had read as empty were told anew when it had some again."""
    client.configure(events=True, node_condition=True)
    client.offer(GPU, a="xid", b="")
    client.start()
    client.until_told(f"{GPU}: Unhealthy: a (xid)")
    client.until((client.directory / "kubernetes/reported.pb").exists, "it is remembered")

    with none_for(client.process.pid):
        client.offer(GPU, a="xid", b="off-bus")
        client.until(lambda: "Too many open files" in client.log.read_text(), "the log says so")

    client.until_told(f"{GPU}: Unhealthy: a (xid)", f"{GPU}: Unhealthy: b (off-bus)")
    assert client.process.poll() is None


def kept_as_reported(client):
    """What the process has left of what it has told."""
    return spool.read_or_empty(client.settings.kubernetes_directory / "reported.pb", Reported)
