"""What is wrong with a text that is not YAML, in words for people who did not mean to learn YAML. Pure."""

from dataclasses import dataclass

import yaml

from devherd.config.strict_yaml import RefusedError

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
"""libyaml's words, and ours."""
_NOT_CLOSED = {
    "did not find expected ',' or '}'": ("a `{` is not closed", "add the `}`, or the `,` between two keys"),
    "did not find expected ',' or ']'": ("a `[` is not closed", "add the `]`, or the `,` between two items"),
    "found unexpected end of stream": ("a quote is not closed", "close it"),
}
"""These are noticed at the end of the file; their context is where it begins."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Where, what and the cure."""

    position: str
    what: str
    cure: str


def fault_of(error: yaml.YAMLError, text: str) -> Fault:
    """What made a text of YAML fail."""
    if isinstance(error, yaml.reader.ReaderError):
        return _of_character(error, text)
    problem = getattr(error, "problem", None) or "not valid YAML"
    mark = getattr(error, "context_mark" if problem in _NOT_CLOSED else "problem_mark", None)
    line, column = (mark.line, mark.column) if mark else (0, 0)
    position = f"{line + 1}:{column + 1}"
    written = "".join(text.splitlines()[line : line + 1])
    if any(sign in written for sign in _TEMPLATES):
        return Fault(position, "the line is of a template that was not rendered", "render it first: `helm template`")
    if "\t" in (written[: column + 1] if "\t" in written[column : column + 1] else _indentation(written)):
        return Fault(position, "the line is indented with a tab", "indent with spaces")
    return Fault(position, *_words(error, problem, written, column))


def _words(error: yaml.YAMLError, problem: str, line: str, column: int) -> tuple[str, str]:
    """What is wrong, and the cure."""
    if isinstance(error, RefusedError):
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


def _of_character(error: yaml.reader.ReaderError, text: str) -> Fault:
    """YAML has no control characters; the reader counts characters, not lines."""
    before = text[: error.position] if isinstance(error.position, int) else ""
    position = f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"
    return Fault(position, f"{error.reason} here", "remove it")
