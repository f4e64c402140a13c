"""The scenarios on the embedded kubelet. tests/kubelet plays the same ones on the real device manager and compares."""

from pathlib import Path

import pytest
from embedded_node import EmbeddedNode
from scenario import Player, scenarios

ALL = scenarios(Path(__file__).with_name("scenarios"))


@pytest.fixture
def embedded(kubelet_dir):
    """The embedded kubelet on a directory of its own."""
    node = EmbeddedNode(kubelet_dir)
    yield node
    node.close()


@pytest.mark.parametrize("scenario", ALL, ids=[each["name"] for each in ALL])
def test_the_embedded_kubelet_gives_what_the_scenario_says(embedded, scenario):
    """Every `gives` of every step."""
    Player(embedded).play(scenario)
