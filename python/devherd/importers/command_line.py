"""Command lines of Go programs: `-name value`, `--name=value`, and `-name` alone where it is a switch.

<https://pkg.go.dev/flag>: one dash or two, values of switches only behind `=`.
"""

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from devherd.errors import UsageError


@dataclass(frozen=True, slots=True)
class Invocation:
    """How a plugin is started: the words of its command line, with or without the program, its variables, its image."""

    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    image: str = ""

    @property
    def program(self) -> str:
        """The program's name without its directory; empty when the words begin with a flag."""
        return self.words[0].rpartition("/")[2] if self.words and not self.words[0].startswith("-") else ""

    @property
    def flag_words(self) -> Sequence[str]:
        """The words from the first flag on."""
        return self.words[1:] if self.program else self.words

    def flag_names(self) -> set[str]:
        """The names of all flags, whatever follows them."""
        return {word.lstrip("-").partition("=")[0] for word in self.flag_words if word.startswith("-")}


def started(words: Sequence[str]) -> Sequence[str]:
    """The words of the command that a shell is told to run, `sh -c "./plugin -flag"`; any other words as they are.

    Raises UsageError for an open quote.
    """
    shell, option, script = (*words, "", "", "")[:3]
    if shell.rpartition("/")[2] not in {"sh", "bash", "dash", "ash"} or not re.fullmatch(r"-[a-z]*c", option):
        return words
    command = split(script)
    return command[1:] if command[:1] == ["exec"] else command


def split(text: str) -> list[str]:
    """The words of a command line as a shell reads it. Raises UsageError for an open quote."""
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise UsageError("the command line cannot be read", str(error), "close the quote") from error


def flags(words: Sequence[str], switches: Collection[str], known: Collection[str]) -> dict[str, list[str]]:
    """Flag name to its values in order; a switch without a value is `true`.

    Raises UsageError for a flag that is not known or lacks its value.
    """
    values: dict[str, list[str]] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, separator, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or name not in known:
            raise UsageError(f"`{word}` is not a flag of this plugin", "it is not known", f"known are {_listed(known)}")
        if not separator:
            if name not in switches and not rest:
                raise UsageError(f"`{word}` has no value", "it needs one", f"write {word}=VALUE")
            value = "true" if name in switches else rest.pop(0)
        values.setdefault(name, []).append(value)
    return values


def _listed(known: Collection[str]) -> str:
    return ", ".join(f"-{name}" for name in sorted(known))
