"""The labels of a simulated node under a configuration."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.inventory import Entry
from devherd.node_labels.node import Labels, node_of
from devherd.node_labels.others import labels_of_node
from devherd.scanner.once import scan_once
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode


def labelled(root: Path, name: str, machine: str = "", **config: Any) -> Labels:
    """What a node of a preset gets; `machine` is what its firmware calls it."""
    SimulatedNode.create(root, preset(name))
    if machine:
        (root / "sys/class/dmi/id").mkdir(parents=True)
        (root / "sys/class/dmi/id/product_name").write_text(f"{machine}\n")
    return labels_of(root, **config)


def labels_of(root: Path, **config: Any) -> Labels:
    """What the node below a root gets."""
    resolved = resolve(Config.model_validate({"host_root": root, "node_labels": {"write": "node"}} | config))
    report = scan_once(resolved)
    return labels_of_node(node_of(resolved, report.inventory, report.offers), resolved.node_labels.omit)


def below(labels: Labels, *prefixes: str) -> dict[str, str]:
    """Those whose names begin so."""
    return {name: value for name, value in labels.values.items() if name.startswith(prefixes)}


def entry_of(resource_name: str, vendor: str, facts: Mapping[str, Any], number: int = 0, **known: Any) -> Entry:
    """An entry of the inventory whose device is known by nothing but facts."""
    card, device_id = f"c{number}", f"d{number}"
    known_as = {"vendor": vendor, "card": card, "id": device_id, "key": (vendor, card, device_id)}
    device = SimpleNamespace(**known_as, facts=facts, attribute=lambda name: getattr(facts.get(name), "text", None))
    return Entry(device, resource_name, **known)
