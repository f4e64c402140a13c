"""A real resource child before a kubelet that does what it should."""

import os
import resource
import shutil
import signal
import socket
import time

import grpc
import pytest
from plugin_host import KEY, RESOURCE, device, eventually

from devherd import counters, spool
from devherd.device_plugin.service import REST_SECONDS
from devherd.device_plugin.state import State
from devherd.history import History
from devherd.kubelet import endpoint
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.proto import spool_pb2


def test_a_child_serves_registers_and_sends_the_complete_list_at_once(host):
    """The kubelet knows every device right after Register, and the exporter knows that it does."""
    host.write(device("0", numa=[1]), device("1", "xid", numa=[0]))
    host.kubelet.start()
    host.run()
    registration = host.registered()

    assert registration.health == {"0": "Healthy", "1": "Unhealthy"}
    assert [[node.ID for node in each.topology.nodes] for each in registration.lists[0].devices] == [[1], [0]]
    assert registration.request.version == "v1beta1"
    assert registration.request.resource_name == RESOURCE
    assert host.sockets() == [registration.request.endpoint]
    assert registration.options.get_preferred_allocation_available
    assert not registration.options.pre_start_required
    state = eventually(lambda: host.state().registered and host.state())
    assert (state.name, state.detail, state.streams) == (RESOURCE, "", 1)
    assert state.endpoint == registration.request.endpoint
    assert state.registered_timestamp_seconds == pytest.approx(time.time(), abs=60)
    eventually(lambda: host.counted("devherd_registrations_total", resource_name=RESOURCE) == 1)
    eventually(lambda: host.counted("devherd_list_and_watch_sends_total", resource_name=RESOURCE) == 1)


def test_every_change_arrives_and_nothing_arrives_without_a_change(host):
    """Health both ways, devices that come and go; a file that says the same costs the kubelet no checkpoint."""
    host.write(device("0"), device("1"))
    host.kubelet.start()
    host.run()
    registration = host.registered()
    for devices in ([device("0", "gone"), device("1")], [device("0"), device("1")], [device("1"), device("2")]):
        path = host.write(*devices)
        expected = {each.id: "Unhealthy" if each.reasons else "Healthy" for each in devices}
        eventually(lambda expected=expected: registration.health == expected)
    path.write_bytes(path.read_bytes())
    host.write(device("1"), device("2", node="/dev/other"))  # Allocate would answer otherwise: not the list's business
    eventually(lambda: registration.allocate(["2"]).container_responses[0].devices[0].host_path == "/dev/other")
    time.sleep(0.5)
    assert len(registration.lists) == 4


def test_changes_in_a_burst_become_one_list_and_there_and_back_becomes_none(host):
    """Between two lists the stream rests."""
    host.write(device("0"))
    host.kubelet.start()
    host.run()
    registration = host.registered()
    time.sleep(0.3)
    for reason in ("a", "b", "c", "d"):
        host.write(device("0", reason))
    host.write(device("0"))
    time.sleep(0.6)
    assert len(registration.lists) <= 3
    assert registration.health == {"0": "Healthy"}
    before, began = len(registration.lists), time.monotonic()
    for number in range(20):
        host.write(*(device(str(each)) for each in range(number + 1)))
    eventually(lambda: len(registration.health) == 20)
    assert len(registration.lists) - before <= 2 + (time.monotonic() - began) / REST_SECONDS


def test_several_streams_are_served_and_the_end_of_a_spectators_changes_nothing(host):
    """Somebody may look at a plugin's socket without costing the kubelet its stream."""
    host.write(device("0"))
    host.kubelet.start()
    host.run()
    registration = host.registered()
    spectator = registration.plugin.ListAndWatch(v1beta1.Empty())
    assert next(spectator) == registration.lists[0]
    eventually(lambda: host.state().streams == 2)
    host.write(device("0", "xid"))
    assert next(spectator).devices[0].health == "Unhealthy"
    eventually(lambda: registration.health == {"0": "Unhealthy"})
    spectator.cancel()
    eventually(lambda: host.state().streams == 1)
    host.write(device("0"))
    eventually(lambda: registration.health == {"0": "Healthy"})
    assert len(host.kubelet.calls) == 1


