"""A node with a name."""

from dataclasses import dataclass

from devherd_sim.node.spec import NodeSpec


@dataclass(frozen=True, slots=True)
class Preset:
    """A node and one line about it."""

    summary: str
    spec: NodeSpec
