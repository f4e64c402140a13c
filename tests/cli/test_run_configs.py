"""`devherd run` with a directory of configurations, and with labels in a file: no API server is there."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import scratch
from command_line import COMMAND, devherd, eventually

from devherd.config.loader import load
from devherd.configurations import Configurations
from devherd.kubernetes.labels import expiry_in
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode

QUICK = {"scan": {"period": "500ms"}}


class Instance:
    """On a simulated node, with a directory of configurations; short paths for the sockets."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.host = directory / "host"
        self.features = self.host / "etc/kubernetes/node-feature-discovery/features.d"
        self.run_dir = ("--run-dir", directory / "run")
        self.supervisor: subprocess.Popen | None = None
        SimulatedNode.create(self.host, preset("nvidia-1"))
        for made in ("configs", "kubelet/device-plugins"):
            (directory / made).mkdir(parents=True)

    def configure(self, name: str, **content: object) -> None:
        """Replace the file as a whole."""
        (self.directory / "new").write_text(json.dumps(QUICK | content))
        (self.directory / "new").rename(self.directory / "configs" / name)

    def start(self) -> None:
        command = [*COMMAND, "run", *self.options(), "--listen", "", *self.run_dir]
        with (self.directory / "log").open("ab") as log:
            self.supervisor = subprocess.Popen(list(map(str, command)), stderr=log)

    def options(self) -> list[object]:
        kubelet = ("--kubelet-dir", self.directory / "kubelet")
        return ["--configs", self.directory / "configs", "--host-root", self.host, *kubelet]

    def status(self) -> dict:
        """`devherd status --output json`; empty while nothing answers."""
        outcome = devherd("status", "--output", "json", *self.run_dir)
        return json.loads(outcome.stdout) if outcome.code == 0 else {}

    def resources(self) -> list[str]:
        return [resource["name"] for resource in self.status().get("resources", [])]

    def problems(self) -> str:
        return "\n".join(problem["error"] for problem in self.status().get("problems", []))

    def end(self) -> int:
        """Its exit code."""
        if self.supervisor is None:
            return 0
        self.supervisor.terminate()
        return self.supervisor.wait(30)


@pytest.fixture
def instance():
    running = Instance(scratch.directory())
    try:
        yield running
    finally:
        running.end()
        log = (running.directory / "log").read_text()
        shutil.rmtree(running.directory)
    assert "Traceback" not in log


def test_a_changed_file_is_loaded_by_itself_and_a_bad_one_leaves_the_last_good_in_force(instance):
    """No signal. That the label cannot be read is a problem."""
    instance.configure("default", simulated=[{"name": "a.b/one", "count": 1}])
    instance.configure("other", simulated=[{"name": "a.b/other", "count": 1}])
    instance.start()
    eventually(lambda: "a.b/one" in instance.resources(), "the default is in force")
    eventually(lambda: "cannot be read: there is no API server to talk to" in instance.problems(), "it is said")

    instance.configure("default", simulated=[{"name": "a.b/two", "count": 1}])
    eventually(lambda: "a.b/two" in instance.resources(), "the new content is in force")

    instance.configure("default", simulated="nonsense")
    eventually(lambda: "bad configuration" in (instance.directory / "log").read_text(), "it is refused")
    assert "a.b/two" in instance.resources()
    assert instance.end() == 0


def test_labels_come_into_a_directory_that_appears_and_go_when_they_are_not_wanted(instance):
    """Each time in a sandbox that lets the process write there."""
    instance.configure("default", node_labels={"write": "feature_file"})
    instance.start()
    eventually(lambda: "the directory of Node Feature Discovery's worker" in instance.problems(), "it is said")

    instance.features.mkdir(parents=True)
    file = instance.features / "devherd"
    eventually(file.exists, "the labels are there")
    content = file.read_text()
    assert "nvidia.com/gpu.count=1\n" in content
    assert expiry_in(content) > 0
    eventually(lambda: "Node Feature Discovery" not in instance.problems(), "the problem is over")

    instance.configure("default")
    eventually(lambda: not file.exists(), "the labels are gone")
    assert list(instance.features.iterdir()) == []


def test_configurations_of_nvidias_plugin_become_a_directory_under_the_names_that_labels_have(tmp_path):
    """As its chart's ConfigMap holds them."""
    plain = "version: v1\nflags: {migStrategy: none}"
    mig = "version: v1\nflags: {migStrategy: mixed}"
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c"},
        "data": {"default": plain, "mig": mig},
    }
    outcome = devherd("config", "import", "--directory", tmp_path / "configs", "-", stdin=json.dumps(config_map))
    assert outcome.code == 0, outcome.stderr

    chosen_from = Configurations(tmp_path / "configs")
    found = {value: load({"config": str(chosen_from.file_of(value))}, {}) for value in ("", "mig")}
    assert {value: each.vendors.nvidia.mig_strategy for value, each in found.items()} == {"": "none", "mig": "mixed"}


def test_a_command_line_that_says_two_things_is_refused(tmp_path):
    """And a directory without what is needed."""
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    run_dir = ("--run-dir", tmp_path / "run")

    both = devherd("run", "--config", tmp_path / "a", "--configs", tmp_path, *run_dir)
    assert both.error_line == "devherd: `--configs` is another way than `--config` — both are given — leave one out"
    none = devherd("run", "--configs", tmp_path, *run_dir)
    assert none.error_line == (
        f"devherd: no configuration `default` in {tmp_path} — the node has no label nvidia.com/device-plugin.config,"
        " and no default is named — name an existing one: a, b"
    )
    assert (both.code, none.code) == (2, 2)