def test_allocate_answers_each_container_and_refuses_what_it_must(host):
    """From the snapshot: unknown and unhealthy ids by name, several containers in one request."""
    host.write(device("0"), device("1"), device("2", "fme-error", "port-error"))
    host.kubelet.start()
    host.run()
    registration = host.registered()
    answers = registration.allocate(["1", "0"], ["1"], [])
    paths = [[node.host_path for node in answer.devices] for answer in answers.container_responses]
    assert paths == [["/dev/0", "/dev/1"], ["/dev/1"], []]
    for ids, status, words in (
        (["0", "7"], grpc.StatusCode.INVALID_ARGUMENT, "example.com/gpu has no device '7'"),
        (["2"], grpc.StatusCode.FAILED_PRECONDITION, "device '2' is unhealthy: fme-error, port-error"),
    ):
        with pytest.raises(grpc.RpcError) as refusal:
            registration.allocate(ids)
        assert refusal.value.code() is status
        assert refusal.value.details() == words
    # The kubelet has its answer at once, the state file what was counted within a second.
    eventually(lambda: host.counted("devherd_allocations_total", resource_name=RESOURCE) == 3)
    eventually(lambda: host.counted("devherd_allocation_failures_total", resource_name=RESOURCE) == 2)
    eventually(lambda: host.counted("devherd_allocation_duration_seconds_count", resource_name=RESOURCE) == 3)


def test_preferred_allocation_and_prestart_are_answered(host):
    """Packed on a NUMA node, with the required device; a container start needs nothing."""
    host.write(*(device(str(number), numa=[number % 2]) for number in range(6)))
    host.kubelet.start()
    host.run()
    registration = host.registered()
    request = v1beta1.PreferredAllocationRequest()
    request.container_requests.add(
        available_deviceIDs=["5", "4", "3", "2", "1", "0"], must_include_deviceIDs=["3"], allocation_size=3
    )
    request.container_requests.add(available_deviceIDs=["0", "1"], allocation_size=0)
    answer = registration.plugin.GetPreferredAllocation(request, timeout=10)
    assert [list(each.deviceIDs) for each in answer.container_responses] == [["3", "1", "5"], []]
    assert registration.plugin.PreStartContainer(v1beta1.PreStartContainerRequest(devices_ids=["3"]), timeout=10)
    eventually(lambda: host.counted("devherd_preferred_allocation_duration_seconds_count", resource_name=RESOURCE) == 1)


def test_a_stop_ends_streams_unlinks_the_socket_and_says_so(host):
    """The kubelet sees an orderly end; nothing of this process is left, and nothing of others is touched."""
    host.write(device("0"))
    host.kubelet.start()
    host.run()
    registration = host.registered()
    foreign = host.plugins / "other.sock"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(foreign))
    assert host.end() == 0
    eventually(lambda: registration.ended)
    assert registration.ended is grpc.StatusCode.OK
    assert sorted(path.name for path in host.plugins.iterdir()) == ["kubelet.sock", "other.sock"]
    assert (host.state().registered, host.state().streams, host.state().detail) == (False, 0, "stopped")
    server.close()


def test_a_deleted_file_becomes_an_empty_list_and_the_child_serves_on(host):
    """A resource that has gone must not keep its capacity."""
    path = host.write(device("0"))
    host.kubelet.start()
    host.run()
    registration = host.registered()
    path.unlink()
    eventually(lambda: len(registration.lists) == 2)
    assert registration.health == {}
    host.write(device("0"))
    eventually(lambda: registration.health == {"0": "Healthy"})
    assert len(host.kubelet.calls) == 1


def test_a_stop_right_after_the_file_has_gone_still_sends_the_empty_list(host):
    """The supervisor stops a child for the same event: the empty list must not lose that race."""
    path = host.write(device("0"))
    host.kubelet.start()
    host.run()
    registration = host.registered()
    path.unlink()
    assert host.end() == 0
    eventually(lambda: registration.ended)
    assert registration.health == {}


def test_a_torn_file_and_a_dead_scanner_leave_the_last_snapshot_served(host):
    """Only a good file changes what the kubelet gets."""
    path = host.write(device("0"))
    host.kubelet.start()
    host.run()
    registration = host.registered()
    path.write_bytes(b"\xff\xff\xff")
    eventually(lambda: host.logged("the last good one stays in force"))
    assert registration.allocate(["0"]).container_responses[0].devices
    host.kubelet.restart()
    assert host.registered(2).health == {"0": "Healthy"}


def test_a_child_that_starts_before_its_file_waits_for_it(host):
    """It says so once, and registers when the file comes."""
    host.kubelet.start()
    host.run()
    eventually(lambda: host.logged("does not exist yet; waiting for it"))
    host.write(device("0"))
    assert host.registered().health == {"0": "Healthy"}


def test_a_switched_preference_is_a_new_registration(host):
    """The kubelet asks for the options only when a server registers."""
    host.write(device("0"))
    host.kubelet.start()
    host.run()
    host.registered()
    host.write(device("0"), preferred=spool_pb2.NONE)
    assert not host.registered(2).options.get_preferred_allocation_available


