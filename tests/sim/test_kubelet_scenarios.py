"""The scenarios on the embedded kubelet. tests/kubelet plays the same ones on the real device manager and compares."""

from pathlib import Path

import pytest
from embedded_node import EmbeddedNode
from scenario import Player, scenarios

from devherd_sim.kubelet.clients import RELEASES

ALL = [(release, each) for release in RELEASES for each in scenarios(Path(__file__).with_name("scenarios"), release)]


@pytest.mark.parametrize(("release", "scenario"), ALL, ids=[f"{release}: {each['name']}" for release, each in ALL])
def test_the_embedded_kubelet_gives_what_the_scenario_says(kubelet_dir, release, scenario):
    """Every `gives` of every step, by the rules of each release."""
    node = EmbeddedNode(kubelet_dir, release)
    try:
        Player(node).play(scenario)
    finally:
        node.close()
