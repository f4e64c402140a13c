"""Values of the configuration file (durations, addresses, names, ids), each with an error that shows the right form."""

import ipaddress
import re
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from devherd import resource_name
from devherd.child import SILENCE_LIMIT_SECONDS
from devherd.config.form import Form
from devherd.config.problem import WrongValueError, duration, echo
from devherd.config.strict_yaml import WrittenInt
from devherd.settings import UNIX

LONGEST_SOCKET_PATH = 107
"""Of `sun_path`, unix(7), with the byte that ends it."""
LONGEST_PROBE_SECONDS = SILENCE_LIMIT_SECONDS / 2
_SHORTEST_SECONDS = 0.01
_LONGEST_SECONDS = 31 * 86_400.0
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_TRUTH = dict.fromkeys(("true", "yes", "on", "y"), True) | dict.fromkeys(("false", "no", "off", "n"), False)
"""https://yaml.org/type/bool.html, in lower case."""


def parse_duration(value: Any) -> Any:
    """Seconds from `5s`, `250ms`, `1m30s` or a plain number of seconds."""
    if isinstance(value, str) and _DURATION.fullmatch(value):
        return sum(float(number) * _UNITS[unit] for number, unit in _DURATION_PART.findall(value))
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < inf:
        return float(max(-1, min(value, 2 * _LONGEST_SECONDS)))  # whole numbers may be too large for a float
    raise WrongValueError(f"{echo(value)} is not a duration", "write it like `5s`, `250ms` or `1m30s`")


def _switch(value: Any) -> Any:
    """A truth value in quotes is meant as one, in each spelling that YAML has: templates quote what they put in."""
    return _TRUTH.get(value.lower(), value) if isinstance(value, str) else value


def _well_below_the_silence_limit(seconds: float) -> float:
    if seconds > LONGEST_PROBE_SECONDS:
        raise WrongValueError(
            f"`{duration(seconds)}` is too long: a scanner that is silent for {duration(SILENCE_LIMIT_SECONDS)} is"
            " replaced, and a probe may take half of that",
            f"use at most `{duration(LONGEST_PROBE_SECONDS)}`",
        )
    return seconds


def _valid_resource_name(name: str) -> str:
    reason = resource_name.explain(name)
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
    """A name, an address, nothing (all addresses); IPv6 in brackets."""
    if not text.startswith("["):
        return ":" not in text and text.isprintable() and " " not in text
    try:
        return text.endswith("]") and ipaddress.ip_address(text[1:-1]).version == 6
    except ValueError:
        return False


def _usable_path(path: Any) -> Any:
    if isinstance(path, str) and (not path or "\0" in path):
        raise WrongValueError(
            "a path cannot be empty" if not path else "a path cannot contain a NUL character",
            "start it with `/`, or leave the key out",
        )
    return path


def _absolute_path(path: Any) -> Any:
    """Where it is wherever devherd is started: `run`, `~/run` and `${HOME}/run` would be directories of these names."""
    _usable_path(path)
    if not isinstance(path, str | Path) or not Path(path).is_absolute():
        raise WrongValueError(f"{echo(path)} is not an absolute path", "start it with `/`")
    return path


def _host_path(path: Path) -> Path:
    if ".." in path.parts:
        raise WrongValueError(f"{echo(path)} contains `..`", "give the path without it")
    return path


def _monitor(value: Any) -> Any:
    """Where a vendor's monitor listens."""
    if value in ("auto", False):
        return value
    if value is True or not str(value).startswith("/"):
        raise WrongValueError(f"{echo(value)} is not an absolute path", "choose from `auto`, `false` and a socket")
    return _host_path(Path(_absolute_path(value)))


def _permissions(text: str) -> str:
    if not text:
        return "mrw"  # as generic-device-plugin has it
    if set(text) - set("rwm") or len(set(text)) < len(text):
        raise WrongValueError(f"{echo(text)} are not permissions", "use `r`, `w` and `m`, each at most once, like `rw`")
    return text


