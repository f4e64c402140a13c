"""The description of a plugin for its importer, and how a plugin is started: a command line, or a container."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from devherd.errors import UsageError
from devherd.importers.imported import Imported

_SHELLS = frozenset({"sh", "bash", "ash", "dash"})
_MORE_THAN_ONE_COMMAND = re.compile(r"[;&|<>`\n(]|\$\(")


@dataclass(frozen=True, slots=True)
class Invocation:
    """How a plugin is started: the words of its command line, its environment variables, names from its manifest.

    The words may begin with the program or with the first flag.
    """

    words: Sequence[str] = ()
    environment: Mapping[str, str | None] = field(default_factory=dict)
    """None: the value comes from elsewhere (`valueFrom`: a field or a Secret)."""
    image: str = ""
    container: str = ""
    workload: str = ""
    notes: tuple[str, ...] = ()
    """Notes for the user about its origin."""
    differences: tuple[str, ...] = ()
    """Notes for the user on devices that devherd serves differently, or that the plugin itself does not serve."""
    components: tuple[str, ...] = ()
    """Components of devherd's manifests that its place needs, beside those of its vendor and options."""

    @property
    def program(self) -> str:
        """The program's name without its directory; empty if the words begin with a flag."""
        return self.words[0].rpartition("/")[2] if self.words and not self.words[0].startswith("-") else ""

    @property
    def names(self) -> tuple[str, ...]:
        """Names by which the plugin may be recognised: program, container, image without its version."""
        repository = self.image.partition("@")[0]
        return (self.program, self.container, re.sub(r":[^/:]*$", "", repository).lower())

    @property
    def version(self) -> tuple[int, ...] | None:
        """The release in the image's tag, `v0.35.0` as (0, 35, 0); None if the tag has none."""
        tag = re.search(r":v?(\d+(?:\.\d+)+)[^/]*$", self.image.partition("@")[0])
        return tuple(map(int, tag[1].split("."))) if tag else None

    @property
    def flag_words(self) -> Sequence[str]:
        """The words after the program."""
        return self.words[1:] if self.program else self.words

    def variables(self) -> dict[str, str]:
        """The environment variables whose values are known."""
        return {name: value for name, value in self.environment.items() if value is not None}

    def valueless(self) -> set[str]:
        """The environment variables whose values come from elsewhere."""
        return {name for name, value in self.environment.items() if value is None}

    def flag_names(self) -> set[str]:
        """The names of all flags, without values."""
        return {word.lstrip("-").partition("=")[0] for word in self.flag_words if word.startswith("-")}


def split(text: str) -> list[str]:
    """The words of a command line as a shell reads it. Raises UsageError for an open quote."""
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise UsageError("the command line cannot be read", str(error), "close the quote") from error


def without_shell(words: Sequence[str]) -> Sequence[str]:
    """The words that `sh -c "plugin -flag"` runs; only the shell itself if its script has more than one command."""
    if len(words) < 3 or words[0].rpartition("/")[2] not in _SHELLS or not re.fullmatch(r"-[a-z]*c", words[1]):
        return words
    script = words[2].strip()
    if not script or _MORE_THAN_ONE_COMMAND.search(script):
        return words[:1]
    inner = split(script)
    return inner[1:] if inner[:1] == ["exec"] else inner


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The content of a configuration file, and its name: the key in its ConfigMap."""

    content: Mapping[str, Any]
    name: str = ""
    is_default: bool = False
    """Whether nodes without a choice of their own use it, of several."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A Helm chart that installs the plugin."""

    name: str
    has_values: Callable[[Mapping[str, Any]], bool]
    """Whether a mapping is a values file of this chart."""
    started: Callable[[Mapping[str, Any]], Iterator[Invocation | ConfigFile]]
    """What the chart starts with these values."""


class Translate(Protocol):
    """Returns the configuration that does the same as a plugin with this command line and file.

    With `with_ignored`, settings that the plugin reads and ignores take effect. Raises UsageError for a flag or value
    that the plugin refuses.
    """

    def __call__(self, invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:
        """Translate; `file` is None if the plugin has none."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin that can be imported."""

    name: str
    is_called: Callable[[str], bool]
    """Whether a program, container or image of this name is the plugin."""
    translate: Translate
    flags: frozenset[str] = frozenset()
    vendor: str = ""
    """The vendor of its devices, as devherd's chart calls it; empty for any."""
    variables: frozenset[str] = frozenset()
    """The environment variables that the plugin reads."""
    is_file: Callable[[Mapping[str, Any]], bool] = lambda _: False
    """Whether a mapping is a configuration file of the plugin."""
    kinds: Mapping[str, Callable[[Mapping[str, Any]], Iterator[Invocation | ConfigFile]]] = field(default_factory=dict)
    """How the plugin's operator starts it for a custom resource, by `group/Kind`."""
    charts: tuple[Chart, ...] = ()
    """If several charts fit the same values, the first is used."""

    def imported(
        self, invocation: Invocation, file: Mapping[str, Any] | None = None, *, with_ignored: bool = False
    ) -> Imported:
        """The translation, with a note for each variable whose value is not in the manifest."""
        imported = self.translate(invocation, file, with_ignored=with_ignored)
        imported.vendor = self.vendor
        imported.components += invocation.components
        imported.notes += invocation.notes
        for difference in invocation.differences:
            imported.note_difference(difference)
        for name in sorted(self.variables & invocation.valueless()):
            if not any(name in note for note in imported.notes):
                imported.note_loss(f"{name} is left out: the manifest takes its value from somewhere else (valueFrom)")
        return imported

    def chart_of(self, content: Mapping[str, Any]) -> Chart | None:
        """The chart whose values file a mapping is; None if there is none."""
        return next((chart for chart in self.charts if chart.has_values(content)), None)

    def is_started_by(self, invocation: Invocation) -> bool:
        """Whether one of the invocation's names belongs to the plugin."""
        return any(name and self.is_called(name) for name in invocation.names)
