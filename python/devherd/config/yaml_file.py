"""Reads YAML: drops no key silently, does not block on a file, and reports errors in plain words."""

import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterator
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


class WrittenFloat(float):
    """A number with a point, and the digits it was written with."""

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

    def construct_written_int(self, node: yaml.ScalarNode) -> WrittenInt | str:
        if _is_of_base_60(node):
            return str(node.value)
        number = WrittenInt(self.construct_yaml_int(node))
        number.text = str(node.value)
        return number

    def construct_written_float(self, node: yaml.ScalarNode) -> WrittenFloat | str:
        if _is_of_base_60(node):
            return str(node.value)
        number = WrittenFloat(self.construct_yaml_float(node))
        number.text = str(node.value)
        return number


INT, FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"


def _is_of_base_60(node: yaml.ScalarNode) -> bool:
    """Whether it is a number in base 60 to YAML 1.1, and a text to YAML 1.2: 05:00.0 was meant as it is written."""
    return node.tag in (INT, FLOAT) and ":" in node.value


_Loader.add_constructor(INT, _Loader.construct_written_int)
_Loader.add_constructor(FLOAT, _Loader.construct_written_float)
yaml.SafeDumper.add_representer(WrittenFloat, lambda dumper, number: dumper.represent_scalar(FLOAT, number.text))
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
    loader, contents = _Loader(text), []
    try:
        while loader.check_node():
            node = loader.get_node()
            _check_aliases(node)
            contents.append(loader.construct_document(node))
    finally:
        loader.dispose()
    return contents


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
        """The number of values in a node, counting each use of an alias."""
        if id(node) not in sizes:
            sizes[id(node)] = 0
            parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
            sizes[id(node)] = 1 + (sum(map(size, parts)) if isinstance(node, yaml.CollectionNode) else 0)
        if not sizes[id(node)]:
            raise RefusedYamlError("an alias stands within its own anchor", "write the value out", node.start_mark)
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
_DIRECTIVE = ("a line that begins with `%` is an instruction to YAML", "remove it: devherd reads YAML 1.1")
_ESCAPE = ("in double quotes `\\` begins an escape, and this is none", "write `\\\\`, or use single quotes")
_BLOCK = ("after `|` or `>` the text begins on the next line", "move it there, or put the value in quotes")
_TAG = ("a value cannot have a tag", "remove what begins with `!`, or put the value in quotes")
_WORDS = {
    "but found another document": ("a second document begins here", "keep one of them, without `---`"),
    "did not find expected <document start>": (
        "something stands after the end of the value above",
        "indent it, or remove the brackets or `...` before it",
    ),
    "found unexpected document indicator": ("`---` or `...` stands within quotes", "close the quotes before it"),
    "mapping values are not allowed in this context": (
        "a `:` is where no key can be",
        "indent the line like its neighbours, or put a value that contains `: ` in quotes",
    ),
    "mapping keys are not allowed in this context": ("a `?` is where no key can be", "put the value in quotes"),
    "block sequence entries are not allowed in this context": (
        "a list begins behind a key",
        "begin each item with `- ` on a line of its own, or put a value that begins with `- ` in quotes",
    ),
    "did not find expected key": _NEIGHBOURS,
    "did not find expected '-' indicator": _NEIGHBOURS,
    "could not find expected ':'": ("a key has no `:`", "write it like `period: 5s`"),
    "did not find expected node content": (
        "a value is missing here, or a `[` or `{` above is not closed",
        "give the value, or add the `]` or `}`",
    ),
    "found unhashable key": _NOT_TEXT,
    "found undefined alias": (
        "`*` begins the name of an anchor, and no anchor has this name",
        "put the value in quotes",
    ),
    "found unconstructable recursive node": ("an alias is part of its own anchor", "write the value out"),
    "did not find expected alphabetic or numeric character": (
        "`*` and `&` at the beginning of a value have a meaning in YAML",
        "put the value in quotes, like `'*H100*'`",
    ),
    "found incompatible YAML document": _DIRECTIVE,
    "found unknown directive name": _DIRECTIVE,
    "could not find expected directive name": _DIRECTIVE,
    "found duplicate %YAML directive": _DIRECTIVE,
    "did not find expected digit or '.' character": _DIRECTIVE,
    "found unknown escape character": _ESCAPE,
    "did not find expected hexdecimal number": _ESCAPE,
    "found invalid Unicode character escape code": _ESCAPE,
    "did not find expected comment or line break": _BLOCK,
    "found an indentation indicator equal to 0": _BLOCK,
    "found a tab character where an indentation space is expected": (
        "the line is indented with a tab",
        "indent with spaces",
    ),
    "found a tab character that violates indentation": ("the line is indented with a tab", "indent with spaces"),
    "found unexpected ':'": ("a `:` stands within brackets", "put the value in quotes"),
    "found undefined tag handle": _TAG,
    "did not find expected tag URI": _TAG,
    "did not find the expected '>'": _TAG,
    "did not find expected whitespace or line break": _TAG,
}
"""Problem and cure by libyaml's message."""
_NOT_CLOSED = {
    "did not find expected ',' or '}'": ("a `{` is not closed", "add the `}`, or the `,` between two keys"),
    "did not find expected ',' or ']'": ("a `[` is not closed", "add the `]`, or the `,` between two items"),
    "found unexpected end of stream": ("a quote is not closed", "close it"),
}
"""Problem and cure for errors noticed at the end of the file; libyaml's context mark is where they begin."""
_ASSIGNMENT = re.compile(r"\s*(\[{1,2}[^\[\]]+\]{1,2}|[\w.\"'-]+\s*=(?!=).*)\s*")
"""A line of TOML, or of an INI file."""


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
    lines = text.split("\n")
    written = "".join(lines[line : line + 1])
    if any(sign in written for sign in _TEMPLATES):
        return YamlFault(
            position, "the line is of a template that was not rendered", "render it first: `helm template`"
        )
    if toml := _toml_in(text):
        return toml
    for number in (line, line - 1):  # a key with such a character before its `:` goes on in the next line
        if number >= 0 and (hidden := _hidden_in("".join(lines[number : number + 1]))):
            at, what, cure = hidden
            return YamlFault(f"{number + 1}:{at + 1}", what, cure)
    if "\t" in (written[: column + 1] if "\t" in written[column : column + 1] else _indentation(written)):
        return YamlFault(position, "the line is indented with a tab", "indent with spaces")
    return YamlFault(position, *_words(error, problem, written, column))


