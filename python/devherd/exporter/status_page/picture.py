"""The picture of the node: a list of lists, in which each card is a link with a square drawn in SVG.

Screen readers read the list, and the state of a card is a word in it. `page.css` gives colours, signs and the flow of
the boxes; a square's size is here and there.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from urllib.parse import quote

from devherd.exporter.status_page.device import Place
from devherd.exporter.status_page.html import Html, element, joined
from devherd.exporter.status_page.overview import LOST as LOST_DEVICES
from devherd.exporter.status_page.view import View
from devherd.instance.node_map import (
    BAD,
    FREE,
    GOOD,
    LOST,
    OFF,
    SWITCH,
    UNKNOWN,
    WARN,
    Branch,
    Card,
    CardPart,
    Fabric,
    NodeMap,
    counts,
)

MOST_LARGE = 32
"""With more cards than this their squares are small."""
MOST_DRAWN = 128
"""Limit of the cards below a switch or root, and of other devices."""
_STEP = 34
"""Distance of the cards in the picture of a fabric."""


@dataclass(frozen=True, slots=True)
class _Square:
    """Sizes in pixels: of the square, of its middle part for cells; of a cell and the gap after it, by cells a row.

    `pods` is the limit of the pods that its title names, `letters` that of the line below its name.
    """

    name: str
    pods: int
    letters: int
    side: int
    middle: int
    cells: Mapping[int, tuple[int, int]]


_LARGE = _Square("large", 3, 40, 60, 40, {2: (18, 4), 3: (11, 4), 4: (8, 3)})
_SMALL = _Square("small", 1, 14, 36, 24, {2: (10, 3), 3: (6, 3), 4: (5, 2)})


def is_crowded(node: NodeMap) -> bool:
    """True if the squares are small: the picture fills more than a screen."""
    return len(list(node.cards())) > MOST_LARGE


def picture(node: NodeMap, shown: AbstractSet[Place]) -> Html:
    """The section of the page; empty without devices. `shown`: the devices that have a row on this page."""
    cards = list(node.cards())
    if not cards:
        return Html()
    square = _SMALL if is_crowded(node) else _LARGE
    return element(
        "section",
        element("a", "Skip the picture", href="#resources", class_="skip"),
        element("ul", *(_group(group, square, shown) for group in node.groups), class_=square.name),
        joined(*map(_fabric, node.fabrics)),
        element("p", *_key(cards), class_="key"),
        id="map",
        aria_label="Picture of the node",
    )


def _group(group: Branch, square: _Square, shown: AbstractSet[Place]) -> Html:
    inside = [
        _card(one, square, shown) if isinstance(one, Card) else _group(one, square, shown) for one in _drawn_in(group)
    ]
    if len(group.inside) > MOST_DRAWN:
        inside.append(element("li", f"and {len(group.inside) - MOST_DRAWN:,} more"))
    name = f"switch {group.name.removeprefix('0000:')}" if group.kind == SWITCH else group.name
    return element("li", element("b", name) if name else "", element("ul", *inside), class_="group")


def _drawn_in(group: Branch) -> Sequence[Branch | Card]:
    """What is drawn below a branch; of too much, what is well is left out first."""
    inside = group.inside
    if len(inside) <= MOST_DRAWN:
        return inside
    numbers = sorted(range(len(inside)), key=lambda number: _is_well(inside[number]))[:MOST_DRAWN]
    return [inside[number] for number in sorted(numbers)]


def _is_well(one: Branch | Card) -> bool:
    return isinstance(one, Card) and one.state == GOOD


def _card(card: Card, square: _Square, shown: AbstractSet[Place]) -> Html:
    below = _in_short(card)
    if len(below) > square.letters:
        below = f"{below[: square.letters]}…"
    return element(
        "li",
        element(
            "a",
            element("svg", *_drawn(card, square), aria_hidden="true"),
            element("b", card.name),
            element("i", below) if below not in {FREE, UNKNOWN} or square is _LARGE else "",
            class_=card.state,
            href=_address(card.worst, shown),
            title=f"{_what(card, square)}: {', '.join(filter(None, (card.health(), card.holders(square.pods))))}",
        ),
    )


def _address(part: CardPart, shown: AbstractSet[Place]) -> str:
    """Where a device is on the page; by a filter if it has no row on this one."""
    if part.state == LOST and (part.resource_name, part.device_id) not in shown and not part.why:
        return f"#{LOST_DEVICES}"
    if (part.resource_name, part.device_id) not in shown:
        return View(filter=part.device_id).query
    return f"#{quote(f'{part.resource_name}/{part.device_id}', safe='/:@')}"


def _what(card: Card, square: _Square) -> str:
    name = "" if card.address.endswith(card.name) else card.name
    return ", ".join(filter(None, (name, card.model if square is _LARGE else "", card.address)))


def _in_short(card: Card) -> str:
    """The second line: what is wrong; else who holds it."""
    if card.state in {BAD, WARN, LOST, OFF}:
        part = card.worst
        word = {LOST: "lost", OFF: "cordoned"}.get(card.state, part.why or "Unhealthy")
        return ", ".join(filter(None, (word, _pods_in_short(card))))
    return _pods_in_short(card) or card.holders()


def _pods_in_short(card: Card) -> str:
    pods = [pod.rpartition("/")[2] for pod in card.pods]
    if not pods:
        return ""
    if card.size == 1:
        return pods[0]
    return f"{card.held:,}/{card.size:,} {pods[0]}{'…' if len(pods) > 1 else ''}"


def _drawn(card: Card, square: _Square) -> Iterator[Html]:
    """The square; inside it a cell for each id, or their number."""
    cells = card.cells()
    if len(cells) == 1:
        [(state, is_held)] = cells
        yield element("rect", class_=_classes(state, is_held=is_held))
        if sign := _sign(state, square.side / 2, square.side / 2, square.side / 5):
            yield element("path", d=sign, class_="sign held" if is_held else "sign")
        return
    yield element("rect", class_=card.state)
    if not cells:
        yield from _counted(card, square)
        return
    row = next(number for number in square.cells if number * number >= len(cells))
    size, gap = square.cells[row]
    edge, top = (_edge(square, number, size, gap) for number in (row, -(-len(cells) // row)))
    shapes: dict[str, list[str]] = {}
    signs: list[str] = []
    for number, (state, is_held) in enumerate(cells):
        x, y = edge + number % row * (size + gap), top + number // row * (size + gap)
        shapes.setdefault(_classes(state, is_held=is_held), []).append(f"M{x} {y}h{size}v{size}h-{size}z")
        signs.append(_sign(state, x + size / 2, y + size / 2, size / 4))
    for classes, drawn in shapes.items():
        yield element("path", d="".join(drawn), class_=classes)
    if any(signs):
        yield element("path", d="".join(signs), class_="sign cell")


def _edge(square: _Square, number: int, size: int, gap: int) -> int:
    return (square.side - number * size - (number - 1) * gap) // 2


def _classes(state: str, *, is_held: bool) -> str:
    return f"{state} held" if is_held else state


def _sign(state: str, x: float, y: float, r: float) -> str:
    """The path of a cross, an exclamation mark or a bar; empty for what is Healthy or lost."""
    match state:
        case "bad":
            return f"M{x - r:g} {y - r:g}l{2 * r:g} {2 * r:g}m0-{2 * r:g}l-{2 * r:g} {2 * r:g}"
        case "warn":
            return f"M{x:g} {y - r:g}v{1.2 * r:g}m0 {0.7 * r:g}v.1"
        case "off":
            return f"M{x - r:g} {y:g}h{2 * r:g}"
    return ""


def _counted(card: Card, square: _Square) -> Iterator[Html]:
    """The number of ids, and a bar for the share that pods hold."""
    yield element("text", f"{card.size:,}", x=f"{square.side // 2}", y=f"{square.side // 2 + 2}")
    edge, width = (square.side - square.middle) // 2, square.middle
    top, height = square.side * 2 // 3, square.side // 8
    yield element("path", d=f"M{edge} {top}h{width}v{height}h-{width}z", class_=card.state)
    if card.held:
        filled = max(1, round(width * card.held / card.size))
        yield element("path", d=f"M{edge} {top}h{filled}v{height}h-{filled}z", class_=f"{card.state} held")


def _fabric(fabric: Fabric) -> Html:
    """The cards in a row: on a common line if all are linked with each other, else with an arc for each pair."""
    width, spans = _STEP * len(fabric.cards), [there - here for here, there in fabric.links]
    height = 14 if fabric.each_to_each else 10 + 9 * max(spans)
    drawn = list(_links(fabric, height))
    for number, card in enumerate(fabric.cards):
        x = number * _STEP + _STEP // 2
        drawn.append(element("circle", cx=f"{x}", cy=f"{height}", r="4"))
        drawn.append(element("text", _number(card), x=f"{x}", y=f"{height + 17}"))
    title = f"{fabric.kind}{', each to each' if fabric.each_to_each else ''}"
    box = f"0 0 {width} {height + 22}"
    shown = element("svg", *drawn, viewBox=box, width=f"{width}", role="img", aria_label=fabric.text())
    return element("div", element("b", title), shown, class_="fabric")


def _links(fabric: Fabric, height: int) -> Iterator[Html]:
    def place(number: int) -> int:
        return number * _STEP + _STEP // 2

    if fabric.each_to_each:
        ends = "".join(f"M{place(number)} {height}v-8" for number in range(len(fabric.cards)))
        yield element("path", d=f"{ends}M{place(0)} {height - 8}H{place(len(fabric.cards) - 1)}", class_="link many")
        return
    by_number: dict[int, list[str]] = {}
    for (here, there), number in fabric.links.items():
        reach, rise = place(there) - place(here), 9 * (there - here)
        by_number.setdefault(number, []).append(f"M{place(here)} {height}a{reach / 2:g} {rise} 0 0 1 {reach} 0")
    for number, arcs in sorted(by_number.items()):
        yield element("path", d="".join(arcs), class_="link many" if number > 1 else "link")


def _number(card: Card) -> str:
    """`3` of GPU 3, `83` of 0000:83:00.0."""
    name = card.name.removeprefix("GPU ")
    return name.rpartition(":")[0].rpartition(":")[2] if ":" in name else name


def _key(cards: Sequence[Card]) -> Iterator[Html]:
    """What is there, and the signs that occur."""
    if counted := counts(cards):
        yield element("span", counted)
    states = {part.state for card in cards for part in card.parts}
    is_known = all(card.knows_holders for card in cards)
    held = {GOOD: FREE, "held": "held by a pod"} if is_known else {GOOD: UNKNOWN}
    words = {**held, WARN: "warning", OFF: "cordoned", BAD: "Unhealthy", LOST: "lost"}
    for state, word in words.items():
        if state in states | {GOOD, "held"}:
            sign = _sign(state, 7, 7, 3)
            drawn = element("rect", class_="good held" if state == "held" else state)
            mark = joined(drawn, element("path", d=sign, class_="sign cell") if sign else "")
            yield element("span", element("svg", mark, aria_hidden="true"), word)
