"""The definition of a fault of a simulated node."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from devherd_sim.node.entry import Entry
from devherd_sim.node.simulated_node import FAULTS_DIRECTORY, SimulatedNode
from devherd_sim.node.tree import read_tree

Act = Callable[[SimulatedNode, str, str], None]
"""Takes the node, the place and the value."""
Scope = Callable[[SimulatedNode, str], Path | None]

FUNCTION = "PCI address"


def nothing(_node: SimulatedNode, _at: str) -> None:
    """The scope of a fault that does not change the tree."""


def whole_node(node: SimulatedNode, _at: str) -> Path:
    """The whole tree."""
    return node.root


def function(node: SimulatedNode, at: str) -> Path:
    """The sysfs directory of a PCI function."""
    return node.functions.path_of(at)


NOT_OF_FAULTS = ("dev/kmsg", FAULTS_DIRECTORY, "var")
"""What changes beside faults: the kernel log, what is kept of faults, and what devherd writes at any moment, as its CDI
specs in /var/run/cdi."""


def tree_of(node: SimulatedNode, scope: Path | None) -> dict[str, Entry]:
    """The entries of a part of the node that faults may change, by path; none where that part does not exist."""
    if scope is None or not scope.exists():
        return {}
    return {entry.path: entry for entry in read_tree(node.root.resolve(), scope.resolve(), NOT_OF_FAULTS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault: its help and its actions."""

    summary: str
    at: str
    """Kind of place at which it can be injected."""
    inject: Act
    value: str = ""
    """The default value."""
    value_help: str = ""
    undo: Act | None = None
    """Sends the message that ends the fault; changes of the tree are always undone."""
    undone_by: str = ""
    """The remedy for a fault that cannot be cleared; empty otherwise."""
    scope: Scope = whole_node
    """The part of the tree that it changes; it should be small, since all of it is read before and after."""


attribute_fault = partial(Fault, at=FUNCTION, scope=function)
"""A fault that changes the sysfs directory of a PCI function."""
spoken_fault = partial(Fault, at=FUNCTION, scope=nothing)
"""A fault that the kernel or a driver reports about a PCI function, without a change of the tree."""
