"""Where in the file a key stands: `LINE:COLUMN`, both from 1."""

import yaml

from devherd.config.problem import Location


class Positions:
    """Of the keys below the root of a document; what `<<` merges into a mapping is among its keys."""

    def __init__(self, root: yaml.Node | None) -> None:
        self._root = root

    def of(self, location: Location, *, at_key: bool = False) -> str:
        """Of a value, or with `at_key` of its key; of the nearest key above where the file has none such."""
        node, mark = self._root, None
        for part in location:
            found = _child(node, part)
            if found is None:
                break
            key, node = found
            mark = (key if at_key else node).start_mark
        return f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"

    def has(self, location: Location) -> bool:
        """Whether the file gives this key a value itself."""
        node = self._root
        for part in location:
            found = _child(node, part)
            if found is None:
                return False
            node = found[1]
        return node is not None


def _child(node: yaml.Node | None, part: int | str) -> tuple[yaml.Node, yaml.Node] | None:
    """The key and the value below a node; an item of a list is its own key."""
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    if not isinstance(node, yaml.MappingNode):
        return None
    named = (
        (key, value)
        for key, value in reversed(node.value)
        if isinstance(key, yaml.ScalarNode) and key.value == str(part)
    )  # of a key that is merged as well, the last one counts
    return next(named, None)
