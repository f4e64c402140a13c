"""A real resource child before kubelets that come late, restart, refuse, hang, forget or let go."""

import os
import shutil
import signal
import socket
import time
from itertools import pairwise

import grpc
import pytest
from plugin_host import RESOURCE, device, eventually


@pytest.fixture
def child(host):
    """A registered child with one device."""
    host.write(device("0"))
    host.kubelet.start()
    host.run()
    host.registered()
    return host


def names(host):
    """The socket names of all calls of Register so far."""
    return [request.endpoint for request in host.kubelet.requests]


def test_a_late_kubelet_is_waited_for_and_that_is_said_once(host):
    """Neither the socket nor its directory need be there at the start."""
    host.write(device("0"))
    host.run()
    eventually(lambda: host.state() and "kubelet.sock does not exist" in host.state().detail)
    time.sleep(1.5)
    host.kubelet.start()
    assert host.registered().health == {"0": "Healthy"}
    assert host.logged("waiting for the kubelet") == 1
    assert host.logged("registered example.com/gpu") == 1


def test_a_socket_left_behind_by_a_dead_kubelet_is_not_taken_for_one(host):
    """The file exists, nobody listens: no server is made, no call is counted as failed."""
    host.plugins.mkdir()
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(host.plugins / "kubelet.sock"))
    dead.close()
    host.write(device("0"))
    host.run()
    eventually(lambda: host.state() and "refuses connections" in host.state().detail)
    assert host.sockets() == []
    host.kubelet.start()
    host.registered()
    assert host.logged("not registered") == 0


def test_a_restarted_kubelet_gets_a_fresh_registration_each_time(child):
    """It cleans the directory and remembers nothing; every generation has a name of its own."""
    for count in (2, 3, 4):
        child.kubelet.restart()
        assert child.registered(count).health == {"0": "Healthy"}
    assert len(set(names(child))) == len(names(child)) >= 4
    assert child.sockets() == [names(child)[-1]]
    eventually(lambda: child.counted("devherd_kubelet_restarts_total") == 3)


def test_a_kubelet_that_is_away_for_a_while_is_waited_for(child):
    """The state says so meanwhile."""
    child.kubelet.stop()
    eventually(lambda: "waiting for the kubelet" in child.state().detail)
    assert child.sockets() == []
    child.kubelet.start()
    child.registered(2)
    eventually(lambda: child.state().registered)


def test_a_new_kubelet_socket_is_a_new_kubelet_even_if_the_old_stream_is_still_open(child):
    """An old kubelet may take its time to die; the new one knows of no plugin."""
    old = child.kubelet._server
    child.kubelet.socket.rename(child.plugins / "old")  # keeps the old listener alive, out of the way
    child.kubelet.start()
    child.registered(2)
    assert child.registered(1).ended is not None
    old.stop(0).wait()


def test_a_stream_that_the_kubelet_cuts_is_a_new_generation(child):
    """It never opens one again by itself."""
    child.registered().cut()
    second = child.registered(2)
    assert second.request.endpoint != names(child)[0]
    assert child.sockets() == [second.request.endpoint]
    eventually(lambda: child.state().registered)


def test_a_removed_socket_file_is_a_new_generation(child):
    """Nobody could dial it any more."""
    (child.plugins / names(child)[0]).unlink()
    assert child.registered(2).health == {"0": "Healthy"}
    assert child.logged("was removed") == 1


def test_a_socket_file_replaced_by_another_is_left_alone(child):
    """It is not ours: unlinking it by name would take it from somebody."""
    path = child.plugins / names(child)[0]
    path.rename(child.plugins / "spare")
    path.write_text("somebody else's")
    child.registered(2)
    assert path.read_text() == "somebody else's"


def test_a_directory_removed_and_made_again_is_no_end(child):
    """An administrator's rm -rf and the kubelet's next start."""
    child.kubelet.stop()
    shutil.rmtree(child.plugins)
    eventually(lambda: "waiting for the kubelet" in child.state().detail)
    child.kubelet.start()
    child.registered(2)


