"""How a plugin is started: a command line, or the container of a manifest."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from devherd.errors import UsageError

_SHELLS = frozenset({"sh", "bash", "ash", "dash"})
_MORE_THAN_ONE_COMMAND = re.compile(r"[;&|<>`\n(]|\$\(")


@dataclass(frozen=True, slots=True)
class Invocation:
    """The words of a command line, with or without the program, its variables, and what is called after the plugin."""

    words: Sequence[str] = ()
    environment: Mapping[str, str | None] = field(default_factory=dict)
    """None = the value comes from somewhere else, a field or a Secret."""
    image: str = ""
    container: str = ""
    workload: str = ""
    notes: tuple[str, ...] = ()
    """What the user should know about where it comes from."""

    @property
    def program(self) -> str:
        """The program's name without its directory; empty when the words begin with a flag."""
        return self.words[0].rpartition("/")[2] if self.words and not self.words[0].startswith("-") else ""

    @property
    def names(self) -> tuple[str, ...]:
        """Whatever may be called after the plugin: program, container, image without registry and version."""
        repository = self.image.partition("@")[0]
        return (self.program, self.container, re.sub(r":[^/:]*$", "", repository).lower())

    @property
    def version(self) -> tuple[int, ...] | None:
        """The release that the image's tag names, `v0.35.0` as (0, 35, 0); None where it names none."""
        tag = re.search(r":v?(\d+(?:\.\d+)+)[^/]*$", self.image.partition("@")[0])
        return tuple(map(int, tag[1].split("."))) if tag else None

    @property
    def flag_words(self) -> Sequence[str]:
        """The words from the first flag on."""
        return self.words[1:] if self.program else self.words

    def variables(self) -> dict[str, str]:
        """The environment variables whose values are known."""
        return {name: value for name, value in self.environment.items() if value is not None}

    def valueless(self) -> set[str]:
        """The environment variables whose values come from somewhere else."""
        return {name for name, value in self.environment.items() if value is None}

    def flag_names(self) -> set[str]:
        """The names of all flags, whatever follows them."""
        return {word.lstrip("-").partition("=")[0] for word in self.flag_words if word.startswith("-")}


def split(text: str) -> list[str]:
    """The words of a command line as a shell reads it. Raises UsageError for an open quote."""
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise UsageError("the command line cannot be read", str(error), "close the quote") from error


def without_shell(words: Sequence[str]) -> Sequence[str]:
    """What `sh -c "plugin -flag"` starts; a script of more than one command stays behind its shell."""
    if len(words) < 3 or words[0].rpartition("/")[2] not in _SHELLS or not re.fullmatch(r"-[a-z]*c", words[1]):
        return words
    script = words[2].strip()
    if not script or _MORE_THAN_ONE_COMMAND.search(script):
        return words[:1]
    inner = split(script)
    return inner[1:] if inner[:1] == ["exec"] else inner
