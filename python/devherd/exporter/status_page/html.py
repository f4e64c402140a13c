"""HTML from Python: whatever is not `Html` already is text, and is escaped."""

from html import escape


class Html(str):
    """Text that is HTML."""

    __slots__ = ()


def element(name: str, *content: str, **attributes: str | bool | None) -> Html:
    """An element; `class_` is the attribute `class`, `aria_label` is `aria-label`; None and False are left out."""
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    return Html(f"<{name}{written}>{joined(*content)}</{name}>")


def joined(*content: str) -> Html:
    """One after the other."""
    return Html("".join(each if isinstance(each, Html) else escape(each) for each in content))


def _attribute(key: str, value: str | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(value)}"'
