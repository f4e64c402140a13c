"""Builds HTML, escaping every string that is not `Html`; also tables for screen readers and keyboards."""

import re
from collections.abc import Iterable, Sequence
from html import escape

_CODE = re.compile(r"(?:(?<!\S)|(?<=\s\())`([^`\n]+)`")
"""A command or key in a text, after a blank or an opening bracket: a name has no blank, and stays as it is."""


class Html(str):
    """A string that is HTML already."""

    __slots__ = ()


def element(name: str, *content: str, **attributes: str | bool | None) -> Html:
    """An element; `class_` is the attribute `class`, `aria_label` is `aria-label`; None and False are left out."""
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    return Html(f"<{name}{written}>{joined(*content)}</{name}>")


def joined(*content: str) -> Html:
    """Concatenate strings; those that are not Html are escaped, and what is between two backticks becomes code."""
    return Html("".join(each if isinstance(each, Html) else _written(each) for each in content))


def _written(text: str) -> str:
    escaped = escape(text)
    return _CODE.sub(r"<code>\1</code>", escaped) if "`" in text else escaped


def _attribute(key: str, value: str | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(value)}"'


MOST_ROWS = 100
"""Limit of rows; the inventory's JSON, `devherd status` and `devherd events` have all."""


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """A table; the first cell of a row is its heading. On narrow screens each cell shows its label (`data-label`)."""
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
