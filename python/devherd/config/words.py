"""pydantic's errors in our words: what is wrong with which key, the value echoed, and what to do. Pure."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from devherd.config.keys import section_of
from devherd.config.meant import meant, quoted
from devherd.config.model import Config
from devherd.config.problem import Location, Problem, WrongValueError, duration, echo
from devherd.config.selectors import Selector

_CHOICE = re.compile(r"'([^']*)'|(True|False)")
_OF_A_KEY = "[key]"
"""What pydantic adds to the place of a mapping's key."""
_DIGITS = re.compile(r"-?\d+")


def problems_of(error: ValidationError, root: type[BaseModel] = Config) -> Iterator[Problem]:
    """One each; `root` is what the file should have been."""
    for detail in error.errors(include_url=False):
        location: Location = tuple(part for part in detail["loc"] if part != _OF_A_KEY)
        known = _KNOWN.get(detail["type"])
        if detail["input"] is None and detail["type"] != "extra_forbidden":
            yield Problem(location, "there is no value", "give one, or remove the key")
        elif known is not None:
            yield known(location, detail["input"], detail.get("ctx", {}) | {"root": root})
        else:
            yield Problem(location, f"{echo(detail['input'])} is refused: {detail['msg']}", "correct it")


def _wrong_value(location: Location, _value: Any, context: Mapping[str, Any]) -> Problem:
    error = context["error"]
    if isinstance(error, WrongValueError):
        return Problem((*location, *error.at), error.what, error.cure)
    return Problem(location, str(error), "correct it")


def _unknown_key(location: Location, _value: Any, context: Mapping[str, Any]) -> Problem:
    *above, key = location
    return Problem(
        (*above, str(key)), "unknown key", meant(str(key), _keys_of(context["root"], tuple(above))), at_key=True
    )


def _missing(location: Location, _value: Any, _context: Mapping[str, Any]) -> Problem:
    return Problem(location[:-1], f"`{location[-1]}` is missing", f"add `{location[-1]}`")


def _no_section(location: Location, value: Any, context: Mapping[str, Any]) -> Problem:
    selects = issubclass(_section_at(context["root"], location) or Config, Selector)
    cure = (
        "give it facts, like `{vendor: nvidia}`"
        if selects
        else f"give it keys: {quoted(_keys_of(context['root'], location))}"
    )
    return Problem(location, f"{echo(value)} is not a section", cure)


def _no_list(location: Location, value: Any, _context: Mapping[str, Any]) -> Problem:
    return Problem(location, f"{echo(value)} is not a list", "begin each item with `- ` on a line of its own")


def _too_short(location: Location, _value: Any, _context: Mapping[str, Any]) -> Problem:
    return Problem(location, "the list is empty", f"give one item at least, or remove {_its_key(location)}")


def _no_choice(location: Location, value: Any, context: Mapping[str, Any]) -> Problem:
    choices = [text or written.lower() for text, written in _CHOICE.findall(context["expected"])]
    if isinstance(value, str) and value in {"true", "false"} and value in choices:
        return Problem(location, f"{echo(value)} is a text", "write it without quotes")
    return Problem(location, f"{echo(value)} is not one of {quoted(choices)}", _nearest(value, choices))


def _nearest(value: Any, choices: list[str]) -> str:
    yes_or_no = {"yes": "true", "on": "true", "no": "false", "off": "false"}
    written = yes_or_no.get(str(value).lower(), str(value))
    if written in choices:
        return f"write `{written}`"
    found = meant(written, choices)
    return found if found.endswith("?") else "choose one of them"


def _no_switch(location: Location, value: Any, _context: Mapping[str, Any]) -> Problem:
    return Problem(location, f"{echo(value)} is neither true nor false", "write `true` or `false`")


def _no_number(location: Location, value: Any, _context: Mapping[str, Any]) -> Problem:
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        return Problem(location, f"{echo(value)} is a text", "write the number without quotes")
    return Problem(location, f"{echo(value)} is not a whole number", "write one, like `4`")


def _no_text(location: Location, value: Any, _context: Mapping[str, Any]) -> Problem:
    cure = "give a text" if isinstance(value, dict | list) else "put it in quotes"
    return Problem(location, f"{echo(value)} is not a text", cure)


def _too_small(location: Location, value: Any, context: Mapping[str, Any]) -> Problem:
    too = "short" if isinstance(context["ge"], float) else "small"
    return Problem(location, f"{_number(value)} is too {too}", f"give at least {_number(context['ge'])}")


def _too_large(location: Location, value: Any, context: Mapping[str, Any]) -> Problem:
    too = "long" if isinstance(context["le"], float) else "large"
    return Problem(location, f"{_number(value)} is too {too}", f"give at most {_number(context['le'])}")


def _number(number: Any) -> str:
    """Those with a fraction are durations."""
    return f"`{duration(number)}`" if isinstance(number, float) else echo(number)


def _its_key(location: Location) -> str:
    return next((f"`{part}`" for part in reversed(location) if isinstance(part, str)), "it")


def _keys_of(root: type[BaseModel], location: Location) -> list[str]:
    model = _section_at(root, location)
    return [field.alias or name for name, field in model.model_fields.items()] if model else []


def _section_at(root: type[BaseModel], location: Location) -> type[BaseModel] | None:
    model: type[BaseModel] | None = root
    for part in location:
        if isinstance(part, str):
            model = section_of(model.model_fields[part]) if model and part in model.model_fields else None
    return model


_KNOWN: dict[str, Callable[[Location, Any, Mapping[str, Any]], Problem]] = {
    "value_error": _wrong_value,
    "extra_forbidden": _unknown_key,
    "invalid_key": _unknown_key,
    "missing": _missing,
    "model_type": _no_section,
    "model_attributes_type": _no_section,
    "dict_type": _no_section,
    "list_type": _no_list,
    "too_short": _too_short,
    "literal_error": _no_choice,
    "bool_type": _no_switch,
    "bool_parsing": _no_switch,
    "int_type": _no_number,
    "int_parsing": _no_number,
    "string_type": _no_text,
    "greater_than_equal": _too_small,
    "less_than_equal": _too_large,
}