def test_a_restarted_child_removes_what_the_killed_one_left_and_takes_a_fresh_name(host):
    """SIGKILL leaves a socket file; its name may still be tied to a connection in the kubelet."""
    host.write(device("0"))
    host.kubelet.start()
    host.run()
    first = host.registered().request.endpoint
    host.end(signal.SIGKILL)
    assert host.sockets() == [first]
    host.run()
    second = host.registered(2).request.endpoint
    assert host.sockets() == [second]
    assert second != first
    assert host.state().generation == int(second.removesuffix(".sock").rpartition("-")[2])


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_restarted_child_counts_on_where_the_last_one_stopped(host, end):
    """What it wrote last is what its successor begins with, however it ended."""
    host.write(device("0"))
    host.kubelet.start()
    host.run()
    for _ in range(3):
        host.registered().allocate(["0"])
    eventually(lambda: host.counted("devherd_allocation_duration_seconds_count", resource_name=RESOURCE) == 3)
    host.end(end)
    host.run()
    host.registered(2).allocate(["0"])
    eventually(lambda: host.counted("devherd_allocation_duration_seconds_count", resource_name=RESOURCE) == 4)
    assert host.counted("devherd_allocations_total", resource_name=RESOURCE) == 4
    assert host.counted("devherd_registrations_total", resource_name=RESOURCE) == 2


def test_a_child_that_is_stopped_leaves_everything_that_it_has_counted(host):
    """Also what it counted in its last second."""
    host.write(device("0"))
    host.kubelet.start()
    host.run()
    host.registered().allocate(["0"])
    assert host.end() == 0
    assert host.counted("devherd_allocations_total", resource_name=RESOURCE) == 1
    assert host.counted("devherd_list_and_watch_sends_total", resource_name=RESOURCE) == 1


def test_nothing_is_written_while_nothing_is_counted(host):
    """An idle node's run directory rests."""
    host.write(device("0"))
    host.kubelet.start()
    host.run()
    host.registered().allocate(["0"])
    eventually(lambda: host.counted("devherd_allocation_duration_seconds_count", resource_name=RESOURCE) == 1)
    path = spool.path_of(host.run_dir / "state", KEY)
    before = path.stat()
    time.sleep(2.5)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_process_that_rests_is_woken_by_what_it_has_to_write(tmp_path):
    """It has no beat each second any more that would write; what could not be written stays to be written."""
    history = History(tmp_path / "history", "resource")
    state = State(tmp_path / "state/current.pb", RESOURCE, history)
    state.keep()
    for happens in (
        lambda: history.note("allocation", "held by pod a/b"),
        lambda: state.counters.add(counters.ALLOCATIONS, RESOURCE),
        lambda: state.counters.observe(counters.ALLOCATION_DURATION, 0.1, RESOURCE),
    ):
        assert not state.news.is_set()
        happens()
        assert state.news.is_set()
        state.keep()
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "state").touch()
    state.counters.add(counters.ALLOCATIONS, RESOURCE)
    state.keep()
    assert state.news.is_set()
    (tmp_path / "state").unlink()
    state.keep()
    assert not state.news.is_set()


def test_a_full_disk_costs_neither_registration_nor_counts(host):
    """The child serves and registers on; its counts are there again when there is room."""
    host.write(device("0"))
    host.kubelet.start()
    host.run()
    host.registered()
    _, hard = resource.prlimit(host.pids[0], resource.RLIMIT_FSIZE)
    resource.prlimit(host.pids[0], resource.RLIMIT_FSIZE, (0, hard))  # each write to a file fails, as without room
    host.kubelet.restart()
    eventually(lambda: len(host.kubelet.registrations) == 2 and host.kubelet.registrations[1].lists)
    for _ in range(3):
        host.kubelet.registrations[1].allocate(["0"])
    time.sleep(1.5)
    assert host.counted("devherd_registrations_total", resource_name=RESOURCE) == 1

    resource.prlimit(host.pids[0], resource.RLIMIT_FSIZE, (hard, hard))
    eventually(lambda: host.counted("devherd_allocations_total", resource_name=RESOURCE) == 3)
    assert host.counted("devherd_registrations_total", resource_name=RESOURCE) == 2
    assert host.counted("devherd_kubelet_restarts_total") == 1
    assert host.state().registered


def test_the_heartbeat_goes_on_for_as_long_as_the_loop_turns(host):
    """Also while there is no kubelet to talk to; the process's own clock of beats is looked at from outside."""
    host.write(device("0"))
    host.run()
    eventually(lambda: host.beat_age() is not None)
    for _ in range(5):
        time.sleep(0.5)
        assert host.beat_age() < 5
    os.kill(host.pids[0], signal.SIGSTOP)
    eventually(lambda: host.beat_age() > 2.5)
    os.kill(host.pids[0], signal.SIGCONT)
    eventually(lambda: host.beat_age() < 2)


