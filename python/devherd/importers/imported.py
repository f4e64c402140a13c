"""What became of another plugin's configuration."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Imported:
    """A devherd configuration as plain data, and what the user should know about it, a sentence each."""

    plugin: str
    config: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

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
