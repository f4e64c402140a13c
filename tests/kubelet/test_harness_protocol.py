"""The harness answers whatever it is sent, and is a kubelet only as long as somebody holds its stdin."""

import json
import subprocess
import time

import pytest
from raw_plugin import RawPlugin, register
from real_kubelet import KubeletError, container, pod
from resource_child import eventually


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "not a request"),
        ("nonsense", "not a request"),
        ("[]", "not a request"),
        ('{"op": 3}', "not a request"),
        ('{"op": "dance"}', 'no operation "dance"'),
        ('{"op": "admit", "pod": 7}', "not as the operation wants it"),
        ('{"op": "admit", "pod": {}}', "a pod needs a uid"),
        ('{"op": "admit", "pod": {"uid": "a"}}', "pod a has no container"),
        ('{"op": "free", "uid": "nobody"}', 'no pod "nobody"'),
        ('{"op": "pod_devices"}', 'no pod ""'),
        ('{"op": "checkpoint"}', "no such file"),
        ('{"op": "start", "directory": "/tmp"}', "it has been started"),
    ],
)
def test_a_bad_request_is_answered_with_what_is_wrong(child_node, line, words):
    """And the next one is served."""
    child_node.kubelet.start()
    child_node.kubelet.send_line(line)
    (answer,) = eventually(lambda: child_node.kubelet.events)
    assert words in answer["error"]
    assert child_node.kubelet.ask("capacity") == {"capacity": {}, "allocatable": {}, "deleted": []}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"directory": "relative"}, "not absolute"),
        ({"policy": "dreamy"}, 'unknown policy: "dreamy"'),
        ({"policy": "restricted", "scope": "planet"}, 'unknown scope: "planet"'),
        ({"policy": "restricted", "numa_nodes": list(range(9))}, "unsupported on machines with more than 8 NUMA Nodes"),
        ({"numa_nodes": "two"}, "cannot unmarshal string"),
    ],
)
def test_a_start_that_cannot_be_says_why_and_another_can_follow(harness, directory, options, words):
    """Nothing is half started."""
    process = subprocess.Popen([harness], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def ask(**request):
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    assert ask(id="one", op="capacity") == {"id": "one", "error": "start comes first"}
    assert words in ask(id=1, op="start", **({"directory": str(directory)} | options))["error"]
    assert ask(id=2, op="start", directory=str(directory)) == {"id": 2, "result": None}
    process.communicate()
    assert process.returncode == 0


def test_what_hangs_in_a_plugin_holds_up_admissions_and_nothing_else(child_node):
    """One sync loop, as in a kubelet."""
    kubelet = child_node.kubelet
    kubelet.start()
    plugin = RawPlugin(kubelet.plugins / "raw.sock")
    plugin.wait.clear()
    assert register(kubelet.plugins, "raw.sock", "example.com/raw") == ""
    plugin.send("a")
    eventually(lambda: kubelet.capacity("example.com/raw"))
    first = kubelet.send("admit", pod=pod("a", {"example.com/raw": 1}))
    plugin.asked.wait(20)
    second = kubelet.send("admit", pod=pod("b"))
    assert kubelet.capacity("example.com/raw") == (1, 1)
    time.sleep(0.2)
    assert not first.done()
    assert not second.done()
    plugin.wait.set()
    assert first.result(20)["containers"]["main"]["envs"] == {"IDS": "a"}
    assert second.result(20)["admitted"]
    plugin.stop()


def test_a_container_that_the_plugin_does_not_let_start_is_not_told_to_the_runtime(child_node):
    """The pod stays admitted: the kubelet would try again."""
    kubelet = child_node.kubelet
    kubelet.start()
    plugin = RawPlugin(kubelet.plugins / "raw.sock")
    plugin.pre_start_error = "not warm"
    assert register(kubelet.plugins, "raw.sock", "example.com/raw") == ""
    plugin.send("a")
    eventually(lambda: kubelet.capacity("example.com/raw"))
    spec = pod("a", {"example.com/raw": 1})
    admitted = kubelet.admit(spec)
    assert admitted.admitted
    words = "device plugin PreStartContainer rpc failed with err: rpc error: code = Internal desc = not warm"
    assert admitted.main.error == words
    plugin.pre_start_error = ""
    assert kubelet.ask("run", pod=spec)["main"]["envs"] == {"IDS": "a"}
    plugin.stop()


def test_a_kubelet_that_is_killed_fails_what_was_asked_of_it(child_node):
    """Nobody waits for a dead kubelet."""
    child_node.kubelet.start()
    plugin = RawPlugin(child_node.kubelet.plugins / "raw.sock")
    plugin.wait.clear()
    register(child_node.kubelet.plugins, "raw.sock", "example.com/raw")
    plugin.send("a")
    eventually(lambda: child_node.kubelet.capacity("example.com/raw"))
    asked = child_node.kubelet.send("admit", pod=pod("a", containers=[container("main", {"example.com/raw": 1})]))
    plugin.asked.wait(20)
    child_node.kubelet.kill()
    with pytest.raises(KubeletError, match="the kubelet has ended"):
        asked.result(20)
    plugin.wait.set()
    plugin.stop()
