"""Reads YAML: drops no key silently, does not block on a file, and reports errors in plain words."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from devherd.config.errors import ConfigError, Positions, Problem, config_error
from devherd.errors import UsageError

MAX_DEPTH = 50
"""libyaml composes nested nodes recursively and would run out of stack."""
MAX_BYTES = 10_000_000
MAX_REPEATED = 100_000
"""Limit on the values that aliases add to the written ones: a few lines of aliases can mean millions of values."""

_MERGE = "tag:yaml.org,2002:merge"


class WrittenInt(int):
    """A number, and the digits it was written with."""

    text: str


class RefusedYamlError(yaml.MarkedYAMLError):
    """A text has something that is valid YAML but not allowed in a configuration."""

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
                raise RefusedYamlError(f"the key `{key}` is given twice", "remove one of them", key_node.start_mark)
            seen.add(key if isinstance(key, str) else id(key_node))
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Turn ValueError, as for `!!int x` or a number with thousands of digits, into RefusedError."""
        try:
            return super().construct_object(node, deep)
        except ValueError as error:
            raise RefusedYamlError(
                "the value is not a number", "correct it, or put it in quotes", node.start_mark
            ) from error

    def construct_written_int(self, node: yaml.ScalarNode) -> WrittenInt:
        number = WrittenInt(self.construct_yaml_int(node))
        number.text = str(node.value)
        return number


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_written_int)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_yaml_str)  # no key has a date


def parse(text: str) -> tuple[Any, yaml.Node | None]:
    """The content of a text with one document, and its root node. Raises YAMLError if the text is invalid."""
    _check_depth(text)
    loader = _Loader(text)
    try:
        node: yaml.Node | None = loader.get_single_node()
        if node is not None:
            _check_aliases(node)
        return (None if node is None else loader.construct_document(node)), node
    finally:
        loader.dispose()


def parse_all(text: str) -> list[Any]:
    """The content of each document of a text. Raises YAMLError if the text is invalid."""
    _check_depth(text)
    return list(yaml.load_all(text, _Loader))


