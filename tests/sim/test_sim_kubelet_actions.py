"""`devherd sim kubelet wait`, `events`, `status`, `check` as a plugin's author meets them, and pytest's fixture."""

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
from types import SimpleNamespace

import grpc
import pytest
from small_plugin import RESOURCE, SmallPlugin

from devherd.errors import DevherdError
from devherd.settings import Settings
from devherd_sim.node.presets import PRESETS

COMMAND = [sys.executable, "-m", "devherd", "sim", "kubelet"]


def sim_kubelet(directory, *words):
    """Run an action to its end."""
    command = [*COMMAND, *map(str, words), "--kubelet-dir", str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def serving(devherd_kubelet):
    """`serving(plugin → None, version)`: a plugin of two devices, in a thread of its own, that has called Register."""
    stop = threading.Event()
    threads = []

    def start(bend=lambda _: None, **words):
        has_called = threading.Event()

        async def serve():
            plugin = SmallPlugin(SimpleNamespace(paths=Settings(kubelet_dir=devherd_kubelet.directory)), "a", "b")
            bend(plugin)
            await plugin.serve()
            with contextlib.suppress(grpc.aio.AioRpcError):  # the kubelet's refusal is what some tests want
                await plugin.register(**words)
            has_called.set()
            await asyncio.to_thread(stop.wait)
            await plugin.stop()

        threads.append(threading.Thread(target=lambda: asyncio.run(serve())))
        threads[-1].start()
        assert has_called.wait(30)

    yield start
    stop.set()
    for thread in threads:
        thread.join()


def test_wait_ends_when_the_devices_are_there(devherd_kubelet, serving):
    """Its last words are numbers, also as JSON."""
    serving()
    directory = devherd_kubelet.directory
    waited = sim_kubelet(directory, "wait", RESOURCE, "--allocatable", 2)
    assert (waited.returncode, waited.stdout) == (0, f"{RESOURCE}: 2 of 2 devices are allocatable\n")
    answer = json.loads(sim_kubelet(directory, "wait", RESOURCE, "--output", "json").stdout)
    assert (answer["name"], answer["allocatable"]) == (RESOURCE, 2)


def test_wait_says_what_was_missing(devherd_kubelet, serving):
    """Nobody has called, somebody was refused, or the devices are fewer."""
    for said in (
        "its plugin has not called Register; called so far: no plugin at all",
        "its registration was refused: requested API version",
    ):
        waited = sim_kubelet(devherd_kubelet.directory, "wait", RESOURCE, "--timeout", "300ms")
        assert (waited.returncode, waited.stdout) == (1, "")
        assert waited.stderr.startswith(f"devherd: {RESOURCE} is not there after 0.3 s — ")
        assert said in waited.stderr
        serving(version="v1alpha")
    serving()
    waited = sim_kubelet(devherd_kubelet.directory, "wait", RESOURCE, "--allocatable", 3, "--timeout", "500ms")
    assert (waited.returncode, "2 of 2 devices are allocatable" in waited.stderr) == (1, True)


def test_wait_waits_for_the_kubelet_too(kubelet_dir):
    """It was started in the background a moment ago, as in the script of a CI."""
    waited = sim_kubelet(kubelet_dir, "wait", RESOURCE, "--timeout", "200ms")
    assert (waited.returncode, "no embedded kubelet answers" in waited.stderr) == (4, True)
    waiting = subprocess.Popen([*COMMAND, "wait", RESOURCE, "--timeout", "3s", "--kubelet-dir", kubelet_dir])
    kubelet = subprocess.Popen([*COMMAND, "--kubelet-dir", kubelet_dir], stdout=subprocess.DEVNULL)
    assert waiting.wait(timeout=60) == 1  # no plugin; without a kubelet it would be 4
    kubelet.terminate()
    kubelet.wait()


def test_events_are_lines_of_json_and_can_be_followed(devherd_kubelet, serving):
    """With the time in UTC; each line comes when it happens."""
    command = [*COMMAND, "events", "--follow", "--output", "json", "--kubelet-dir", str(devherd_kubelet.directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        try:
            first = json.loads(following.stdout.readline())
            serving()
            kinds = []
            while "list" not in kinds:
                kinds.append(json.loads(following.stdout.readline())["kind"])
        finally:
            following.kill()
    assert (first["kind"], first["time"][-1]) == ("started", "Z")
    assert kinds == ["register-called", "registered", "list"]
    text = sim_kubelet(devherd_kubelet.directory, "events", RESOURCE).stdout.splitlines()
    assert [line.partition(f"Z {RESOURCE}: ")[2] for line in text] == [
        "registered, socket p.sock",
        "list of 2 healthy and 0 unhealthy devices",
    ]


def test_status_shows_the_plugin_and_its_last_error(devherd_kubelet, serving):
    """And who was refused, and is no resource therefore."""
    serving(version="v1alpha")
    refused = sim_kubelet(devherd_kubelet.directory, "status").stdout
    assert f'{RESOURCE}: refused: requested API version "v1alpha"' in refused
    serving()
    devherd_kubelet.wait(RESOURCE)
    [resource] = devherd_kubelet.status()["resources"]
    plugin = resource["plugin"]
    assert plugin.pop("connected_seconds") >= 0
    assert plugin == {
        "socket": str(devherd_kubelet.plugin_directory / "p.sock"),
        "pre_start_required": False,
        "get_preferred_allocation_available": False,
    }
    assert resource["last_error"]["error"].startswith("requested API version")


def test_check_prints_each_finding_with_its_cure_and_ends_with_1(devherd_kubelet, serving):
    """One line each."""
    serving()
    devherd_kubelet.wait(RESOURCE)
    checked = sim_kubelet(devherd_kubelet.directory, "check", "--no-restart")
    assert checked.returncode == 1
    assert checked.stdout == (
        f"{RESOURCE}: unknown-id-accepted: Allocate of an id that is in no list was answered — refuse ids that are not"
        " in the list, with INVALID_ARGUMENT\n"
    )
    assert [finding["check"] for finding in devherd_kubelet.check(timeout=0.2)] == [
        "unknown-id-accepted",
        "not-registered-again",
    ]
    unknown = sim_kubelet(devherd_kubelet.directory, "check", "example.com/other")
    assert (unknown.returncode, "no plugin has registered example.com/other" in unknown.stderr) == (1, True)


def test_a_real_kubelets_directory_is_not_taken_by_default(tmp_path):
    """Without --kubelet-dir it would be /var/lib/kubelet; a configuration or the environment may name one."""
    for words in ([], ["status"], ["restart"]):
        refused = subprocess.run(
            [*COMMAND, *words], capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"}
        )
        assert refused.returncode == 2
        assert refused.stderr == (
            "devherd: no directory given — without one it would be /var/lib/kubelet, which is a real kubelet's —"
            " give one of your own, like `--kubelet-dir /tmp/kubelet`\n"
        )
    named = {"PATH": "/usr/bin:/bin", "DEVHERD_KUBELET_DIR": str(tmp_path)}
    asked = subprocess.run([*COMMAND, "status"], capture_output=True, check=False, env=named)
    assert asked.returncode == 4


def test_the_fixture_gives_devices_to_pods_and_raises_the_kubelets_words(devherd_kubelet, serving):
    """What the command prints as JSON."""
    assert devherd_kubelet.allocate(RESOURCE) is None
    serving()
    devherd_kubelet.wait(RESOURCE, allocatable=2)
    assert devherd_kubelet.allocate(RESOURCE, 2, pod="train")["device_ids"] == ["a", "b"]
    with pytest.raises(DevherdError, match="Requested: 1, Available: 0"):
        devherd_kubelet.allocate(RESOURCE, 1, pod="other")
    assert devherd_kubelet.devices(RESOURCE) == {"a": "Healthy", "b": "Healthy"}
    assert devherd_kubelet.free("train")[0]["pod"] == "train"
    assert devherd_kubelet.free("train") == []
    devherd_kubelet.restart()
    assert [event["kind"] for event in devherd_kubelet.events()].count("started") == 2


def test_nothing_is_amiss_with_devherd_itself(devherd_kubelet, tmp_path):
    """Every resource of the node with every vendor, by its own rules."""
    directory = devherd_kubelet.directory
    sim_node = [*COMMAND[:-1], "node", str(directory / "host"), "--spec", "everything"]
    assert "everything" in PRESETS
    subprocess.run(sim_node, check=True, capture_output=True)
    run = [*COMMAND[:3], "run", "--host-root", directory / "host", "--kubelet-dir", directory]
    run += ["--run-dir", directory / "run", "--listen", ""]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(list(map(str, run)), stdout=log, stderr=log) as herd:
        try:
            devherd_kubelet.wait("nvidia.com/gpu", timeout=60)
            devherd_kubelet.wait("amd.com/gpu", timeout=60)
            assert devherd_kubelet.check(timeout=60) == []
        finally:
            herd.terminate()
            herd.wait(timeout=60)
