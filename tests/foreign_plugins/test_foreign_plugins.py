"""What docs/test-your-plugin.md shows, with plugins of others: both know /var/lib/kubelet only."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import scratch

PAGE = (Path(__file__).parents[2] / "docs/test-your-plugin.md").read_text(encoding="utf-8")
EXECUTED = "devherd sim kubelet exec -- python plugin.py /var/lib/kubelet/device-plugins"
GIVEN_ITS_DIRECTORY = 'python plugin.py "$DEVHERD_KUBELET_DIR/device-plugins"'
SAMPLE, MOCK = "example.com/resource", "mock.org/mock"
FILES_OF_ITS_OWN = 'exec 9< "$0" && mount -t tmpfs tmpfs /tmp && exec /proc/self/fd/9'
TWO_DEVICES = 'exec 9< "$0" && mount -t tmpfs tmpfs /dev && touch /dev/mock0 /dev/mock1 && exec /proc/self/fd/9'
"""Run a plugin whose files in a directory nobody else sees: the namespace of `exec` has the right to mount."""


def blocks(language):
    """The code of the page in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def run(tmp_path):
    """Runs the page's commands with a plugin in the place of the page's own: what they print."""
    place = scratch.directory()
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin:/usr/sbin:/sbin"
    environment = {"PATH": path, "TMPDIR": str(place), "HOME": str(tmp_path)}

    def run(commands, inside, program, resource):
        plugin = f"devherd sim kubelet exec -- sh -c '{inside}' {program}"
        for words in (EXECUTED, GIVEN_ITS_DIRECTORY):
            commands = commands.replace(words, plugin)
        with (tmp_path / "said").open("w") as said:  # no pipe: what is left in the background has it, too
            script = ["bash", "-mec", commands.replace("example.com/gpu", resource)]
            words = {"env": environment, "cwd": tmp_path, "stdout": said, "stderr": said}
            done = subprocess.run(script, timeout=120, check=False, **words)
        text = (tmp_path / "said").read_text()
        assert done.returncode == 0, text
        return text.splitlines()

    yield run
    shutil.rmtree(place)


@pytest.mark.timeout(200)
def test_the_pages_commands_work_with_kubernetes_sample_plugin(run, sample_plugin):
    """It is registered again after a restart, which it looks for every ten seconds; nothing is amiss with it."""
    by_hand, fixed_path, *_ = blocks("sh")
    said = run(by_hand, FILES_OF_ITS_OWN, sample_plugin, SAMPLE)
    assert f"{SAMPLE}: 2 of 2 devices are allocatable" in said
    assert "no findings" in said
    assert f"{SAMPLE}: no plugin is connected" in run(fixed_path, FILES_OF_ITS_OWN, sample_plugin, SAMPLE)


@pytest.mark.timeout(200)
def test_the_pages_commands_work_with_a_plugin_in_rust(run, rust_plugin):
    """It gives any id a node, which is found."""
    by_hand, fixed_path, *_ = blocks("sh")
    accepted = by_hand.replace("sim kubelet check", "sim kubelet check --no-restart --ignore unknown-id-accepted")
    said = run(accepted, TWO_DEVICES, rust_plugin, MOCK)
    assert f"{MOCK}: 2 of 2 devices are allocatable" in said
    assert "no findings" in said
    assert f"{MOCK}: no plugin is connected" in run(fixed_path, TWO_DEVICES, rust_plugin, MOCK)


@pytest.mark.timeout(600)
def test_the_pages_test_in_go_passes_with_kubernetes_sample_plugin(tmp_path, tool, sample_plugin):
    """With the program and what it gives in the place of the page's."""
    program = f'"sh", "-c", `{FILES_OF_ITS_OWN}`, "{sample_plugin}")'
    code = blocks("go")[0].replace('"python", "plugin.py", "/var/lib/kubelet/device-plugins")', program)
    code = code.replace("example.com/gpu", SAMPLE).replace('"gpu-0,gpu-1"', '"/tmp/Dev-2"')
    (tmp_path / "plugin_test.go").write_text(code)
    (tmp_path / "go.mod").write_text("module example.com/plugin\n\ngo 1.22\n")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    words = [tool("go"), "test", "-count=1", "-v", "."]
    done = subprocess.run(
        words, cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "--- PASS: TestAContainerGetsWhatItAsksFor" in done.stdout) == (0, True), done.stdout


def test_the_fixture_runs_kubernetes_sample_plugin(devherd_kubelet, sample_plugin):
    """What its source says that a container gets, and its refusal in the kubelet's words."""
    devherd_kubelet.run(["sh", "-c", FILES_OF_ITS_OWN, sample_plugin])
    devherd_kubelet.wait(SAMPLE, allocatable=2, timeout=30)
    given = devherd_kubelet.allocate(SAMPLE, 2)
    paths = [f"/tmp/Dev-{number}" for number in (1, 2)]
    assert given["device_ids"] == ["Dev-1", "Dev-2"]
    assert sorted(given["mounts"], key=str) == [
        {"host_path": path, "container_path": path, "read_only": False} for path in paths
    ]
    assert devherd_kubelet.check(restart=False) == []
    devherd_kubelet.programs[0].terminate()
    devherd_kubelet.wait(SAMPLE, gone=True, timeout=30)


def test_the_fixture_runs_a_plugin_in_rust(devherd_kubelet, rust_plugin):
    """A node for each id, whether it is one or not."""
    devherd_kubelet.run(["sh", "-c", TWO_DEVICES, rust_plugin])
    devherd_kubelet.wait(MOCK, allocatable=2, timeout=30)
    [node] = devherd_kubelet.allocate(MOCK, 1)["devices"]
    assert node == {"host_path": node["host_path"], "container_path": node["host_path"], "permissions": "r"}
    assert node["host_path"] in {"/dev/mock0", "/dev/mock1"}
    assert [finding["check"] for finding in devherd_kubelet.check(restart=False)] == ["unknown-id-accepted"]
