"""Values of the configuration file (durations, addresses, names, ids), each with an error that shows the right form."""

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from devherd import resource_name

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


def parse_duration(value: Any) -> Any:
    """Seconds from `5s`, `250ms`, `1m30s` or a plain number of seconds."""
    if isinstance(value, str) and _DURATION.fullmatch(value):
        return sum(float(number) * _UNITS[unit] for number, unit in _DURATION_PART.findall(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise ValueError(f"{value!r} is no duration; write it like `5s`, `250ms` or `1m30s`")


def _valid_resource_name(name: str) -> str:
    reason = resource_name.explain(name)
    if reason is not None:
        raise ValueError(reason)
    return name


def _valid_listen(address: str) -> str:
    if address == "":
        return address
    host, separator, port = address.rpartition(":")
    if (
        not separator
        or not port.isdecimal()
        or not 0 <= int(port) < 65536
        or (":" in host and not host.startswith("["))
    ):
        raise ValueError(
            f"{address!r} is no ADDRESS:PORT; write it like `127.0.0.1:9478`, or leave it empty to switch it off"
        )
    return address


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError(f"{str(path)!r} is no absolute path of the host")
    return path


def _hexadecimal(value: Any) -> Any:
    """USB ids are hexadecimal; YAML reads an unquoted 7523 as a number, whose digits are what was meant."""
    text = str(value).lower().removeprefix("0x")
    if isinstance(value, bool) or not re.fullmatch(r"[0-9a-f]{1,4}", text):
        raise ValueError(f"{value!r} is no USB id of up to four hexadecimal digits")
    return text.zfill(4)


def _patterns(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(pattern, str | int | bool) for pattern in values):
        raise ValueError("a fact is matched by a glob, or by a list of globs of which one must match")
    return [str(pattern) for pattern in values]


Duration = Annotated[
    float,
    BeforeValidator(parse_duration, json_schema_input_type=str | float),
    Field(gt=0, json_schema_extra={"examples": ["5s"]}),
]
Period = Annotated[
    float,
    BeforeValidator(parse_duration, json_schema_input_type=str | float),
    Field(ge=0, json_schema_extra={"examples": ["5s"]}),
]
Patterns = Annotated[
    list[str], BeforeValidator(_patterns, json_schema_input_type=str | int | bool | list[str | int | bool])
]
ResourceName = Annotated[str, AfterValidator(_valid_resource_name)]
Listen = Annotated[str, AfterValidator(_valid_listen)]
HostPath = Annotated[Path, AfterValidator(_absolute)]
UsbId = Annotated[str, BeforeValidator(_hexadecimal, json_schema_input_type=str | int)]
