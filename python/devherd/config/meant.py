"""What a user may have meant by a word that is not known: the cure of many errors."""

import difflib
from collections.abc import Collection

_AS_LIKELY = 0.1
"""How much less like a word the second best may be to be named as well."""


def meant(word: str, known: Collection[str]) -> str:
    """`did you mean …?`, or all known words where none is like it; letter case does not matter."""
    spelt = {each.lower(): each for each in known}
    close = difflib.get_close_matches(word.lower(), spelt, n=3)
    best = [spelt[each] for each in close if _likeness(word, each) > _likeness(word, close[0]) - _AS_LIKELY]
    return f"did you mean {_either(best)}?" if best else f"choose from {quoted(known)}"


def _likeness(word: str, known: str) -> float:
    return difflib.SequenceMatcher(None, known, word.lower()).ratio()


def quoted(words: Collection[str]) -> str:
    """Words in a list."""
    return ", ".join(f"`{word}`" for word in words)


def _either(words: list[str]) -> str:
    *others, last = (f"`{word}`" for word in words)
    return f"{', '.join(others)} or {last}" if others else last
