"""`devherd sim kubelet events`, `status`, `check` as a plugin's author meets them, and pytest's fixture."""

import json
import subprocess

import pytest
from sim_kubelet import COMMAND, sim_kubelet
from small_plugin import RESOURCE

from devherd.errors import DevherdError
from devherd_sim.node.presets import PRESETS


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
    assert [finding["check"] for finding in devherd_kubelet.check(down=0.0, timeout=0.2)] == [
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
    assert devherd_kubelet.health(RESOURCE) == {"a": "Healthy", "b": "Healthy"}
    assert [(device["id"], device["pod"]) for device in devherd_kubelet.devices()] == [("a", "train"), ("b", "train")]
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
