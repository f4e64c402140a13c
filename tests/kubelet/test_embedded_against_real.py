"""The embedded kubelet against the real device manager: the same scenarios, and all that can be seen is the same.

Both sets of rules are compared: those of 1.37 and those up to 1.36, each with a manager that has them.
"""

from pathlib import Path

import pytest
from embedded_node import EmbeddedNode
from harness_program import KUBERNETES, RELEASE
from random_scenario import random_scenario
from real_node import RealNode
from scenario import Player, pod, scenarios
from scenario_plugin import ScenarioPlugin

RESOURCE = "example.com/a"
RULES = ["1.36" if KUBERNETES < (1, 37) else "1.37"] if RELEASE else ["1.36", "1.37"]
"""Both, or those of the one release that the tests run beside."""
SCENARIOS = Path(__file__).parents[1] / "sim" / "scenarios"
ALL = [(release, each) for release in RULES for each in scenarios(SCENARIOS, release)]


@pytest.fixture
def real(directory, harnesses, rules):
    """The real device manager on a directory of its own."""
    node = RealNode(harnesses[rules], directory / "r", directory / "real.log")
    node.kubelet.directory.mkdir()
    yield node
    node.stop()


@pytest.fixture
def embedded(directory, rules):
    """The embedded kubelet on another."""
    node = EmbeddedNode(directory / "e", rules)
    yield node
    node.close()


def compare(real, embedded, scenario):
    """Play a scenario on both; the first step after which they differ fails the test."""
    steps = zip(scenario["steps"], Player(real).play(scenario), Player(embedded).play(scenario), strict=True)
    for number, (step, of_real, of_embedded) in enumerate(steps, 1):
        assert of_embedded == of_real, f"{scenario['name']}, {scenario.get('node')}, step {number}: {step}"


@pytest.mark.parametrize(("rules", "scenario"), ALL, ids=[f"{rules}: {each['name']}" for rules, each in ALL])
def test_both_kubelets_show_the_same(real, embedded, scenario):
    """Responses, texts, capacities, calls to the plugin and checkpoints, after every step."""
    compare(real, embedded, scenario)


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("seed", range(24))
def test_both_kubelets_show_the_same_by_chance(real, embedded, seed):
    """Any devices on any nodes, any pods, any policy."""
    compare(real, embedded, random_scenario(seed))


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("writer", ["real", "embedded"])
def test_each_kubelet_goes_on_from_the_others_checkpoint(real, embedded, writer):
    """A pod keeps its devices, with their nodes, when the other kubelet takes over the directory."""
    first, second = (real, embedded) if writer == "real" else (embedded, real)
    second.registry.parent.mkdir(exist_ok=True)
    spec = pod({"uid": "one", "limits": {RESOURCE: 2}})
    devices = {"x": {"numa": [0, 1]}, "y": {}, "z": {"numa": [1]}}

    given = _admitted(first, spec, devices)
    before = first.checkpoint()
    first.stop()
    second.plugins.mkdir()
    (first.plugins / "kubelet_internal_checkpoint").rename(second.plugins / "kubelet_internal_checkpoint")

    assert _admitted(second, spec, devices) == given
    assert second.checkpoint() == before
    second.stop()


def _admitted(node, spec, devices):
    """What a pod gets from a kubelet that starts on its directory as it is."""
    plugin = ScenarioPlugin(RESOURCE, devices, prefer="first")
    node.start("none", 2)
    if isinstance(node, RealNode):
        node.kubelet.ask("activate", pod=spec)
    plugin.serve(node.plugins)
    assert plugin.register(node.plugins) == ""
    Player(node).settle(plugin)
    seen = node.admit(spec)["containers"]["main"]
    plugin.stop()
    return seen["device_ids"], seen["envs"], seen["devices"]
