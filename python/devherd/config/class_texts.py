"""The texts of a device class: templates, patterns of names, paths, ids, names."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from devherd.config.errors import WrongValueError, echo
from devherd.config.types import Form, spelt
from devherd.config.yaml_file import WrittenFloat, WrittenInt

PLACE = re.compile(r"\{([^{}]*)\}")
_FACT_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_READABLE = ("/sys/", "/proc/driver/")
"""Where a class may read. Opening a node in /dev can change a device."""


def _text(value: Any) -> Any:
    """A text, also where YAML reads a number: its digits as they are written."""
    if isinstance(value, WrittenInt | WrittenFloat):
        return value.text
    if isinstance(value, bool | int | float):
        raise WrongValueError(f"{echo(value)} is not a text", "put it in quotes")
    return value


def places_in(template: str) -> list[str]:
    """The names between braces of a template, in their order."""
    return PLACE.findall(template)


def _template(text: str) -> str:
    if {"{", "}"} & set(PLACE.sub("", text)) or any(not _FACT_NAME.fullmatch(name) for name in places_in(text)):
        raise WrongValueError(f"{echo(text)} is not a template", "name facts in braces, like `accel{n}`")
    return text


def _pattern(text: str) -> str:
    _template(text)
    if "}{" in text:
        raise WrongValueError(f"two parts of {echo(text)} touch", "leave one out: each is all digits that follow")
    if not text or text.startswith("/") or "*" in text:
        raise WrongValueError(
            f"{echo(text)} is not a pattern", "write the name with its numbers as parts, like `accel{n}`"
        )
    return text


def _has_odd_parts(path: str) -> bool:
    """Whether a part of a path is empty, `.` or `..`."""
    return not {"", ".", ".."}.isdisjoint(path.split("/"))


def _below(text: str) -> str:
    """A path below an entry."""
    if _has_odd_parts(text):
        cure = "write it like `device/serial`, without `..`, `.` and empty parts"
        raise WrongValueError(f"{echo(text)} is not a path below the entry", cure)
    return text


def _read(text: str) -> str:
    """A path below an entry, or an absolute one where a class may read."""
    if ".." in _template(text).split("/"):
        raise WrongValueError(f"{echo(text)} contains `..`", "`above` reads a file of an ancestor")
    if not text.startswith("/"):
        return _below(text)
    if not text.startswith(_READABLE):
        cure = f"a class reads below {' and '.join(place.rstrip('/') for place in _READABLE)} alone"
        raise WrongValueError(f"{echo(text)} is elsewhere", cure)
    if _has_odd_parts(text.removeprefix("/")):
        cure = "write it like `/sys/module/acme/version`, without `.` and empty parts"
        raise WrongValueError(f"{echo(text)} is not the path of a file", cure)
    return text


def _node(text: str) -> str:
    path = _template(text).removeprefix("/dev/")
    if _has_odd_parts(path):
        raise WrongValueError(f"{echo(text)} is not below /dev", "give its path without `/dev/`, like `vfio/{group}`")
    return path


def _pci_id(value: Any) -> Any:
    text = _text(value)
    if not isinstance(text, str) or not re.fullmatch(r"(0[xX])?[0-9a-fA-F]{1,4}", text):
        raise WrongValueError(f"{echo(value)} is not a PCI id", "write it in quotes, like `'0x8086'`")
    return f"0x{text.lower().removeprefix('0x').zfill(4)}"


def _one_or_more(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


Word = Annotated[str, BeforeValidator(_text, json_schema_input_type=str | float)]
Template = Annotated[Word, AfterValidator(_template), Form("template")]
Pattern = Annotated[Word, AfterValidator(_pattern), Form("pattern")]
FileBelow = Annotated[Word, AfterValidator(_below), Form("path below the entry")]
Readable = Annotated[Word, AfterValidator(_read), Form("template of a path")]
NodePath = Annotated[Word, AfterValidator(_node), Form("template of a path below /dev")]
PciIds = Annotated[
    list[Annotated[str, BeforeValidator(_pci_id, json_schema_input_type=str | float)]],
    BeforeValidator(_one_or_more, json_schema_input_type=str | float | list[str | float]),
    Form("PCI id, or list of PCI ids"),
]
Drivers = Annotated[
    list[Annotated[Word, spelt("[^./][^/]*", "the name of a driver", "write it like `vfio-pci`")]],
    BeforeValidator(_one_or_more, json_schema_input_type=str | list[str]),
    Form("name, or list of names"),
]
_SYSFS_NAME = spelt(r"(?!\.)[\w.:-]{1,60}", "a directory of sysfs", "write it like `accel`, without `/sys/class/`")
Subsystem = Annotated[Word, _SYSFS_NAME, Form("name")]
FactName = Annotated[
    str,
    spelt(_FACT_NAME.pattern, "the name of a fact", "write it like `serial`: lower case, digits and `_`"),
    Form("name"),
]
ClassName = Annotated[
    str,
    spelt(
        "[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?",
        "the name of a class: 1 to 40 lower-case letters, digits and `-`",
        "write it like `acme-widget`",
    ),
    Form("name"),
]
Reason = Annotated[
    str,
    spelt(
        "(?=.{1,40}$)[a-z0-9]+(-[a-z0-9]+)*", "a reason", "write it like `widget-broken`: lower case, digits and `-`"
    ),
    Form("name"),
]
Variable = Annotated[
    str, spelt("[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable", "write it like `ACME_WIDGET`")
]
