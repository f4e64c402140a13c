"""What every importer says of its plugin."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from devherd.importers.imported import Imported
from devherd.importers.invocation import Invocation


class File(NamedTuple):
    """The content of a configuration file, and what it is called: the key of its ConfigMap."""

    content: Mapping[str, Any]
    name: str = ""


class Chart(NamedTuple):
    """A Helm chart that installs the plugin."""

    name: str
    has_values: Callable[[Mapping[str, Any]], bool]
    """Whether a mapping is a values file of it."""
    started: Callable[[Mapping[str, Any]], Iterator[Invocation | File]]
    """What it starts with these values."""


class Translate(Protocol):
    """The configuration that does the same as a plugin with this command line and file.

    `with_ignored`: what the plugin reads and then ignores is to have its effect. Raises UsageError for a flag or value
    that the plugin would refuse.
    """

    def __call__(self, invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:
        """Translate; `file` None = it has none."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin that can be imported."""

    name: str
    is_called: Callable[[str], bool]
    """Whether a program, container or image of this name is it."""
    translate: Translate
    flags: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()
    """The environment variables that it reads."""
    is_file: Callable[[Mapping[str, Any]], bool] = lambda _: False
    """Whether a mapping is a configuration file of it."""
    kinds: Mapping[str, Callable[[Mapping[str, Any]], Iterator[Invocation | File]]] = field(default_factory=dict)
    """Custom resources of its operator, `group/Kind`: how the operator starts the plugin for one."""
    charts: tuple[Chart, ...] = ()
    """The first that has a mapping's values is meant, where the mapping does not say."""

    def imported(
        self, invocation: Invocation, file: Mapping[str, Any] | None = None, *, with_ignored: bool = False
    ) -> Imported:
        """Its translation, with a note for each variable whose value the manifest does not have."""
        imported = self.translate(invocation, file, with_ignored=with_ignored)
        imported.notes += invocation.notes
        for name in sorted(self.variables & invocation.valueless()):
            if not any(name in note for note in imported.notes):
                imported.note(f"{name} is left out: the manifest takes its value from somewhere else (valueFrom)")
        return imported

    def chart_of(self, content: Mapping[str, Any]) -> Chart | None:
        """The chart of which a mapping is a values file."""
        return next((chart for chart in self.charts if chart.has_values(content)), None)

    def is_started_by(self, invocation: Invocation) -> bool:
        """Whether anything in it is called after the plugin."""
        return any(name and self.is_called(name) for name in invocation.names)
