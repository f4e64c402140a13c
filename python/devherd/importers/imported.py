"""What became of another plugin's configuration."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

LABELS = "labels are written on request: `node_labels` in docs/node-labels.md"


@dataclass(slots=True)
class Imported:
    """A devherd configuration as plain data, and what the user should know about it, a sentence each."""

    plugin: str
    config: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    name: str = ""
    """What it was called where it stood: a key of a ConfigMap, a workload."""

    def say(self, section: str, options: dict[str, Any]) -> None:
        """Put what is said into a section, `vendors.nvidia`; nothing said leaves no section."""
        if not options:
            return
        place = self.config
        for key in section.split("."):
            place = place.setdefault(key, {})
        place.update(options)

    def note(self, text: str) -> None:
        """Tell the user something, once."""
        if text not in self.notes:
            self.notes.append(text)

    def note_left_out(self, names: Iterable[str], reasons: Mapping[str, str], otherwise: str) -> None:
        """Say which settings are left out, those of one reason together: its own, its section's, or `otherwise`."""
        by_reason: dict[str, list[str]] = {}
        for name in names:
            sections = accumulate(name.split("."), lambda section, key: f"{section}.{key}")
            found = [reasons[each] for each in sections if each in reasons]
            by_reason.setdefault(found[-1] if found else otherwise, []).append(name)
        for reason, those in by_reason.items():
            self.note(f"{', '.join(those)} {'is' if len(those) == 1 else 'are'} left out: {reason}")
