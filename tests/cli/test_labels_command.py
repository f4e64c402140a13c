"""`devherd labels`: what would be written, and what is left out and why."""

import json

import pytest
from command_line import devherd

from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode


@pytest.fixture
def host(tmp_path):
    SimulatedNode.create(tmp_path / "host", preset("nvidia-8-nvswitch"))
    return tmp_path / "host"


def test_labels_are_lines_and_what_is_missing_are_comments(host):
    """As a feature file has them."""
    outcome = devherd("labels", "--host-root", host)

    assert (outcome.code, outcome.stderr) == (0, "")
    lines = outcome.stdout.splitlines()
    assert "nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3" in lines
    assert "# nvidia.com/gpu.clique: no GPU has joined an NVLink fabric" in lines
    assert lines[-1] == "# not written: node_labels.write is none"


def test_json_has_the_same(host, tmp_path):
    """With the way in which they are written."""
    (tmp_path / "c.yaml").write_text("node_labels: {write: node, omit: [nvidia.com/*]}")
    outcome = devherd("labels", "--host-root", host, "--config", tmp_path / "c.yaml", "--output", "json")

    assert json.loads(outcome.stdout) == {
        "labels": {"devherd.io/nvidia.com_gpu.count": "8"},
        "missing": {},
        "write": "node",
    }


def test_a_host_that_is_none_is_an_error(tmp_path):
    """As of a scan."""
    outcome = devherd("labels", "--host-root", tmp_path / "absent")

    assert outcome.code == 2
    assert outcome.error_line.startswith(f"devherd: cannot scan {tmp_path / 'absent'} — it is not a directory")
