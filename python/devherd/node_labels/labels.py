"""Labels with what could not be said, and what Kubernetes takes as a label.

<https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set>
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

_LONGEST = 63
_PART = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_LONGEST_PREFIX = 253


def is_value(text: str) -> bool:
    """Whether it may be a label's value; an empty one may."""
    return not text or _is_part(text)


def is_name(text: str) -> bool:
    """Whether it may be a label's name, with a prefix."""
    prefix, slash, name = text.partition("/")
    return bool(slash) and len(prefix) <= _LONGEST_PREFIX and bool(_PREFIX.fullmatch(prefix)) and _is_part(name)


def _is_part(text: str) -> bool:
    return len(text) <= _LONGEST and bool(_PART.fullmatch(text))


@dataclass(slots=True)
class Labels:
    """What is said of the node, by name."""

    values: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """Why a label that its vendor's labeller may write is left out, or does not say all."""

    def say(self, name: str, value: object) -> None:
        """Add a label; one that Kubernetes would refuse is missing."""
        text = str(value)
        if not is_name(name):
            self.missing[name] = "not a legal name of a label: 63 characters of A-Z, a-z, 0-9, -, _ and ."
        elif not is_value(text):
            self.missing[name] = f"`{text}` is not a legal value of a label: 63 characters of A-Z, a-z, 0-9, -, _ and ."
        else:
            self.values[name] = text

    def leave_out(self, why: str, *names: str) -> None:
        """Say why labels are missing."""
        self.missing.update(dict.fromkeys(names, why))

    def add(self, others: "Labels") -> None:
        """Take over what others say."""
        self.values |= others.values
        self.missing |= others.missing

    def without(self, globs: list[str]) -> "Labels":
        """Those whose names no glob matches."""
        return Labels(_unmatched(self.values, globs), _unmatched(self.missing, globs))


def _unmatched(named: Mapping[str, str], globs: list[str]) -> dict[str, str]:
    return {name: text for name, text in named.items() if not any(fnmatchcase(name, glob) for glob in globs)}
