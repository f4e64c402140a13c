"""devherd is found by the kubelet's own plugin manager: `registration: plugins_registry`."""

import signal
import time

import pytest
from real_kubelet import pod
from resource_child import RESOURCE, device, eventually
from seeds import random_of

ROUNDS = 6


@pytest.fixture
def found_node(child_node):
    """A node whose children wait to be found; its kubelet is yet to start."""
    child_node.environment = {"DEVHERD_REGISTRATION": "plugins_registry"}
    return child_node


@pytest.fixture
def registered_node(found_node):
    """The same with a kubelet that has found two devices."""
    found_node.kubelet.start(plugins_registry=True)
    found_node.serve(device("0", numa=[0]), device("1", numa=[0]))
    eventually(lambda: found_node.state().registered)
    return found_node


def is_healed(node):
    """Both devices are there on one socket, a pod gets them, and the child says so."""
    node.until_capacity(2, 2)
    eventually(lambda: node.state().registered and node.state().streams == 1)
    assert node.sockets() == [node.state().endpoint]
    # The kubelet takes down the newest connection when an old stream ends, perhaps in the middle of an admission.
    eventually(lambda: node.kubelet.admit(pod("probe", {RESOURCE: 1})).admitted)
    node.kubelet.ask("free", uid="probe")


def test_a_resource_is_found_asked_and_told_without_a_call_of_register(registered_node):
    """The socket is the only one, in the other directory, and serves the device plugin too."""
    kubelet = registered_node.kubelet
    assert kubelet.devices(RESOURCE) == {"0": [0], "1": [0]}
    assert kubelet.registrations(RESOURCE) == 0
    assert [path.name for path in (kubelet.directory / "plugins_registry").iterdir()] == registered_node.sockets()
    assert registered_node.state().endpoint in registered_node.sockets()
    assert kubelet.admit(pod("a", {RESOURCE: 2})).main.paths == ["/dev/0", "/dev/1"]
    registered_node.write(device("0", "xid", numa=[0]), device("1", numa=[0]))
    registered_node.until_capacity(2, 1)


@pytest.mark.parametrize("name", ["acme/x", f"acme.example/{'n' * 63}", f"{'a' * 60}.{'b' * 60}.{'c' * 60}.d/x"])
def test_every_name_that_may_be_configured_is_found(found_node, name):
    """The socket's own name has nothing of it but a hash."""
    found_node.kubelet.start(plugins_registry=True)
    found_node.serve(device("0"), name=name)
    assert found_node.kubelet.admit(pod("a", {name: 1})).main.paths == ["/dev/0"]


def test_a_child_that_was_there_first_is_found_when_the_kubelet_comes(found_node):
    """It says meanwhile what it waits for, counts no failure, and makes no other socket."""
    registry = found_node.kubelet.directory / "plugins_registry"
    found_node.write(device("0"))
    found_node.run()
    eventually(lambda: found_node.state().detail == f"waiting for the kubelet: {registry} does not exist")
    registry.mkdir()
    eventually(lambda: found_node.state().detail == f"waiting for the kubelet to look into {registry}")
    eventually(found_node.sockets)
    waiting = found_node.sockets()
    found_node.kubelet.start(plugins_registry=True)
    found_node.until_capacity(1, 1)
    eventually(lambda: found_node.state().registered)
    assert found_node.sockets() == waiting
    assert not found_node.logged("not registered")


def test_a_refusal_is_told_in_the_kubelets_words_and_tried_again(found_node):
    """On a fresh socket: on the same one the kubelet would wait ever longer."""
    name = "x.kubernetes.io/y"
    found_node.kubelet.start(plugins_registry=True)
    found_node.write(device("0"), name=name)
    found_node.run(name)
    refusal = (
        "the kubelet refused: RegisterPlugin error -- plugin validation failed with err: "
        f'invalid name of device plugin socket: the ResourceName "{name}" is invalid'
    )
    eventually(lambda: refusal in found_node.state(name).detail)
    generation = found_node.state(name).generation
    eventually(lambda: found_node.state(name).generation > generation)
    assert found_node.kubelet.capacity(name) is None


def test_a_restarted_kubelet_finds_it_again_and_pods_keep_their_devices(registered_node):
    """The child is the same process."""
    kubelet = registered_node.kubelet
    before = kubelet.admit(pod("a", {RESOURCE: 1})).main
    pids = registered_node.pids
    kubelet.restart(sources_ready=False, containers=[{"pod_uid": "a", "name": "main", "id": "a/main", "running": True}])
    assert kubelet.admit(pod("a", {RESOURCE: 1})).main == before
    kubelet.ask("sources_ready")
    is_healed(registered_node)
    assert registered_node.pids == pids
    assert kubelet.admit(pod("b", {RESOURCE: 1})).main.device_ids[RESOURCE] != before.device_ids[RESOURCE]


def test_a_kubelet_restarted_again_and_again_always_finds_it(registered_node, request):
    """Killed at any moment, also while it asks; the seed is at the head of the output."""
    moment = random_of(request.node.name)
    for _ in range(ROUNDS):
        registered_node.kubelet.restart()
        time.sleep(moment.choice([0, 0.1, 1.1]) * moment.random())
    is_healed(registered_node)


def test_a_child_that_ends_again_and_again_is_always_found_anew(registered_node, request):
    """What a killed one has left behind is taken away; the end of an old stream costs the new one nothing for long."""
    moment = random_of(request.node.name)
    for _ in range(ROUNDS):
        registered_node.end(moment.choice([signal.SIGKILL, signal.SIGTERM]))
        registered_node.run()
        time.sleep(moment.choice([0.1, 0.5, 1.5]) * moment.random())
    is_healed(registered_node)


def test_an_orderly_end_takes_devices_and_socket_away(registered_node):
    """The kubelet keeps the capacity for its time of grace."""
    assert registered_node.end() == 0
    registered_node.until_capacity(2, 0)
    assert registered_node.sockets() == []


def test_a_socket_that_was_removed_is_replaced_by_one_that_is_found(registered_node):
    """The kubelet lets go of a plugin whose file is gone."""
    (first,) = registered_node.sockets()
    (registered_node.kubelet.directory / "plugins_registry" / first).unlink()
    eventually(lambda: registered_node.sockets() not in ([], [first]))
    is_healed(registered_node)


def test_a_stream_that_the_kubelet_has_ended_is_replaced(registered_node):
    """Here by a list too long. It does not look at the same socket again, so there is another."""
    (first,) = registered_node.sockets()
    registered_node.write(*(device(f"{number:064}") for number in range(60_000)))
    eventually(lambda: not registered_node.state().registered)
    registered_node.write(device("0"), device("1"))
    is_healed(registered_node)
    assert registered_node.sockets() != [first]


def test_a_socket_of_the_other_way_is_taken_away(registered_node):
    """After a change of the configuration, the killed child's socket would be dialled for ever."""
    registered_node.end(signal.SIGKILL)
    registered_node.environment = {}
    registered_node.run()
    eventually(lambda: registered_node.kubelet.registrations(RESOURCE) == 1)
    assert list((registered_node.kubelet.directory / "plugins_registry").iterdir()) == []
    is_healed(registered_node)
