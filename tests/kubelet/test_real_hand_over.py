"""A server that the kubelet watches is replaced by another one: no pod is refused, and no device is ever missing."""

import contextlib
import os
import signal
import time

import pytest
from admission_storm import AdmissionStorm
from real_kubelet import pod
from resource_child import RESOURCE, device, eventually

from devherd.process import YIELD
from devherd.proto import spool_pb2

REGISTERED = "registered example.com/gpu with the kubelet"
COUNT = int(os.environ.get("DEVHERD_TEST_HAND_OVERS", "10"))
TAKEN = "took over from the server before, without a gap"
DEVICES = [device(str(number)) for number in range(8)]
PREFERRED = [spool_pb2.NONE, spool_pb2.ALIGNED]
DELAYS_SECONDS = (0.0, 0.15, 0.25, 0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8)
"""From the start of the new process on: it registers after some 0.3 s, and the old one ends some 0.3 s later."""


def hands_over(node):
    """Whether a child is ready to hand over."""
    return any(node.kubelet.plugins.glob(".devherd-*-hand-over.sock"))


def begin_hand_over(node):
    """Have the running child hand over to another process; the pid of the first, and of the second."""
    [old] = node.pids
    os.kill(old, YIELD)
    eventually(lambda: hands_over(node))
    node.run()
    return old, node.pids[0]


def hand_over(node):
    """Have the running child hand over to another process, which has then taken over."""
    count = node.log.read_text().count(TAKEN)
    begin_hand_over(node)
    eventually(lambda: node.log.read_text().count(TAKEN) > count)


def test_no_pod_is_refused_while_one_process_hands_over_to_another(child_node):
    """Ten times, beside pods that come and go; then the end of the last one is noticed at once."""
    child_node.kubelet.start()
    child_node.serve(*DEVICES)
    with AdmissionStorm(child_node.kubelet, RESOURCE) as storm:
        for _ in range(COUNT):
            hand_over(child_node)
    assert (storm.refusals, storm.lowest) == ([], len(DEVICES))
    child_node.end(signal.SIGKILL)
    child_node.until_capacity(8, 0)


@pytest.mark.parametrize("change", ["options", "socket"])
def test_no_pod_is_refused_when_a_server_is_replaced_in_its_process(child_node, change):
    """Its options have changed, or somebody has removed its socket. Five times, and its end is noticed at once."""
    child_node.kubelet.start()
    child_node.serve(*DEVICES)
    with AdmissionStorm(child_node.kubelet, RESOURCE) as storm:
        for number in range(5):
            count = child_node.log.read_text().count(TAKEN)
            if change == "options":
                child_node.write(*DEVICES, preferred=PREFERRED[number % 2])
            else:
                (child_node.kubelet.plugins / child_node.state().endpoint).unlink()
            eventually(lambda: child_node.log.read_text().count(TAKEN) > count)  # noqa: B023 - called at once
    assert (storm.refusals, storm.lowest) == ([], len(DEVICES))
    assert child_node.state().registered
    child_node.end(signal.SIGKILL)
    child_node.until_capacity(8, 0)


@pytest.mark.parametrize("victim", ["old", "new", "kubelet"])
def test_what_dies_in_the_middle_of_a_hand_over_costs_no_more_than_its_own_restart(child_node, victim):
    """At whichever step: afterwards all devices are there, pods run, and the end of the last process is noticed."""
    child_node.kubelet.start()
    child_node.serve(*DEVICES)
    for number, delay in enumerate(DELAYS_SECONDS):
        before = child_node.state().generation
        old, new = begin_hand_over(child_node)
        time.sleep(delay)
        if victim == "kubelet":
            child_node.kubelet.restart()
        else:
            kill(old if victim == "old" else new)
        if victim == "new":
            count = child_node.log.read_text().count(REGISTERED)
            child_node.run()  # as the supervisor does
            eventually(lambda: child_node.log.read_text().count(REGISTERED) > count)  # noqa: B023 - called at once
        # That of the next process, as one that hands over writes none: told to hand over before, it would just end.
        eventually(lambda: child_node.state().registered and child_node.state().generation != before)  # noqa: B023
        eventually(lambda: not hands_over(child_node))
        child_node.until_capacity(8, 8)
        admitted = child_node.kubelet.admit(pod(f"after-{number}", {RESOURCE: 8}))
        assert admitted.admitted, admitted.message
        child_node.kubelet.ask("free", uid=f"after-{number}")
    child_node.end(signal.SIGKILL)
    child_node.until_capacity(8, 0)


def kill(pid):
    """SIGKILL, if the process has not ended by itself."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_one_that_nobody_takes_over_from_serves_on_and_ends_when_it_is_told(child_node):
    """The instance that stood by has died: SIGTERM follows after some seconds."""
    child_node.kubelet.start()
    child_node.serve(*DEVICES)
    os.kill(child_node.pids[0], YIELD)
    eventually(lambda: hands_over(child_node))
    child_node.write(device("0", "lost"), *DEVICES[1:])
    child_node.until_capacity(8, 7)
    assert child_node.kubelet.admit(pod("a", {RESOURCE: 7})).admitted
    assert child_node.end() == 0
    child_node.until_capacity(8, 0)
    assert (hands_over(child_node), child_node.sockets()) == (False, [])


def test_a_resource_that_the_next_instance_does_not_have_ends_with_an_empty_list(child_node):
    """Its file is removed by that instance."""
    child_node.kubelet.start()
    child_node.serve(*DEVICES)
    os.kill(child_node.pids[0], YIELD)
    eventually(lambda: hands_over(child_node))
    child_node.remove()
    child_node.until_capacity(0, 0)
    eventually(lambda: not hands_over(child_node))


def test_no_pod_is_refused_in_roll_outs_and_the_end_of_the_last_devherd_is_noticed(herd_node):
    """Beside pods that come and go. Without one that stands by, all devices are gone with devherd."""
    resource = "example.com/toy"
    herd_node.start(config={"simulated": [{"name": resource, "count": 8}]})
    herd_node.until_capacity(resource, 8, 8)
    with AdmissionStorm(herd_node.kubelet, resource) as storm:
        for _ in range(COUNT):
            herd_node.roll_out()
    print(f"{storm.admitted} pods, {storm.looks} looks: {storm.refusals}, least {storm.lowest}")
    assert (storm.refusals, storm.lowest) == ([], 8)
    herd_node.stop_herd(signal.SIGKILL)
    herd_node.until_capacity(resource, 8, 0)


@pytest.mark.parametrize("victim", ["old", "new"])
def test_a_devherd_that_is_killed_in_the_middle_of_a_roll_out_costs_no_more_than_its_own_restart(herd_node, victim):
    """At whichever step: a container that is killed is started again, and stands by or takes over."""
    resource = "example.com/toy"
    herd_node.start(config={"simulated": [{"name": resource, "count": 8}]})
    for delay in (0.0, 0.05, 0.1, 0.2, 0.3, 0.5):
        herd_node.until_capacity(resource, 8, 8)
        old = herd_node.stand_by()
        old.send_signal(signal.SIGTERM)
        time.sleep(delay)
        if victim == "old":
            old.kill()
        else:
            herd_node.stop_herd(signal.SIGKILL)
            herd_node.start_herd("--take-over")
        old.wait(30)
        eventually(lambda: herd_node.is_registered(resource))
        herd_node.until_capacity(resource, 8, 8)
    herd_node.until_quiet()
    herd_node.stop_herd(signal.SIGKILL)
    herd_node.until_capacity(resource, 8, 0)
