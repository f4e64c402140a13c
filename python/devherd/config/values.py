"""Values of the configuration file (durations, addresses, names, ids), each with an error that shows the right form."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from devherd import resource_name
from devherd.child import SILENCE_LIMIT_SECONDS
from devherd.config.strict_yaml import WrittenInt
from devherd.settings import UNIX

LONGEST_SOCKET_PATH = 107
"""Of `sun_path`, unix(7), with the byte that ends it."""
LONGEST_PROBE_SECONDS = SILENCE_LIMIT_SECONDS / 2
_LONGEST_SECONDS = 31 * 86_400.0
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


def parse_duration(value: Any) -> Any:
    """Seconds from `5s`, `250ms`, `1m30s` or a plain number of seconds."""
    if isinstance(value, str) and _DURATION.fullmatch(value):
        return sum(float(number) * _UNITS[unit] for number, unit in _DURATION_PART.findall(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise ValueError(f"{value!r} is not a duration; write it like `5s`, `250ms` or `1m30s`")


def _well_below_the_silence_limit(seconds: float) -> float:
    if seconds > LONGEST_PROBE_SECONDS:
        raise ValueError(
            f"{seconds:g} s is too long: a scanner that is silent for {SILENCE_LIMIT_SECONDS:g} s is replaced, and a"
            f" probe may take half of that; use at most `{LONGEST_PROBE_SECONDS:g}s`"
        )
    return seconds


def _valid_resource_name(name: str) -> str:
    reason = resource_name.explain(name)
    if reason is not None:
        raise ValueError(reason)
    return name


def _valid_listen(text: str) -> str:
    for address in text.split(",") if text else ():
        if address.startswith(UNIX):
            _check_socket_path(address.removeprefix(UNIX))
            continue
        host, separator, port = address.rpartition(":")
        if not separator or not (port.isascii() and port.isdecimal() and int(port) < 65536) or not _is_host(host):
            raise ValueError(
                f"{address!r} is not ADDRESS:PORT; write it like `127.0.0.1:9478`, or leave it empty for no exporter"
            )
    return text


def _check_socket_path(path: str) -> None:
    if not path.startswith("/") or ".." in path.split("/") or path.endswith("/"):
        raise ValueError(f"{UNIX + path!r} is not the path of a socket; write it like `unix:/run/devherd/http.sock`")
    if len(path.encode()) > LONGEST_SOCKET_PATH:
        raise ValueError(f"{UNIX + path!r} is too long: the path of a socket has {LONGEST_SOCKET_PATH} bytes at most")


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
        raise ValueError("a path cannot be empty" if not path else "a path cannot contain a NUL character")
    return path


def _host_path(path: Path) -> Path:
    if not path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{str(path)!r} is not an absolute host path; start it with `/`, without `..`")
    return path


def _host_path_text(text: str) -> str:
    return str(_host_path(Path(text)))


def _permissions(text: str) -> str:
    if not text:
        return "mrw"  # as generic-device-plugin has it
    if set(text) - set("rwm") or len(set(text)) < len(text):
        raise ValueError(f"{text!r} are not permissions; use `r`, `w` and `m`, each at most once, like `rw`")
    return text


def _hexadecimal(value: Any) -> Any:
    """Ids of USB and PCI are hexadecimal; YAML reads an unquoted 7523 as a number, whose digits are what was meant."""
    text = _as_written(value).lower().removeprefix("0x")
    if isinstance(value, bool) or not re.fullmatch(r"[0-9a-f]{1,4}", text):
        raise ValueError(f"{value!r} is not a vendor's or product's id; use up to four hexadecimal digits, like `0403`")
    return text.zfill(4)


def _patterns(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(pattern, str | int | bool) for pattern in values):
        raise ValueError("expected a glob, or a list of globs one of which must match")
    return [_as_written(pattern) for pattern in values]


def _as_written(value: Any) -> str:
    return value.text if isinstance(value, WrittenInt) else str(value)


Duration = Annotated[
    float,
    BeforeValidator(parse_duration, json_schema_input_type=str | float),
    Field(ge=0.01, le=_LONGEST_SECONDS, allow_inf_nan=False, json_schema_extra={"examples": ["5s"]}),
]
Period = Annotated[
    float,
    BeforeValidator(parse_duration, json_schema_input_type=str | float),
    Field(ge=0, le=_LONGEST_SECONDS, allow_inf_nan=False, json_schema_extra={"examples": ["30s"]}),
]
ProbeTimeout = Annotated[
    Duration,
    AfterValidator(_well_below_the_silence_limit),
    Field(json_schema_extra={"examples": ["2s"], "maximum": LONGEST_PROBE_SECONDS}),
]
Patterns = Annotated[
    list[str], BeforeValidator(_patterns, json_schema_input_type=str | int | bool | list[str | int | bool])
]
ResourceName = Annotated[str, AfterValidator(_valid_resource_name)]
Listen = Annotated[str, AfterValidator(_valid_listen)]
UsablePath = Annotated[Path, BeforeValidator(_usable_path, json_schema_input_type=str)]
HostPath = Annotated[UsablePath, AfterValidator(_host_path)]
HostPathText = Annotated[
    str, BeforeValidator(_usable_path, json_schema_input_type=str), AfterValidator(_host_path_text)
]
Permissions = Annotated[str, AfterValidator(_permissions)]
Count = Annotated[int, Field(strict=True)]
Times = Annotated[Count, Field(ge=0), AfterValidator(lambda times: times or 1)]
"""0 is 1, as generic-device-plugin has it."""
HexadecimalId = Annotated[str, BeforeValidator(_hexadecimal, json_schema_input_type=str | int)]