def test_the_old_server_has_stopped_before_the_new_one_registers_with_another_kubelet(child):
    """Nobody watches it any more."""
    ended = []
    register = child.kubelet.Register

    def observe(request, context):
        ended.append([each.ended for each in child.kubelet.registrations])
        return register(request, context)

    child.kubelet.Register = observe
    child.kubelet.restart()
    child.registered(2)
    assert all(None not in before for before in ended)


def test_a_server_that_the_kubelet_watches_is_replaced_by_one_that_is_registered_already(child):
    """Its stream ends only then, once nobody is registered by the resource's name: see device_plugin/hand_over.py."""
    (child.plugins / names(child)[-1]).unlink()
    child.registered(2)
    first, second = child.kubelet.registrations[:2]
    assert first.ended is None or second.lists
    eventually(lambda: first.ended is grpc.StatusCode.OK)
    eventually(lambda: len(child.kubelet.registrations) == 3)  # the second socket of the same server
    assert [len(child.kubelet.requests), second.ended, child.kubelet.registrations[2].ended] == [4, None, None]
    eventually(lambda: child.kubelet.registrations[2].health == {"0": "Healthy"})
    child.write(device("0", "lost"))
    eventually(lambda: {each.health["0"] for each in child.kubelet.registrations[1:]} == {"Unhealthy"})
    child.end()
    assert child.sockets() == []


def test_a_stream_is_kept_where_the_directory_was_emptied_and_no_kubelet_takes_registrations(child):
    """Defect: it let go of the stream that it had, and the node had no devices until somebody restarted the kubelet."""
    child.kubelet.socket.unlink()
    (child.plugins / names(child)[0]).unlink()
    eventually(lambda: child.logged("was removed; the kubelet's stream is still open, and is kept"))
    child.write(device("0", "lost"))
    eventually(lambda: child.kubelet.registrations[0].health == {"0": "Unhealthy"})
    assert child.state().registered
    assert child.kubelet.registrations[0].ended is None
    child.kubelet.restart()
    assert child.registered(2).health == {"0": "Unhealthy"}


def test_a_stream_that_is_never_opened_is_a_new_generation(host):
    """Register was answered, and nothing came of it."""
    host.write(device("0"))
    host.kubelet.opens_streams = False
    host.kubelet.start()
    host.run()
    eventually(lambda: host.kubelet.registrations)
    eventually(lambda: host.state() and not host.state().registered)
    host.kubelet.opens_streams = True
    assert len(set(names(host))) == 1
    eventually(lambda: len(host.kubelet.calls) == 2)
    host.registered(2)
    assert 4 < host.kubelet.calls[1] - host.kubelet.calls[0] < 60
    assert len(set(names(host))) == 2
    eventually(lambda: host.counted("devherd_registration_failures_total", resource_name=RESOURCE) == 1)


def test_a_refusal_is_told_in_the_kubelets_words_and_retried_ever_later(host):
    """Quick first tries, growing pauses, a fresh name for each, one line for the same words."""
    host.write(device("0"))
    host.kubelet.refusal = 'the ResourceName "example.com/gpu" is invalid'
    host.kubelet.start()
    host.run()
    eventually(lambda: len(host.kubelet.calls) >= 5)
    pauses = [later - earlier for earlier, later in pairwise(host.kubelet.calls)]
    assert pauses[3] > 0.25
    assert len(set(names(host))) == len(names(host))
    assert host.logged("is invalid") == 1
    assert 'the ResourceName "example.com/gpu" is invalid' in host.state().detail
    host.kubelet.refusal = ""
    host.registered()
    eventually(lambda: host.counted("devherd_registration_failures_total", resource_name=RESOURCE) >= 5)
    eventually(lambda: host.state().registered)


def test_a_kubelet_that_refused_is_not_waited_out_when_it_restarts(host):
    """What the old one did is not held against the new one: its pods wait."""
    host.write(device("0"))
    host.kubelet.refusal = "not now"
    host.kubelet.start()
    host.run()
    eventually(lambda: len(host.kubelet.calls) >= 8)  # the next pause is 4.8 s or longer
    host.kubelet.refusal = ""
    began = time.monotonic()
    host.kubelet.restart()
    host.registered()
    assert time.monotonic() - began < 4.5


