"""A table that a screen reader can find its way in, and that a keyboard can scroll where it is too wide."""

from collections.abc import Iterable, Sequence

from devherd.exporter.status_page.html import Html, element, joined

MOST_ROWS = 100
"""The inventory's JSON, `devherd status` and `devherd events` have all."""


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """The first cell of a row names it. Where there is no room for columns, each cell says what it is."""
    shown = [_row(head[1:], first, rest) for first, *rest in rows]
    more = len(shown) - MOST_ROWS
    return joined(
        element(
            "div",
            element(
                "table",
                element("caption", caption),
                element("thead", element("tr", *(element("th", heading, scope="col") for heading in head))),
                element("tbody", *shown[:MOST_ROWS]),
            ),
            class_="scroll",
            tabindex="0",
            role="region",
            aria_label=caption,
        ),
        element("p", f"and {more} more") if more > 0 else "",
    )


def _row(head: Sequence[str], first: str, rest: Iterable[str]) -> Html:
    cells = (element("td", cell, data_label=label) for label, cell in zip(head, rest, strict=True))
    return element("tr", element("th", first, scope="row"), *cells)
