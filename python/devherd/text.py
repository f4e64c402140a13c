"""Human-readable amounts, durations and versions; the check of resource names; the variables of several devices."""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from devherd import _native

if TYPE_CHECKING:
    from devherd.proto import spool_pb2

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_PREFIX = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NAME = re.compile(r"(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_PREFIX_LIMIT = 244  # the kubelet checks `requests.<prefix>` against 253
_NAME_LIMIT = 63


def amount(number: int, noun: str) -> str:
    """`1 device`, `22 devices`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


MOST_LINES = 20
"""Limit on the lines of one kind that are printed: nobody reads more."""


def first_lines(lines: Sequence[str], kind: str) -> list[str]:
    """The first lines, and how many more there are: `and 80 more warnings`."""
    more = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], f"and {more} more {kind}"] if more > 0 else list(lines)


def sharing_of(device: "spool_pb2.Device") -> str:
    """How many containers may share a device: `10 shares`, `4 replicas`; empty if it is not shared."""
    shares, replicas = len(device.shares), device.replicas
    if shares and replicas:
        return f"{amount(shares, 'share')} of {amount(replicas, 'replica')}"
    return amount(shares, "share") if shares else amount(replicas, "replica") if replicas else ""


def place(pci_address: str, slot: str, serial: str, port: str = "") -> str:
    """Where a device is: `0000:83:00.0, slot 7, serial 1565023018293`, `USB port 1-2`; unknown parts are left out."""
    parts = (("", pci_address), ("", port), ("slot ", slot), ("serial ", serial))
    return ", ".join(f"{word}{value}" for word, value in parts if value)


def duration(seconds: float) -> str:
    """A length of time in its two largest units: `45 s`, `3 h 12 min`, `2 d 4 h`."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in _UNITS:
        number, left = divmod(left, size)
        if number or (parts and len(parts) < 2):
            parts.append(f"{number} {unit}")
    shown = [part for part in parts[:2] if not part.startswith("0 ")]
    return " ".join(shown) or "0 s"


def is_resource_name(name: str) -> bool:
    """True if the kubelet accepts the name from a device plugin."""
    return resource_name_refusal(name) is None


def resource_name_refusal(name: str) -> str | None:
    """The reason why the kubelet refuses a name; None if it accepts it."""
    prefix, slash, last = name.partition("/")
    if not slash:
        return f"`{name}` is not a resource name: it needs a domain and a `/`, like `example.com/gpu`"
    if "kubernetes.io/" in name:
        return f"`{name}` is not a resource name: domains ending in `kubernetes.io` are the cluster's own"
    if name.startswith("requests."):
        return f"`{name}` is not a resource name: it must not begin with `requests.`"
    if len(prefix) > _PREFIX_LIMIT or not _PREFIX.fullmatch(prefix):
        return (
            f"`{name}` is not a resource name: `{prefix}` is not a domain of at most {_PREFIX_LIMIT} lower-case"
            " letters, digits, `-` and `.`"
        )
    if not 0 < len(last) <= _NAME_LIMIT or not _NAME.fullmatch(last):
        return (
            f"`{name}` is not a resource name: `{last}` is not 1 to {_NAME_LIMIT} letters, digits, `-`, `_` or `.`"
            " that begin and end with a letter or digit"
        )
    return None


def version() -> str:
    """The version of this build."""
    return _native.__version__


UNKNOWN = "unknown"


def revision() -> str:
    """The source revision: `DEVHERD_REVISION` as set in images, otherwise that of this build, or `unknown`."""
    return os.environ.get("DEVHERD_REVISION") or _native.__revision__ or UNKNOWN


def version_text(number: str, known_revision: str) -> str:
    """A version of devherd, with its revision if that is known."""
    return f"devherd {number}" if known_revision in ("", UNKNOWN) else f"devherd {number} ({known_revision})"


def version_line() -> str:
    """The output of `devherd --version`."""
    return version_text(version(), revision())


def joined_variables(variables: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The environment variables of a container with several devices, by name in order; `variables`: those of each.

    Different values of one variable are joined: JSON objects (PCIDEVICE_…_INFO) into one object, others into a list
    with commas (NVIDIA_VISIBLE_DEVICES).
    """
    values: dict[str, dict[str, None]] = {}
    for of_device in variables:
        for name, value in of_device.items():
            values.setdefault(name, {})[value] = None
    return {name: _joined([*values[name]]) for name in sorted(values)}


def _joined(different: Sequence[str]) -> str:
    if len(different) == 1:
        return different[0]
    if all(value.startswith("{") for value in different):
        members = {key: one for value in different for key, one in json.loads(value).items()}
        return json.dumps(members, separators=(",", ":"))
    return ",".join(dict.fromkeys(member for value in different for member in value.split(",") if member))
