"""Faults that can be injected into a simulated node and cleared.

A fault's changes of the tree are saved in the tree, so that another process can undo them, with the uevents that the
kernel would send. A fault that an event or log record reports is cleared by the event or record that reports its end.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from devherd.errors import UsageError
from devherd_sim.node.entry import Directory, Entry
from devherd_sim.node.faults import cards, names, services, spoken
from devherd_sim.node.faults.fault import Fault, tree_of, whole_node
from devherd_sim.node.simulated_node import FAULTS_DIRECTORY, SimulatedNode
from devherd_sim.node.tree import parse, remove, render

FAULTS: Mapping[str, Fault] = MappingProxyType(spoken.FAULTS | cards.FAULTS | names.FAULTS | services.FAULTS)


def inject(node: SimulatedNode, name: str, at: str, value: str = "") -> None:
    """Inject a fault. Raises UsageError when the fault or the place does not exist."""
    fault = _named(name)
    kept = _Kept(node, name, at)
    scope = fault.scope(node, at)
    before = tree_of(node, scope)
    fault.inject(node, at, value or fault.value)
    if not kept.exists():
        kept.write(before, tree_of(node, scope))


def clear(node: SimulatedNode, name: str, at: str, value: str = "") -> None:
    """Clear a fault. Raises UsageError when it cannot be cleared or has not been injected."""
    fault = _named(name)
    if fault.undone_by:
        raise UsageError(f"cannot take {name} back", "what is said is said", fault.undone_by)
    kept = _Kept(node, name, at)
    if not kept.exists():
        raise UsageError(f"cannot take {name} at {at} back", "it was not injected", "inject it first")
    kept.put_back(with_devices=fault.scope is whole_node)
    if fault.undo is not None:
        fault.undo(node, at, value or fault.value)


def _named(name: str) -> Fault:
    if name not in FAULTS:
        raise UsageError(f"no fault {name}", f"choose from {', '.join(FAULTS)}", "name one of them")
    return FAULTS[name]


class _Kept:
    """A fault's changes of the tree, saved in two files: entries removed or changed, and paths created."""

    def __init__(self, node: SimulatedNode, name: str, at: str) -> None:
        self._node = node
        place = node.root / FAULTS_DIRECTORY / f"{name}@{at.replace('/', '_')}"
        self._lost, self._made = (Path(f"{place}.{kind}") for kind in ("tree", "made"))

    def exists(self) -> bool:
        """True if the fault is injected and not cleared."""
        return self._lost.exists()

    def write(self, before: Mapping[str, Entry], after: Mapping[str, Entry]) -> None:
        """Save the differences."""
        self._lost.parent.mkdir(exist_ok=True)
        made = (path for path in after.keys() - before.keys() if not isinstance(after[path], Directory))
        self._made.write_text("".join(f"{path}\n" for path in sorted(made)))
        self._lost.write_text(render([entry for path, entry in before.items() if after.get(path) != entry]))

    def put_back(self, *, with_devices: bool) -> None:
        """Restore the tree; `with_devices`: send uevents for devices that are added or removed."""
        for path in self._made.read_text().splitlines():
            remove(self._node.root / path, self._node.root)
        put_back = self._node.put_back if with_devices else self._node.put_attributes_back
        put_back(parse(self._lost.read_text()))
        self._made.unlink()
        self._lost.unlink()
