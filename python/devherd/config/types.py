"""Types of configuration values (durations, addresses, names, ids), each with an error that shows the right form."""

import ipaddress
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args, get_origin

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo

from devherd.config.errors import WrongValueError, duration, echo
from devherd.config.values import LONGEST_SECONDS, absolute_path, kubelet_path, parse_duration, usable_path
from devherd.config.yaml_file import WrittenFloat, WrittenInt
from devherd.settings import UNIX
from devherd.text import resource_name_refusal
from devherd.waits import USUAL_WAITS


@dataclass(frozen=True, slots=True)
class Form:
    """The name of a value's form in documentation: `duration`."""

    name: str


def plain(value: Any, field: FieldInfo | None = None) -> Any:
    """A value of a field as data for YAML and JSON; durations and paths become text."""
    if isinstance(value, float) and field is not None and _is_duration(field):
        return duration(value)
    if isinstance(value, list):
        return [plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value


def as_written(value: Any, field: FieldInfo | None = None) -> str:
    """A value on one line of YAML."""
    return in_yaml(plain(value, field))


def in_yaml(value: Any) -> str:
    """Plain data on one line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")


def _is_duration(field: FieldInfo) -> bool:
    """Whether a field is a duration, also an optional one."""
    metadata = list(field.metadata)
    for kind in get_args(field.annotation):
        if get_origin(kind) is Annotated:
            metadata += get_args(kind)[1:]
    return any(isinstance(each, Form) and each.name == "duration" for each in metadata)


_AS_LIKELY = 0.1
"""A word is also suggested if its similarity is lower than the best one's by at most this."""


def meant(word: str, known: Collection[str]) -> str:
    """The suggestion `did you mean …?`, or all known words if none is similar; ignores case."""
    import difflib  # noqa: PLC0415 - only an error needs it

    spelt = {each.lower(): each for each in known}
    close = difflib.get_close_matches(word.lower(), spelt, n=3)

    def likeness(known: str) -> float:
        return difflib.SequenceMatcher(None, known, word.lower()).ratio()

    best = [spelt[each] for each in close if likeness(each) > likeness(close[0]) - _AS_LIKELY]
    return f"did you mean {_either(best)}?" if best else f"choose from {quoted(known)}"


def quoted(words: Collection[str]) -> str:
    """The words in backticks, separated by commas."""
    return ", ".join(f"`{word}`" for word in words)


def _either(words: list[str]) -> str:
    *others, last = (f"`{word}`" for word in words)
    return f"{', '.join(others)} or {last}" if others else last


class Section(BaseModel):
    """A section of the file. Unknown keys are errors; an optional key without a value has its default; it is immutable.

    The docstrings of sections and of their fields are shown to users (describe.py): in the schema, in `devherd config
    sample`, in docs/configuration.md. The configuration in force has a record for each section: `sections.py`,
    generated.
    """

    file_only: ClassVar[frozenset[str]] = frozenset()
    """Keys that the configuration in force lacks: it has values derived from them instead."""
    never_empty: ClassVar[frozenset[str]] = frozenset()
    """Optional keys that must have a value where they are written: without one they would mean everything."""
    derived: ClassVar[tuple[str, ...]] = ()
    """Properties that the configuration in force has in addition to the keys."""

    not_served: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """Keys that are none yet: the problem and the cure."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _without_empty_keys(cls, content: Any) -> Any:
        """Drop optional keys without a value: everything below `vendors:` may be commented out."""
        if not isinstance(content, dict):
            return content
        optional = {
            name for key, field in cls.model_fields.items() if not field.is_required() for name in (key, field.alias)
        } - cls.never_empty
        return {key: value for key, value in content.items() if value is not None or key not in optional}


LONGEST_SOCKET_PATH = 107
"""In bytes: `sun_path` of unix(7) has 108, one of them for the byte that ends it."""
LONGEST_PROBE_SECONDS = USUAL_WAITS.silence / 2
_SHORTEST_SECONDS = 0.01
_TRUTH = dict.fromkeys(("true", "yes", "on", "y"), True) | dict.fromkeys(("false", "no", "off", "n"), False)
"""https://yaml.org/type/bool.html, in lower case."""


def _switch(value: Any) -> Any:
    """Accept truth values in quotes, in each spelling of YAML: templates quote the values that they insert."""
    return _TRUTH.get(value.lower(), value) if isinstance(value, str) else value


def _well_below_the_silence_limit(seconds: float) -> float:
    if seconds > LONGEST_PROBE_SECONDS:
        raise WrongValueError(
            f"`{duration(seconds)}` is too long: a scanner that is silent for {duration(USUAL_WAITS.silence)} is"
            " replaced, and a probe may take half of that",
            f"use at most `{duration(LONGEST_PROBE_SECONDS)}`",
        )
    return seconds


def _valid_resource_name(name: str) -> str:
    reason = resource_name_refusal(name)
    if reason is not None:
        what, _, why = reason.partition(": ")
        raise WrongValueError(what, why)
    return name


def _valid_listen(text: str) -> str:
    for address in text.split(",") if text else ():
        if address.startswith(UNIX):
            _check_socket_path(address.removeprefix(UNIX))
            continue
        host, separator, port = address.rpartition(":")
        if not separator or not (port.isascii() and port.isdecimal() and int(port) < 65536) or not _is_host(host):
            raise WrongValueError(
                f"{echo(address)} is not an ADDRESS:PORT",
                "write it like `127.0.0.1:9478`, or leave it empty for no exporter",
            )
    return text


def _check_socket_path(path: str) -> None:
    if not path.startswith("/") or ".." in path.split("/") or path.endswith("/"):
        raise WrongValueError(
            f"{echo(UNIX + path)} is not the path of a socket", "write it like `unix:/run/devherd-http/http.sock`"
        )
    if len(path.encode()) > LONGEST_SOCKET_PATH:
        raise WrongValueError(
            f"{echo(UNIX + path)} is too long", f"give the path of a socket at most {LONGEST_SOCKET_PATH} bytes"
        )


def _is_host(text: str) -> bool:
    """Whether a text is a host: a name, an address, or empty for all addresses; IPv6 in brackets."""
    if not text.startswith("["):
        return ":" not in text and text.isprintable() and " " not in text
    try:
        return text.endswith("]") and ipaddress.ip_address(text[1:-1]).version == 6
    except ValueError:
        return False


def _host_path(path: Path) -> Path:
    if ".." in path.parts:
        raise WrongValueError(f"{echo(path)} contains `..`", "give the path without it")
    return path


def _monitor(value: Any) -> Any:
    """Validate the socket of a vendor's monitor: `auto`, false or an absolute path."""
    if value in ("auto", False):
        return value
    if value is True or not str(value).startswith("/"):
        raise WrongValueError(f"{echo(value)} is not an absolute path", "choose from `auto`, `false` and a socket")
    return _host_path(Path(absolute_path(value)))


def _without_leading_zeros(value: Any) -> Any:
    """Refuse 010, which YAML 1.1 reads as 8 and YAML 1.2 as 10."""
    if isinstance(value, WrittenInt) and re.match(r"[-+]?0\d", value.text):
        digits = value.text.lstrip("+-0") or "0"
        raise WrongValueError(f"`{value.text}` begins with 0: YAML may read it as octal", f"write `{digits}`")
    return value


def _permissions(text: str) -> str:
    if not text:
        return "mrw"  # as in generic-device-plugin
    if set(text) - set("rwm") or len(set(text)) < len(text):
        raise WrongValueError(f"{echo(text)} are not permissions", "use `r`, `w` and `m`, each at most once, like `rw`")
    return text


def _absolute_program(command: list[str]) -> list[str]:
    if not Path(command[0]).is_absolute():
        raise WrongValueError(
            f"{echo(command[0])} is not an absolute path, and no program is searched for",
            "give the path of the program",
            at=(0,),
        )
    return command


def _hexadecimal(value: Any) -> Any:
    """Validate a USB or PCI id. YAML reads an unquoted 7523 as a number; its digits are taken as hexadecimal."""
    text = _as_written(value).lower().removeprefix("0x")
    if isinstance(value, bool) or not re.fullmatch(r"[0-9a-f]{1,4}", text):
        raise WrongValueError(
            f"{echo(value)} is not the id of a vendor or a product", "use up to four hexadecimal digits, like `0403`"
        )
    return text.zfill(4)


def _patterns(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(pattern, str | int | bool | WrittenFloat) for pattern in values):
        raise WrongValueError(
            f"{echo(values[0] if values else value)} is not a glob", "give a glob like `*H200*`, or a list of globs"
        )
    return [_as_written(pattern) for pattern in values]


def _as_written(value: Any) -> str:
    return value.text if isinstance(value, WrittenInt | WrittenFloat) else str(value)


def spelt(pattern: str, what: str, cure: str) -> AfterValidator:
    """A validator of texts that must match `pattern`; `what` completes "`x` is not …"."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise WrongValueError(f"{echo(text)} is not {what}", cure)
        return text

    return AfterValidator(check)


def _stripped(then: Callable[[str], str]) -> BeforeValidator:
    return BeforeValidator(
        lambda text: then(text.strip()) if isinstance(text, str) else text, json_schema_input_type=str
    )


Switch = Annotated[bool, Field(strict=True), BeforeValidator(_switch)]
Duration = Annotated[
    float,
    BeforeValidator(parse_duration, json_schema_input_type=str | float),
    Field(ge=_SHORTEST_SECONDS, le=LONGEST_SECONDS, allow_inf_nan=False, json_schema_extra={"examples": ["5s"]}),
    Form("duration"),
]
Period = Annotated[
    float,
    BeforeValidator(parse_duration, json_schema_input_type=str | float),
    Field(ge=0.0, le=LONGEST_SECONDS, allow_inf_nan=False, json_schema_extra={"examples": ["30s"]}),
    Form("duration"),
]
ProbeTimeout = Annotated[
    Duration,
    AfterValidator(_well_below_the_silence_limit),
    Field(json_schema_extra={"examples": ["2s"], "maximum": LONGEST_PROBE_SECONDS}),
]
Patterns = Annotated[
    list[str],
    BeforeValidator(_patterns, json_schema_input_type=str | float | bool | list[str | float | bool]),
    Form("glob, or list of globs"),
]
PatternsOrAny = Annotated[
    list[str],
    BeforeValidator(
        lambda value: value if value == [] else _patterns(value),
        json_schema_input_type=str | float | bool | list[str | float | bool],
    ),
    Form("glob, or list of globs"),
]
ResourceName = Annotated[str, AfterValidator(_valid_resource_name), Form("resource name")]
Listen = Annotated[str, AfterValidator(_valid_listen), Form("ADDRESS:PORT")]
UsablePath = Annotated[Path, BeforeValidator(usable_path, json_schema_input_type=str)]
AbsolutePath = Annotated[Path, BeforeValidator(absolute_path, json_schema_input_type=str), Form("absolute path")]
KubeletPath = Annotated[Path, BeforeValidator(kubelet_path, json_schema_input_type=str), Form("absolute path")]
HostPath = Annotated[AbsolutePath, AfterValidator(_host_path), Form("absolute path on the host")]
HostPathText = Annotated[
    str,
    BeforeValidator(absolute_path, json_schema_input_type=str),
    AfterValidator(lambda path: str(_host_path(Path(path)))),
    Form("absolute path on the host"),
]
MountedPath = Annotated[str, _stripped(lambda path: str(absolute_path(path))), Form("absolute path")]
OptionalPath = Annotated[str, _stripped(lambda path: str(absolute_path(path)) if path else path), Form("absolute path")]
MonitorSocket = Annotated[
    Path | str | bool,
    BeforeValidator(_monitor, json_schema_input_type=str | bool),
    Form("`auto`, `false` or an absolute path"),
]
Command = Annotated[list[str], Field(min_length=1), AfterValidator(_absolute_program)]
"""A program with its arguments."""
Permissions = Annotated[str, AfterValidator(_permissions), Form("permissions")]
Count = Annotated[int, Field(strict=True), BeforeValidator(_without_leading_zeros)]
Times = Annotated[Count, Field(ge=0), AfterValidator(lambda times: times or 1)]
"""0 means 1, as in generic-device-plugin."""
HexadecimalId = Annotated[str, BeforeValidator(_hexadecimal, json_schema_input_type=str | int), Form("hexadecimal id")]
