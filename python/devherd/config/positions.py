"""Where in the file a key stands: `LINE:COLUMN`, both from 1."""

from functools import cached_property

import yaml

from devherd.config import strict_yaml
from devherd.config.problem import Location

_MERGE = "tag:yaml.org,2002:merge"


class Positions:
    """Of the keys of one text, which is looked through when the first position is asked for."""

    def __init__(self, text: str) -> None:
        self._text = text

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

    @cached_property
    def _root(self) -> yaml.Node | None:
        return strict_yaml.compose(self._text)


def _child(node: yaml.Node | None, part: int | str) -> tuple[yaml.Node, yaml.Node] | None:
    """The key and the value below a node; an item of a list is its own key."""
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    if not isinstance(node, yaml.MappingNode):
        return None
    own = ((key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE)
    named = next(((key, value) for key, value in own if key.value == str(part)), None)
    return named or next((found for merged in _merged(node) if (found := _child(merged, part))), None)


def _merged(node: yaml.MappingNode) -> list[yaml.Node]:
    """What `<<` brings."""
    values = [value for key, value in node.value if key.tag == _MERGE]
    return [each for value in values for each in (value.value if isinstance(value, yaml.SequenceNode) else [value])]
