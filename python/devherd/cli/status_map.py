"""The map of the node in the terminal: a tree with a line for each card, in ASCII where locale or terminal need it."""

import locale
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.text import Text

from devherd.cli.tables import plain
from devherd.instance.inventory_json import host_name
from devherd.instance.node_map import BAD, GOOD, LOST, OFF, OTHERS, SWITCH, WARN, Branch, Card, NodeMap, counts

_SIGNS = {GOOD: "✓", WARN: "!", OFF: "-", BAD: "✕", LOST: "?"}
_STYLES = {GOOD: "green", WARN: "yellow", OFF: "dim", BAD: "red", LOST: "red"}
_HELD, _FREE, _BAD_AND_HELD = "■", "□", "✖"
_ASCII = str.maketrans("└├│─✓✕■□✖", "`||-+x#.X")
_LEAST_WORDS = 24
"""Least width for a card's health and pods; columns before it are dropped first."""
_GAP = "  "


@dataclass(slots=True)
class _Line:
    """A card: the branch before it, its columns, and the words that may be wrapped; without a card a group's name."""

    branch: str
    below: str
    """What stands below the branch where the words are wrapped."""
    name: str
    columns: Sequence[str] = ()
    words: str = ""
    state: str = ""
    widths: Sequence[int] = field(default_factory=tuple)


def needs_ascii() -> bool:
    """True if the locale's encoding, that of the output, or the terminal has no such characters as └ and ■."""
    encodings = (locale.nl_langinfo(locale.CODESET), sys.stdout.encoding or "ascii")
    is_dumb = sys.stdout.isatty() and os.environ.get("TERM") == "dumb"
    return is_dumb or any("utf" not in encoding.lower() for encoding in encodings)


def lines(node: NodeMap, width: int, *, ascii_only: bool) -> Iterator[Text]:
    """The map, at most so wide; a name is never cut: a terminal that is narrower wraps its line."""
    cards = list(node.cards())
    if not cards:
        yield Text("No device has been found: `devherd scan` says where it looked.")
        return
    counted = counts(cards)
    yield _text(f"{host_name()}: {counted}" if counted else host_name(), "bold", ascii_only=ascii_only)
    found = [line for group in node.groups for line in _tree(group, "", "")]
    kept = _kept(found, width)
    for line in found:
        yield from _shown(line, kept, width, ascii_only=ascii_only)
    for fabric in node.fabrics:
        yield from _wrapped(fabric.text(), width, "    ", ascii_only=ascii_only)
    yield from _wrapped(_key(cards), width, "", ascii_only=ascii_only)


def _tree(group: Branch, branch: str, below: str) -> Iterator[_Line]:
    if group.name:
        yield _Line(branch, below, f"switch {group.name}" if group.kind == SWITCH else group.name)
    for number, one in enumerate(group.inside):
        is_last = number == len(group.inside) - 1
        inner, under = below + ("└─ " if is_last else "├─ "), below + ("   " if is_last else "│  ")
        if isinstance(one, Card):
            yield _card(one, inner, under, is_other=group.kind == OTHERS)
        elif one.name:
            yield from _tree(one, inner, under)
        else:
            yield from _tree(one, branch, below)


def _card(card: Card, branch: str, below: str, *, is_other: bool) -> _Line:
    is_address = card.address.endswith(card.name)
    name = card.address if is_address and not is_other else card.name
    columns = ("" if is_address else card.address, card.model, _cells(card))
    words = ", ".join(filter(None, (card.health(), card.holders())))
    return _Line(branch, below, plain(name), [plain(one) for one in columns], plain(words), card.state)


def _cells(card: Card) -> str:
    cells = card.cells()
    if not cells:
        return f"[{card.held}/{card.size}]"
    return f"[{''.join(_cell(state, is_held=is_held) for state, is_held in cells)}]"


def _cell(state: str, *, is_held: bool) -> str:
    if state == GOOD:
        return _HELD if is_held else _FREE
    return _BAD_AND_HELD if state == BAD and is_held else _SIGNS[state]


def _kept(found: Sequence[_Line], width: int) -> list[tuple[int, int]]:
    """The columns for which there is room, each with its width; number -1 is branch and name."""
    cards = [line for line in found if line.columns]
    sizes = {-1: max(cell_len(line.branch + line.name) for line in cards)}
    sizes |= {number: max(cell_len(line.columns[number]) for line in cards) for number in range(len(cards[0].columns))}
    for dropped in (1, 0):
        if sum(sizes.values()) + len(_GAP) * len(sizes) + _LEAST_WORDS > width:
            del sizes[dropped]
    return [(number, size) for number, size in sizes.items() if size]


def _shown(line: _Line, kept: Sequence[tuple[int, int]], width: int, *, ascii_only: bool) -> Iterator[Text]:
    if not line.columns:
        yield _text(line.branch + line.name, "bold" if not line.branch else "", ascii_only=ascii_only)
        return
    (_, first), *others = kept
    head = line.branch + line.name
    head += " " * (first - cell_len(head))
    for number, size in others:
        column = line.columns[number]
        head += _GAP + column + " " * (size - cell_len(column))
    head += _GAP
    indent = line.below + " " * (cell_len(head) - cell_len(line.below) + 2)
    room = max(_LEAST_WORDS, width - cell_len(indent))
    words = textwrap.wrap(f"{line.words}", room, break_long_words=False, break_on_hyphens=False) or [""]
    text = _text(head, "", ascii_only=ascii_only)
    yield text.append_text(_text(f"{_SIGNS[line.state]} {words[0]}", _STYLES[line.state], ascii_only=ascii_only))
    for more in words[1:]:
        yield _text(indent + more, "", ascii_only=ascii_only)


def _wrapped(text: str, width: int, indent: str, *, ascii_only: bool) -> Iterator[Text]:
    for part in textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False):
        yield _text(part, "dim", ascii_only=ascii_only)


def _key(cards: Sequence[Card]) -> str:
    """The signs in brackets that occur."""
    parts = [part for card in cards for part in card.parts]
    states = {part.state for part in parts}
    is_known = all(card.knows_holders for card in cards)
    words = {WARN: "warning", OFF: "cordoned", BAD: "Unhealthy", LOST: "lost"}
    held = [f"{_HELD} held by a pod", f"{_FREE} free"] if is_known else [f"{_FREE} holder unknown"]
    if any(part.held for part in parts if part.state == BAD):
        held.append(f"{_BAD_AND_HELD} Unhealthy and held")
    return ", ".join([*held, *(f"{_SIGNS[state]} {word}" for state, word in words.items() if state in states)])


def _text(text: str, style: str, *, ascii_only: bool) -> Text:
    if ascii_only:
        text = text.translate(_ASCII).encode("ascii", "replace").decode()
    return Text(text, style, no_wrap=True, overflow="ignore")
