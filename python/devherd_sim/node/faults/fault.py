"""What a fault of a simulated node is."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from devherd_sim.node.simulated_node import SimulatedNode

Act = Callable[[SimulatedNode, str, str], None]
"""With the place and the value."""
Scope = Callable[[SimulatedNode, str], Path | None]

FUNCTION = "PCI address"


def nothing(_node: SimulatedNode, _at: str) -> None:
    """It changes nothing of the tree."""


def whole_node(node: SimulatedNode, _at: str) -> Path:
    """All of the tree."""
    return node.root


def function(node: SimulatedNode, at: str) -> Path:
    """What is below a PCI function in sysfs."""
    return node.functions.path_of(at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One row."""

    summary: str
    at: str
    """What its place is."""
    inject: Act
    value: str = ""
    """What is used where none is given."""
    value_help: str = ""
    undo: Act | None = None
    """What is said when it is over; what the fault changed of the tree is put back in any case."""
    undone_by: str = ""
    """Where it cannot be taken back: what does that."""
    scope: Scope = whole_node
    """Where in the tree it changes anything: as little as possible, for all of it is read before and after."""


attribute_fault = partial(Fault, at=FUNCTION, scope=function)
"""One that is seen below a PCI function in sysfs."""
spoken_fault = partial(Fault, at=FUNCTION, scope=nothing)
"""One that the kernel or a driver tells of, about a PCI function; the tree stays as it is."""
