"""The labels of a simulated node under a configuration."""

from pathlib import Path
from typing import Any

from devherd.config import Config, resolve
from devherd.kubernetes.request import machine_of
from devherd.node_labels.labels import Labels
from devherd.node_labels.node import node_of
from devherd.node_labels.of_node import labels_of
from devherd.scanner.scan_once import scan_once
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode


def labelled(root: Path, name: str, machine: str = "", **config: Any) -> Labels:
    """What a node of a preset gets; `machine` is what its firmware calls it."""
    SimulatedNode.create(root, preset(name))
    if machine:
        (root / "sys/class/dmi/id").mkdir(parents=True)
        (root / "sys/class/dmi/id/product_name").write_text(f"{machine}\n")
    resolved = resolve(Config.model_validate({"host_root": root, "node_labels": {"write": "node"}} | config))
    report = scan_once(resolved)
    node = node_of(resolved, report.inventory.entries.values(), report.nvml_answer, machine_of(root))
    return labels_of(node, resolved.node_labels.omit)


def below(labels: Labels, *prefixes: str) -> dict[str, str]:
    """Those whose names begin so."""
    return {name: value for name, value in labels.values.items() if name.startswith(prefixes)}
