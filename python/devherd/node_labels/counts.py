"""devherd's own labels: for each resource how many devices it has."""

import hashlib

from devherd.node_labels.labels import Labels
from devherd.node_labels.node import Node

PREFIX = "devherd.io"
_SUFFIX = ".count"
_LONGEST_KEY = 63 - len(_SUFFIX)
_HASH_DIGITS = 8


def labels_of(node: Node) -> Labels:
    """A device counts once, however many containers may share it, and whatever its health."""
    labels = Labels()
    for offer in node.offers:
        labels.say(f"{PREFIX}/{key_of(offer.name)}{_SUFFIX}", len(offer.devices))
    return labels


def key_of(resource_name: str) -> str:
    """A resource's name as a part of a label's: `rdma/hca` is `rdma_hca`; one that is too long ends in a hash."""
    key = resource_name.replace("/", "_", 1)
    if len(key) <= _LONGEST_KEY:
        return key
    digits = hashlib.sha256(resource_name.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{key[: _LONGEST_KEY - _HASH_DIGITS - 1]}-{digits}"
