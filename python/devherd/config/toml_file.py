"""Reads TOML, with the position of each key: Python's own reader tells none.

The content is tomllib's. Its text, which is valid then, is walked once more for the places of keys and values; they
become nodes as those of YAML, so that errors are told in the same way.
"""

import re
import tomllib
from dataclasses import dataclass
from typing import Any

import yaml

from devherd.config.errors import ConfigError, Positions
from devherd.errors import UsageError

_PLACE = re.compile(r"\(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)")
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*'""")
_LONG = re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}|' + r"'''.*?'{3,5}", re.DOTALL)
_SHORT = re.compile(r"""[^\s,\]}#"']+(?: \d[^\s,\]}#]*)?""")
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")


def parsed(source: str, text: str, *, subject: str) -> tuple[dict[str, Any], Positions]:
    """The content of a text, and the positions of its keys; `subject` is the kind of the file. Raises ConfigError."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _PLACE.search(str(error))
        line, column = (place["line"], place["column"]) if place and place["line"] else (text.count("\n") + 1, 1)
        what = _PLACE.sub("", str(error)).strip()
        raise ConfigError(
            [UsageError(f"bad {subject} in {source}:{line}:{column}", f"not valid TOML: {what}", "correct it there")]
        ) from error
    return content, Positions(_Walk(text).root())


@dataclass(frozen=True, slots=True)
class _Mark:
    line: int
    column: int


class _Walk:
    """The way through a valid text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def root(self) -> yaml.Node:
        """The node of the document."""
        root = table = self._mapping()
        self._skip()
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                is_of_list = self._text.startswith("[[", self._at)
                self._at += 1 + is_of_list
                *above, last = self._keys()
                self._at += 1 + is_of_list
                table = self._inside(root, above)
                table = self._added(table, last) if is_of_list else self._inside(table, [last])
            else:
                self._pair(table)
            self._skip()
        return root

    def _pair(self, table: yaml.MappingNode) -> None:
        *above, last = self._keys()
        self._at += 1  # =
        self._skip()
        self._inside(table, above).value.append((last, self._value()))

    def _keys(self) -> list[yaml.ScalarNode]:
        """The parts of a dotted key, and the blanks behind it."""
        keys = []
        while True:
            self._skip()
            start, raw = self._mark(), self._taken(_KEY)
            name = str(tomllib.loads(f"k = {raw}")["k"]) if raw[0] in "\"'" else raw
            keys.append(yaml.ScalarNode("tag:yaml.org,2002:str", name, start))
            self._skip()
            if self._text[self._at] != ".":
                return keys
            self._at += 1

    def _value(self) -> yaml.Node:
        start, sign = self._mark(), self._text[self._at]
        if sign in "[{":
            self._at += 1
            table, items = self._mapping(), list[yaml.Node]()
            while self._skip() not in {"]", "}"}:
                if sign == "{":
                    self._pair(table)
                else:
                    items.append(self._value())
                self._skip()
                self._at += self._text[self._at] == ","
            self._at += 1
            table.start_mark = start
            return table if sign == "{" else yaml.SequenceNode("tag:yaml.org,2002:seq", items, start)
        is_long = self._text.startswith(('"""', "'''"), self._at)
        raw = self._taken(_LONG if is_long else _KEY if sign in "\"'" else _SHORT)
        return yaml.ScalarNode("tag:yaml.org,2002:str", raw, start)

    def _inside(self, table: yaml.MappingNode, keys: list[yaml.ScalarNode]) -> yaml.MappingNode:
        """The table below these keys: of a list of tables its last one."""
        for key in keys:
            node = next((value for known, value in table.value if known.value == key.value), None)
            if node is None:
                node = self._mapping(key.start_mark)
                table.value.append((key, node))
            table = node.value[-1] if isinstance(node, yaml.SequenceNode) else node
        return table

    def _added(self, table: yaml.MappingNode, key: yaml.ScalarNode) -> yaml.MappingNode:
        """Another table of a list of tables."""
        items = next((value for known, value in table.value if known.value == key.value), None)
        if items is None:
            items = yaml.SequenceNode("tag:yaml.org,2002:seq", [], key.start_mark)
            table.value.append((key, items))
        items.value.append(self._mapping(key.start_mark))
        added: yaml.MappingNode = items.value[-1]
        return added

    def _mapping(self, start: Any = None) -> yaml.MappingNode:
        return yaml.MappingNode("tag:yaml.org,2002:map", [], start or self._mark())

    def _taken(self, pattern: "re.Pattern[str]") -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise AssertionError(f"tomllib reads what is not understood here: {self._text[self._at : self._at + 40]!r}")
        self._at = found.end()
        return found[0]

    def _skip(self) -> str:
        """The next character that is neither blank nor of a comment; empty at the end."""
        self._at = _BLANK.match(self._text, self._at).end()  # type: ignore[union-attr] # it matches nothing as well
        return self._text[self._at : self._at + 1]

    def _mark(self) -> Any:
        before = self._text.rfind("\n", 0, self._at) + 1
        return _Mark(self._text.count("\n", 0, self._at), self._at - before)
