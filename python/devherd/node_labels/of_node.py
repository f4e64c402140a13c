"""All labels of a node."""

from devherd.node_labels import amd, counts, intel, nvidia
from devherd.node_labels.labels import Labels
from devherd.node_labels.node import Node


def labels_of(node: Node, omit: list[str]) -> Labels:
    """What is to be said of it, without the names that the globs of `omit` match."""
    labels = Labels()
    for of_vendor in (nvidia, amd, intel, counts):
        labels.add(of_vendor.labels_of(node))
    return labels.without(omit)
