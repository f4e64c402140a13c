"""Scenarios of chance: devices on any nodes, pods of any shape, under any policy."""

import random
from collections.abc import Sequence
from typing import Any

RESOURCES = ("example.com/a", "example.com/b")
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")


def random_scenario(seed: int, steps: int = 14) -> dict[str, Any]:
    """The same for the same seed. Plugins prefer the first ids, so that nothing is left to the kubelet's own dice."""
    dice = random.Random(seed)
    node = {"policy": dice.choice(POLICIES), "numa_nodes": dice.choice((1, 2, 2, 3, 4))}
    # Kubernetes 1.36.3 panics over the hints for a device that a pod holds and that is no longer in the list.
    counts = range(1, 9) if node["policy"] == "none" else (6,)
    plugins = [
        {"plugin": {"resource": resource, "devices": _devices(dice, node["numa_nodes"], counts), "prefer": "first"}}
        for resource in RESOURCES
    ]
    pods: list[str] = []
    walk = [_step(dice, node["numa_nodes"], counts, pods) for _ in range(steps)]
    return {"name": f"seed {seed}", "node": node, "steps": [*plugins, *walk]}


def _step(dice: random.Random, nodes: int, counts: Sequence[int], pods: list[str]) -> dict[str, Any]:
    verb = dice.choices(("admit", "list", "again"), (7, 2, 1))[0]
    if verb == "list":
        return {"list": {"resource": dice.choice(RESOURCES), "devices": _devices(dice, nodes, counts)}}
    if verb == "again" and pods:
        return {"admit": {"uid": dice.choice(pods), "limits": _limits(dice)}}
    pods.append(f"pod{len(pods)}")
    return {"admit": _pod(dice, pods[-1])}


def _pod(dice: random.Random, uid: str) -> dict[str, Any]:
    """Each container wants as many as the one before or more: the kubelet would throw dice for what is used again."""
    resource = dice.choice(RESOURCES)
    *counts, last = sorted(dice.randint(1, 3) for _ in range(dice.choice((1, 1, 2, 3))))
    init = {f"init{number}": {resource: count, "sidecar": dice.random() < 0.3} for number, count in enumerate(counts)}
    return {"uid": uid, "init": init, "limits": {resource: last}}


def _limits(dice: random.Random) -> dict[str, int]:
    """Of one resource: the kubelet serves two in any order, and reports the first to fail."""
    return {dice.choice(RESOURCES): dice.randint(0, 3)}


def _devices(dice: random.Random, nodes: int, counts: Sequence[int]) -> dict[str, Any]:
    style = dice.choice(("none", "one", "one", "mixed"))
    return {f"d{number}": _device(dice, nodes, style) for number in range(dice.choice(counts))}


def _device(dice: random.Random, nodes: int, style: str) -> dict[str, Any]:
    told: dict[str, Any] = {"health": "Unhealthy"} if dice.random() < 0.15 else {}
    if style == "one" or (style == "mixed" and dice.random() < 0.7):
        wide = style == "mixed" and dice.random() < 0.4
        # A node that is not there, and -1, alone: beside another one the kubelet would throw dice for PodResources.
        there = range(-(style == "mixed" and not wide), nodes + (style == "mixed"))
        told["numa"] = sorted(dice.sample(there, min(nodes, 2 if wide else 1)))
    return told