def _check_depth(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, _Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise RefusedYamlError(
                f"nested deeper than {MAX_DEPTH} levels", "no key is as deep as that", event.start_mark
            )


def _check_aliases(root: yaml.Node) -> None:
    sizes: dict[int, int] = {}

    def size(node: yaml.Node) -> int:
        """The number of values in a node, counting each use of an alias; an alias inside its own anchor counts as 0."""
        if id(node) not in sizes:
            sizes[id(node)] = 0
            parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
            sizes[id(node)] = 1 + (sum(map(size, parts)) if isinstance(node, yaml.CollectionNode) else 0)
        return sizes[id(node)]

    if size(root) > len(sizes) + MAX_REPEATED:
        raise RefusedYamlError(
            "aliases (`*name`) repeat too much", f"write at most {MAX_REPEATED} values by them", root.start_mark
        )


CURE = "name a readable file"
OR_STDIN = f"{CURE}, or `-` for standard input"


def read_text(path: Path, cure: str = f"{CURE} with --config") -> str:
    """The text of a file.

    Raises UsageError with the cure when it cannot be read, UnicodeDecodeError when it is not UTF-8.
    """
    try:
        # A FIFO without a writer must not hang a running instance that reloads.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123 - descriptor
            kind = os.fstat(file.fileno())
            if not stat.S_ISREG(kind.st_mode):
                raise UsageError(f"cannot read {path}", "it is not a regular file", cure)
            if kind.st_size > MAX_BYTES:
                raise UsageError(f"will not read {path}", f"it has more than {MAX_BYTES} bytes", "name another file")
            return file.read().decode()
    except OSError as error:
        raise UsageError(f"cannot read {path}", error.strerror or str(error), cure) from error


_TEMPLATES = ("{{", "{%")
_NEIGHBOURS = ("the line is not indented like its neighbours", "indent it as they are")
_NOT_TEXT = ("a key is not a text", "put it in quotes")
_WORDS = {
    "but found another document": ("a second document begins here", "keep one of them, without `---`"),
    "mapping values are not allowed in this context": (
        "a `:` is where no key can be",
        "indent the line like its neighbours, or put a value that contains `: ` in quotes",
    ),
    "did not find expected key": _NEIGHBOURS,
    "did not find expected '-' indicator": _NEIGHBOURS,
    "could not find expected ':'": ("a key has no `:`", "write it like `period: 5s`"),
    "did not find expected node content": (
        "a value is missing here, or a `[` or `{` above is not closed",
        "give the value, or add the `]` or `}`",
    ),
    "found unhashable key": _NOT_TEXT,
}
"""Problem and cure by libyaml's message."""
_NOT_CLOSED = {
    "did not find expected ',' or '}'": ("a `{` is not closed", "add the `}`, or the `,` between two keys"),
    "did not find expected ',' or ']'": ("a `[` is not closed", "add the `]`, or the `,` between two items"),
    "found unexpected end of stream": ("a quote is not closed", "close it"),
}
"""Problem and cure for errors noticed at the end of the file; libyaml's context mark is where they begin."""


@dataclass(frozen=True, slots=True)
class YamlFault:
    """Position, problem and cure of an error."""

    position: str
    what: str
    cure: str


def fault_of(error: yaml.YAMLError, text: str) -> YamlFault:
    """The fault that made a text fail as YAML."""
    if isinstance(error, yaml.reader.ReaderError):
        return _of_character(error, text)
    problem = getattr(error, "problem", None) or "not valid YAML"
    mark = getattr(error, "context_mark" if problem in _NOT_CLOSED else "problem_mark", None)
    line, column = (mark.line, mark.column) if mark else (0, 0)
    position = f"{line + 1}:{column + 1}"
    written = "".join(text.splitlines()[line : line + 1])
    if any(sign in written for sign in _TEMPLATES):
        return YamlFault(
            position, "the line is of a template that was not rendered", "render it first: `helm template`"
        )
    if "\t" in (written[: column + 1] if "\t" in written[column : column + 1] else _indentation(written)):
        return YamlFault(position, "the line is indented with a tab", "indent with spaces")
    return YamlFault(position, *_words(error, problem, written, column))


def _words(error: yaml.YAMLError, problem: str, line: str, column: int) -> tuple[str, str]:
    """The problem and the cure."""
    if isinstance(error, RefusedYamlError):
        return problem, error.cure
    if problem == "found character that cannot start any token":
        return f"a value cannot begin with `{line[column]}`", "put it in quotes"
    if problem.startswith("could not determine a constructor for the tag"):
        return "a value cannot have a tag", "remove what begins with `!`, or put the value in quotes"
    if problem == "did not find expected key" and line[:column].strip():
        return "the value has ended before this", "put the whole value in quotes, and double each quote in it"
    return (_WORDS | _NOT_CLOSED).get(problem, (problem, "correct it there, or put the value in quotes"))


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _of_character(error: yaml.reader.ReaderError, text: str) -> YamlFault:
    """The fault of a character that YAML does not allow; the reader's error has an offset instead of a line."""
    before = text[: error.position] if isinstance(error.position, int) else ""
    position = f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"
    return YamlFault(position, f"{error.reason} here", "remove it")


CONFIGURATION = "configuration"


def decoded(source: str, read: Callable[[], str], subject: str = CONFIGURATION) -> str:
    """The text that `read` returns. Raises ConfigError if it is not UTF-8."""
    try:
        return read()
    except UnicodeDecodeError as error:
        problem = Problem((), f"byte {error.start} is not UTF-8 text", "save the file as UTF-8")
        raise config_error(source, [problem], subject=subject) from error


def parsed(
    source: str,
    text: str,
    foreign_of: Callable[[Any, str], Problem | None] = lambda _content, _text: None,
    *,
    subject: str = CONFIGURATION,
    example: str = "scan: {period: 5s}",
) -> tuple[dict[str, Any], Positions]:
    """The mapping in a YAML text, empty for an empty text, and the positions of its keys.

    `subject` is the kind of the file, `example` a line of one; `foreign_of` returns the problem of a file of another
    kind. Raises ConfigError.
    """
    try:
        content, root = parse(text)
    except yaml.YAMLError as error:
        fault = fault_of(error, text)
        raise ConfigError(
            [UsageError(f"bad {subject} in {source}:{fault.position}", fault.what, fault.cure)]
        ) from error
    if foreign := foreign_of(content, text):
        raise config_error(source, [foreign], subject=subject)
    if content is None:
        content = {}
    if not isinstance(content, dict):
        problem = Problem((), "the file is not a mapping of keys", f"write it like `{example}`")
        raise config_error(source, [problem], subject=subject)
    return {str(key): value for key, value in content.items()}, Positions(root)