def _hexadecimal(value: Any) -> Any:
    """Ids of USB and PCI are hexadecimal; YAML reads an unquoted 7523 as a number, whose digits are what was meant."""
    text = _as_written(value).lower().removeprefix("0x")
    if isinstance(value, bool) or not re.fullmatch(r"[0-9a-f]{1,4}", text):
        raise WrongValueError(
            f"{echo(value)} is not the id of a vendor or a product", "use up to four hexadecimal digits, like `0403`"
        )
    return text.zfill(4)


def _patterns(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(pattern, str | int | bool) for pattern in values):
        raise WrongValueError(
            f"{echo(values[0] if values else value)} is not a glob", "give a glob like `*H200*`, or a list of globs"
        )
    return [_as_written(pattern) for pattern in values]


def _as_written(value: Any) -> str:
    return value.text if isinstance(value, WrittenInt) else str(value)


def spelt(pattern: str, what: str, cure: str) -> AfterValidator:
    """A text that must have a form: `what` completes "`x` is not …"."""

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
    Field(ge=_SHORTEST_SECONDS, le=_LONGEST_SECONDS, allow_inf_nan=False, json_schema_extra={"examples": ["5s"]}),
    Form("duration"),
]
Period = Annotated[
    float,
    BeforeValidator(parse_duration, json_schema_input_type=str | float),
    Field(ge=0.0, le=_LONGEST_SECONDS, allow_inf_nan=False, json_schema_extra={"examples": ["30s"]}),
    Form("duration"),
]
ProbeTimeout = Annotated[
    Duration,
    AfterValidator(_well_below_the_silence_limit),
    Field(json_schema_extra={"examples": ["2s"], "maximum": LONGEST_PROBE_SECONDS}),
]
Patterns = Annotated[
    list[str],
    BeforeValidator(_patterns, json_schema_input_type=str | int | bool | list[str | int | bool]),
    Form("glob, or list of globs"),
]
PatternsOrAny = Annotated[
    list[str],
    BeforeValidator(
        lambda value: value if value == [] else _patterns(value),
        json_schema_input_type=str | int | bool | list[str | int | bool],
    ),
    Form("glob, or list of globs"),
]
ResourceName = Annotated[str, AfterValidator(_valid_resource_name), Form("resource name")]
Listen = Annotated[str, AfterValidator(_valid_listen), Form("ADDRESS:PORT")]
UsablePath = Annotated[Path, BeforeValidator(_usable_path, json_schema_input_type=str)]
AbsolutePath = Annotated[Path, BeforeValidator(_absolute_path, json_schema_input_type=str), Form("absolute path")]
HostPath = Annotated[AbsolutePath, AfterValidator(_host_path), Form("absolute path on the host")]
HostPathText = Annotated[
    str,
    BeforeValidator(_absolute_path, json_schema_input_type=str),
    AfterValidator(lambda path: str(_host_path(Path(path)))),
    Form("absolute path on the host"),
]
MountedPath = Annotated[str, _stripped(lambda path: str(_absolute_path(path))), Form("absolute path")]
OptionalPath = Annotated[
    str, _stripped(lambda path: str(_absolute_path(path)) if path else path), Form("absolute path")
]
MonitorSocket = Annotated[
    Path | str | bool,
    BeforeValidator(_monitor, json_schema_input_type=str | bool),
    Form("`auto`, `false` or an absolute path"),
]
Permissions = Annotated[str, AfterValidator(_permissions), Form("permissions")]
Count = Annotated[int, Field(strict=True)]
Times = Annotated[Count, Field(ge=0), AfterValidator(lambda times: times or 1)]
"""0 is 1, as generic-device-plugin has it."""
HexadecimalId = Annotated[str, BeforeValidator(_hexadecimal, json_schema_input_type=str | int), Form("hexadecimal id")]
