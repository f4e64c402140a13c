"""What a user may have meant by a word that is not known: the cure of many errors."""

import difflib
from collections.abc import Collection


def meant(word: str, known: Collection[str]) -> str:
    """`did you mean …?`, or all known words where none is like it; letter case does not matter."""
    spelt = {each.lower(): each for each in known}
    close = [spelt[each] for each in difflib.get_close_matches(word.lower(), spelt, n=3)]
    if close and close[0].lower() == word.lower():
        close = close[:1]
    return f"did you mean {_either(close)}?" if close else f"choose from {quoted(known)}"


def quoted(words: Collection[str]) -> str:
    """Words in a list."""
    return ", ".join(f"`{word}`" for word in words)


def _either(words: list[str]) -> str:
    *others, last = (f"`{word}`" for word in words)
    return f"{', '.join(others)} or {last}" if others else last