def test_a_kubelet_that_dials_late_is_answered(host):
    """It dials back inside Register and may take its time."""
    host.write(device("0"))
    host.kubelet.dials_after = 1.0
    host.kubelet.start()
    host.run()
    assert host.registered().health == {"0": "Healthy"}
    assert len(host.kubelet.calls) == 1


def test_a_stop_while_the_kubelet_hangs_in_register_is_still_a_stop(host):
    """SIGTERM waits for nobody."""
    host.write(device("0"))
    host.kubelet.hangs = True
    host.kubelet.start()
    host.run()
    eventually(lambda: host.kubelet.calls)
    began = time.monotonic()
    assert host.end() == 0
    assert time.monotonic() - began < 10
    assert host.sockets() == []
    assert host.state().detail == "stopped"


def test_a_stop_while_the_kubelet_is_away_is_still_a_stop(host):
    """In every state of a child SIGTERM ends it: waiting for its file, waiting for the kubelet."""
    host.run()
    eventually(lambda: host.logged("waiting for it"))
    assert host.end() == 0
    host.write(device("0"))
    host.run()
    eventually(lambda: host.logged("waiting for the kubelet"))
    assert host.end() == 0


def test_a_kubelet_restarted_while_a_child_registers_gets_its_registration(host):
    """The call to the old one is given up as soon as there is a new one."""
    host.write(device("0"))
    host.kubelet.hangs = True
    host.kubelet.start()
    host.run()
    eventually(lambda: host.kubelet.calls)
    hanging = host.kubelet._server
    host.kubelet.socket.rename(host.plugins / "old")
    host.kubelet.hangs = False
    host.kubelet._server = None
    began = time.monotonic()
    host.kubelet.start()
    eventually(lambda: host.state().registered)
    assert time.monotonic() - began < 10
    hanging.stop(0).wait()


def test_many_children_of_a_node_come_back_together(host):
    """Each sees the sockets of all the others come and go, and minds its own."""
    for number in range(6):
        host.write(device("0"), name=f"{RESOURCE}{number}")
    host.kubelet.start()
    host.run(count=6)
    for before in (0, 6, 12):
        eventually(lambda before=before: len(host.kubelet.registrations) == before + 6)
        current = host.kubelet.registrations[before:]
        assert {each.request.resource_name for each in current} == {f"{RESOURCE}{number}" for number in range(6)}
        eventually(lambda current=current: all(each.lists for each in current))
        assert host.sockets() == sorted(each.request.endpoint for each in current)
        host.kubelet.restart()


def test_a_kubelet_that_does_not_read_delays_nobody_but_itself(child):
    """A stopped kubelet process holds its own stream up; allocation and the end of the child go on."""
    spectator = child.registered().plugin.ListAndWatch  # a stream that is opened and never read
    from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1

    unread = spectator(v1beta1.Empty())
    for number in range(5):
        child.write(*(device(f"{number}-{each}" + "x" * 40) for each in range(5_000)))
        time.sleep(0.3)
    assert child.registered().allocate(["4-0" + "x" * 40])
    began = time.monotonic()
    assert child.end() == 0
    assert time.monotonic() - began < 10
    unread.cancel()


def test_a_kubelet_that_dies_in_the_middle_of_long_lists_leaves_no_trace_in_the_log(child):
    """A list may be half written when the connection ends."""
    for number in range(8):
        child.write(*(device(f"{number}-{each}" + "x" * 40) for each in range(10_000)))
        child.kubelet.restart()
    eventually(lambda: child.kubelet.registrations[-1].health.keys() >= {"7-0" + "x" * 40})


def test_a_frozen_child_goes_on_where_it_was(child):
    """SIGSTOP and SIGCONT within the supervisor's patience cost nothing."""
    os.kill(child.pids[0], signal.SIGSTOP)
    time.sleep(0.5)
    child.write(device("0", "xid"))
    os.kill(child.pids[0], signal.SIGCONT)
    eventually(lambda: child.registered().health == {"0": "Unhealthy"})
    assert len(child.kubelet.calls) == 1