def _toml_in(text: str) -> YamlFault | None:
    """The fault of a text that is TOML or an INI file; None if its first line is of neither."""
    for number, line in enumerate(text.split("\n")):
        if line.strip() and not line.lstrip().startswith(("#", ";")):
            if not _ASSIGNMENT.fullmatch(line):
                return None
            column = len(_indentation(line)) + 1
            return YamlFault(
                f"{number + 1}:{column}", "this is TOML or an INI file, not YAML", "begin with `devherd config sample`"
            )
    return None


def _hidden_in(line: str) -> tuple[int, str, str] | None:
    """The first invisible character before a comment: its column, the problem and the cure; None without one."""
    for column, character in enumerate(line.partition(" #")[0]):
        if not character.isprintable() and character not in "\t\r":
            name = unicodedata.name(character, "control character").lower()
            article = "an" if name[0] in "aeiou" else "a"
            what = f"{article} {name} (U+{ord(character):04X}), which cannot be seen, stands here"
            return column, what, "write a space" if character.isspace() else "remove it"
    return None


def misread(positions: Positions) -> Iterator[Problem]:
    """A problem for each key and value that YAML does not read as people do."""
    for location, node, is_key in positions.scalars():
        is_plain = not node.style
        if not (is_plain or is_key):
            continue
        place = (*location, str(node.value)) if is_key else location
        if hidden := _hidden_in(str(node.value)):
            _, what, cure = hidden
            yield Problem(place, what, cure, at_key=is_key)
        elif is_plain and _is_of_base_60(node):
            what = f"`{node.value}` without quotes is a number in base 60 to YAML 1.1"
            yield Problem(place, what, f"put `{node.value}` in quotes", at_key=is_key)


def _words(error: yaml.YAMLError, problem: str, line: str, column: int) -> tuple[str, str]:
    """The problem and the cure."""
    if isinstance(error, RefusedYamlError):
        return problem, error.cure
    if problem == "found character that cannot start any token":
        return f"a value cannot begin with `{line[column]}`", "put it in quotes"
    if problem.startswith("could not determine a constructor for the tag"):
        return _TAG
    if problem.startswith("expected a mapping or list of mappings for merging"):
        return "`<<` takes a mapping, or a list of mappings", "give it an alias of one, like `*name`"
    if problem == "did not find expected key" and line[:column].strip():
        return "the value has ended before this", "put the whole value in quotes, and double each quote in it"
    known = next((told for begin, told in (_WORDS | _NOT_CLOSED).items() if problem.startswith(begin)), None)
    return known or (problem, "correct it there, or put the value in quotes")


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
        if toml := _toml_in(text) if isinstance(content, str) else None:
            raise ConfigError([UsageError(f"bad {subject} in {source}:{toml.position}", toml.what, toml.cure)])
        if hidden := list(misread(Positions(root))):
            raise config_error(source, hidden, Positions(root), subject=subject)
        problem = Problem((), "the file is not a mapping of keys", f"write it like `{example}`")
        raise config_error(source, [problem], subject=subject)
    return {str(key): value for key, value in content.items()}, Positions(root)
