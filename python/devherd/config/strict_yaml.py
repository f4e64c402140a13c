"""The configuration file as plain data: YAML that drops nothing silently, from a file that cannot block the reader.

A key given twice is refused, a number remembers how it was written (`0403` is a USB id, not octal), nesting is bounded.
"""

import os
import stat
from pathlib import Path
from typing import Any

import yaml

from devherd.errors import UsageError

MAX_DEPTH = 50
"""libyaml composes nested nodes recursively and would run out of stack."""
MAX_BYTES = 10_000_000

_MERGE = "tag:yaml.org,2002:merge"


class WrittenInt(int):
    """A number, and the digits it was written with."""

    text: str


class RefusedError(yaml.MarkedYAMLError):
    """What YAML allows, and a configuration does not."""

    def __init__(self, what: str, cure: str, mark: Any) -> None:
        super().__init__(problem=what, problem_mark=mark)
        self.cure = cure


class _Loader(yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader):  # type: ignore[misc]
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise RefusedError(f"the key `{key}` is given twice", "remove one of them", key_node.start_mark)
            seen.add(key if isinstance(key, str) else id(key_node))
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Of a number with thousands of digits, and of `!!int x`, Python says ValueError."""
        try:
            return super().construct_object(node, deep)
        except ValueError as error:
            raise RefusedError(
                "the value is not a number", "correct it, or put it in quotes", node.start_mark
            ) from error

    def construct_written_int(self, node: yaml.ScalarNode) -> WrittenInt:
        number = WrittenInt(self.construct_yaml_int(node))
        number.text = str(node.value)
        return number


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_written_int)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_yaml_str)  # no key has a date


def parse(text: str) -> tuple[Any, yaml.Node | None]:
    """The content of a text of one document, and the nodes that it was made of. Raises YAMLError when it is bad."""
    _check_depth(text)
    loader = _Loader(text)
    try:
        node: yaml.Node | None = loader.get_single_node()
        return (None if node is None else loader.construct_document(node)), node
    finally:
        loader.dispose()


def parse_all(text: str) -> list[Any]:
    """The content of each document of a text. Raises YAMLError when it is bad."""
    _check_depth(text)
    return list(yaml.load_all(text, _Loader))


def _check_depth(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, _Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise RefusedError(f"nested deeper than {MAX_DEPTH} levels", "no key is as deep as that", event.start_mark)


CURE = "name a readable file"
OR_STDIN = f"{CURE}, or `-` for standard input"


def read_text(path: Path, cure: str = f"{CURE} with --config") -> str:
    """The text of a file.

    Raises UsageError with the cure when it cannot be read, UnicodeDecodeError when it is not UTF-8.
    """
    try:
        # A FIFO without a writer must not hang a running instance that reloads.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123 - a descriptor
            kind = os.fstat(file.fileno())
            if not stat.S_ISREG(kind.st_mode):
                raise UsageError(f"cannot read {path}", "it is not a regular file", cure)
            if kind.st_size > MAX_BYTES:
                raise UsageError(f"will not read {path}", f"it has more than {MAX_BYTES} bytes", "name another file")
            return file.read().decode()
    except OSError as error:
        raise UsageError(f"cannot read {path}", error.strerror or str(error), cure) from error
