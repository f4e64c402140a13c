"""What is said about a configuration: where, what is wrong or without effect, what to do. The one form of it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Location = tuple[int | str, ...]
"""Keys and places in lists, from the top of the file: `("resources", 0, "match")`."""

_LONGEST_ECHO = 60
_UNITS = ((3600.0, "h"), (60.0, "m"), (1.0, "s"), (0.001, "ms"))


@dataclass(frozen=True, slots=True)
class Problem:
    """One error or warning. `at_key`: it is about the key itself, not about its value."""

    location: Location
    what: str
    cure: str
    at_key: bool = False

    def __str__(self) -> str:
        path = key_path(self.location)
        return f"{path}: {self.what} — {self.cure}" if path else f"{self.what} — {self.cure}"


class WrongValueError(ValueError):
    """A value that a validator refuses: why and the cure; `at` leads from the validated value to the part meant."""

    def __init__(self, what: str, cure: str, at: Location = ()) -> None:
        super().__init__(f"{what} — {cure}")
        self.what = what
        self.cure = cure
        self.at = at


def key_path(location: Location) -> str:
    """`resources[0].match`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")


def echo(value: Any) -> str:
    """A value as the file has it, shortened, to be quoted in a sentence."""
    if value is None or isinstance(value, bool):
        return f"`{str(value).lower().replace('none', 'null')}`"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = str(getattr(value, "text", value))
    if not text:
        return "an empty text"
    return f"`{text}`" if len(text) <= _LONGEST_ECHO else f"`{text[: _LONGEST_ECHO - 1]}…`"


def duration(seconds: float) -> str:
    """Seconds as the file has them: `5s`, `1m30s`, `250ms`."""
    milliseconds = round(seconds * 1000)
    if not math.isclose(milliseconds, seconds * 1000, abs_tol=1e-6):
        return f"{seconds * 1000:g}ms"
    parts = []
    for size, unit in _UNITS:
        count, milliseconds = divmod(milliseconds, round(size * 1000))
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or "0s"
