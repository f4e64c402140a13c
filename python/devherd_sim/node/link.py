"""Links of a host tree, relative as the kernel makes them."""

import os

from devherd_sim.node.entry import Symlink


def link(path: str, target: str) -> Symlink:
    """A link at `path` that leads to `target`, both relative to the host root."""
    return Symlink(path, os.path.relpath(target, os.path.dirname(path)))  # noqa: PTH120 - paths of a tree, not of a disk


def named_link(directory: str, target: str) -> Symlink:
    """A link in a directory, called like what it leads to: the way of /sys/class and /sys/bus."""
    return link(f"{directory}/{target.rpartition('/')[2]}", target)
