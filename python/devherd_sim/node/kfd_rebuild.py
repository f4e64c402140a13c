"""KFD's topology while it changes: `kfd_topology_add_device` and `kfd_topology_remove_device` of kfd_topology.c.

For each GPU or partition that comes or goes the kernel removes the nodes of all and builds them anew. The generation
rises before a node goes, and after one came; a node that came is filled in last. No uevent tells of any of it.
"""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from devherd_sim.node import kfd
from devherd_sim.node.amd import Gpu
from devherd_sim.node.entry import Entry
from devherd_sim.node.tree import put, rewrite


class KfdRebuild:
    """The way of a node's topology from one set of GPUs to another; each step is what one look could see."""

    def __init__(self, root: Path, before: Sequence[Gpu], after: Sequence[Gpu], sockets: int) -> None:
        self._root = root
        self._generation = root / kfd.TOPOLOGY / "generation_id"
        self._sockets = sockets
        self._gpus = before
        self._after = after
        self._computing = list(kfd.computing(before))

    def leave(self) -> Iterator[None]:
        """Every partition of a GPU that is not as it was goes, one after another."""
        for gpu, partition in list(self._computing):
            if gpu not in self._after:
                self._computing.remove((gpu, partition))
                self._raise_generation()
                yield from self._rebuild(len(self._computing))

    def come(self) -> Iterator[None]:
        """Every partition of a new GPU comes, one after another, each behind all that are there."""
        for gpu, partition in kfd.computing(self._after):
            if gpu not in self._gpus:
                self._computing.append((gpu, partition))
                yield from self._rebuild(len(self._computing) - 1)
                self._raise_generation()
                yield
                self._write(kfd.node_entries(self._nodes()[-1], self._nodes(), self._sockets))
                yield

    def _rebuild(self, filled_in: int) -> Iterator[None]:
        for directory in (self._root / kfd.NODES).iterdir():
            shutil.rmtree(directory)
        yield
        nodes = self._nodes()
        for socket in range(self._sockets):
            self._write(kfd.processor_entries(socket, self._sockets, nodes))
            yield
        for index, node in enumerate(nodes):
            self._write(kfd.node_entries(node, nodes, self._sockets, is_filled_in=index < filled_in))
            yield

    def _nodes(self) -> list[kfd.Node]:
        return kfd.numbered(self._computing, self._sockets)

    def _raise_generation(self) -> None:
        rewrite(self._generation, f"{int(self._generation.read_text()) + 1}\n".encode())

    def _write(self, entries: list[Entry]) -> None:
        for entry in entries:
            put(entry, self._root)