def test_ten_thousand_devices_arrive_and_can_be_had(host):
    """The list is right, and an answer does not look through it."""
    host.write(*(device(f"dev-{number}", numa=[number % 8]) for number in range(10_000)))
    host.kubelet.start()
    host.run()
    registration = host.registered()
    assert [each.ID for each in registration.lists[0].devices] == [f"dev-{number}" for number in range(10_000)]
    answer = registration.allocate([f"dev-{number}" for number in range(0, 10_000, 625)])
    assert len(answer.container_responses[0].devices) == 16
    request = v1beta1.PreferredAllocationRequest()
    request.container_requests.add(
        available_deviceIDs=[f"dev-{number}" for number in range(9_999, -1, -1)], allocation_size=1_000
    )
    chosen = registration.plugin.GetPreferredAllocation(request, timeout=10).container_responses[0].deviceIDs
    assert {int(device_id.removeprefix("dev-")) % 8 for device_id in chosen} == {0}
    host.write(*(device(f"dev-{number}", *["xid"] * (number == 4711)) for number in range(10_000)))
    eventually(lambda: registration.health["dev-4711"] == "Unhealthy")


def test_without_inotify_changes_are_seen_within_a_second_or_so(host):
    """The limit of inotify instances is soon reached on a busy node; it is named, and polling takes over."""
    host.write(device("0"))
    host.kubelet.start()
    host.run(environment={"DEVHERD_TEST_NO_INOTIFY": "1"})
    registration = host.registered()
    assert host.logged("fs.inotify.max_user_instances") == 1
    host.write(device("0", "xid"))
    eventually(lambda: registration.health == {"0": "Unhealthy"})
    (host.plugins / registration.request.endpoint).unlink()
    host.registered(2)
    host.kubelet.restart()
    host.registered(3)


def test_a_path_too_long_for_a_socket_is_said_and_stays_said(host):
    """It cannot get better by itself: one line, not a flood, and the reason in the status."""
    prefix_length = len(str(host.kubelet_dir / "device-plugins" / endpoint.prefix(RESOURCE)))
    host.kubelet_dir = host.kubelet_dir / ("d" * (107 - len(".sock") - prefix_length))
    host.plugins = host.kubelet_dir / "device-plugins"
    host.plugins.mkdir(parents=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(host.plugins / "kubelet.sock"))
    listener.listen()
    host.write(device("0"))
    host.run()
    state = eventually(
        lambda: host.state() and "choose a shorter --kubelet-dir" in host.state().detail and host.state()
    )
    assert not state.registered
    time.sleep(1)
    assert host.logged("choose a shorter --kubelet-dir") == 1
    assert host.end() == 0
    listener.close()


def test_a_state_file_that_is_removed_is_written_again(host):
    """The exporter would say for ever that nothing is known of the resource."""
    host.write(device("0"))
    host.kubelet.start()
    host.run()
    host.registered()
    eventually(lambda: host.state().registered)

    spool.path_of(host.run_dir / "state", KEY).unlink()

    eventually(lambda: host.state() and host.state().registered)


def test_a_child_says_which_version_of_the_list_the_kubelet_has(host):
    """Without a stream, the one that a stream would begin with: a device may move only when this list is without it."""
    host.write(device("0"), device("1"), version=7)
    host.run()
    eventually(lambda: host.state() and host.state().sent_version == 7)
    host.write(device("0"), version=8)
    eventually(lambda: host.state().sent_version == 8)

    host.kubelet.start()
    registration = host.registered()
    assert host.state().sent_version == 8
    host.write(device("0"), device("1"), version=9)
    eventually(lambda: host.state().sent_version == 9)
    eventually(lambda: set(registration.health) == {"0", "1"})  # it was sent; reading it takes the kubelet a moment
    host.write(device("0", node="/dev/other"), device("1"), version=10)  # the kubelet has this list already
    eventually(lambda: host.state().sent_version == 10)
    host.kubelet.stop()
    host.write(device("1"), version=11)
    eventually(lambda: host.state().sent_version == 11)


def test_a_stopped_child_does_not_say_that_it_has_sent_a_list(host):
    """Nor does one that goes on, before the kubelet's stream has carried it."""
    host.write(device("0"), device("1"), version=1)
    host.kubelet.start()
    pid = host.run()
    registration = host.registered()
    eventually(lambda: host.state().sent_version == 1)
    os.kill(pid, signal.SIGSTOP)
    host.write(device("1"), version=2)
    time.sleep(0.5)
    assert (host.state().sent_version, set(registration.health)) == (1, {"0", "1"})
    os.kill(pid, signal.SIGCONT)
    eventually(lambda: host.state().sent_version == 2)
    eventually(lambda: set(registration.health) == {"1"})
