"""Values in the forms of resource.k8s.io/v1: versions, quantities, names. Pure."""

import re
from fractions import Fraction

MOST_DEVICES = 64
"""Devices of a slice, of which one may have a taint: 128 without. A slice that is cut at 128 is cut anew at a taint."""
MOST_ATTRIBUTES = 32
"""Attributes and capacities of a device together."""
MOST_TAINTS = 16
LONGEST_NAME = 32
"""Characters of an attribute's name, without a domain."""
LONGEST_TEXT = 64
"""Bytes of a string or version."""
LONGEST_LABEL = 63

_ATTRIBUTE_NAME = re.compile(r"(?:resource\.kubernetes\.io/)?[A-Za-z_][A-Za-z0-9_]{0,31}")
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_MORE = r"(?:\.(\d{1,20}+))?+"
_NUMBERS = re.compile(rf"(\d{{1,20}}+){_MORE}{_MORE}(?P<rest>[.+-].*)?", re.ASCII | re.DOTALL)
"""A number of more digits is larger than `_LARGEST`, or has zeros that no version has."""
_PRE_RELEASE = r"-(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*"
_BUILD = r"\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*"
_SUFFIX = re.compile(rf"(?:{_PRE_RELEASE})?(?:{_BUILD})?", re.ASCII)
_LARGEST = 2**64 - 1
"""Of a number in a version: the API server's CEL reads it as 64 bits."""
_QUANTITY = re.compile(
    r"([+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40}))(?:[eE]([+-]?\d{1,2})|([numkMGTPE]|[KMGTPE]i))?", re.ASCII
)
"""As far as the API server takes them: https://github.com/kubernetes/apimachinery/blob/v0.37.2/pkg/api/resource/"""
_BINARY, _DECIMAL = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), ("", "k", "M", "G", "T", "P", "E")

_SIZES = {
    **{suffix: Fraction(1, 1000**power) for power, suffix in enumerate("mun", 1)},
    **{suffix: Fraction(1000**power) for power, suffix in enumerate(_DECIMAL)},
    **{suffix: Fraction(1024**power) for power, suffix in enumerate(_BINARY)},
}


def semver(text: str) -> str | None:
    """The version by semver 2.0.0: `8.0` is 8.0.0, `570.195.03` is 570.195.3; None if the text is no version.

    A fourth number and what follows it are dropped, as AMD's driver does.
    """
    parts = _NUMBERS.fullmatch(text.strip())
    if parts is None:
        return None
    numbers = [int(parts[place] or 0) for place in (1, 2, 3)]
    if max(numbers) > _LARGEST:
        return None
    rest = parts["rest"] or ""
    made = ".".join(map(str, numbers)) + (rest if _SUFFIX.fullmatch(rest) else "")
    if len(made) > LONGEST_TEXT:
        made = ".".join(map(str, numbers))
    return made if len(made) <= LONGEST_TEXT else None


def quantity(number: int, *, is_binary: bool) -> str:
    """A quantity as Go writes it in its canonical form: `80Gi`, `1k`; a binary one below 1024 is written decimal.

    https://github.com/kubernetes/apimachinery/blob/v0.37.2/pkg/api/resource/quantity.go (`CanonicalizeBytes`)
    """
    base, suffixes = (1024, _BINARY) if is_binary and number >= 1024 else (1000, _DECIMAL)
    size = 0
    while number and not number % base and size + 1 < len(suffixes):
        number //= base
        size += 1
    return f"{number}{suffixes[size]}"


def number_in(quantity: str) -> Fraction | None:
    """The value of a quantity; None if the text is none, or an absurd one."""
    parts = _QUANTITY.fullmatch(quantity)
    if parts is None:
        return None
    digits, exponent, suffix = parts.groups()
    return Fraction(digits) * (Fraction(10) ** int(exponent) if exponent else _SIZES[suffix or ""])


def is_label(name: str) -> bool:
    """Whether a device may have this name: a DNS label."""
    return _LABEL.fullmatch(name) is not None


def is_attribute_name(name: str) -> bool:
    """Whether an attribute or a capacity may have this name; a domain of one's own is none: see `__init__`."""
    return _ATTRIBUTE_NAME.fullmatch(name) is not None


def label(text: str) -> str:
    """The text as a DNS label, without a limit of length: lower case, `-` for all else."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def subdomain(text: str) -> str:
    """The text as a DNS subdomain of at most 253 characters: lower case, `-` for all else but dots."""
    parts = (re.sub(r"[^a-z0-9]+", "-", part).strip("-") for part in text.lower().split("."))
    return ".".join(filter(None, parts))[:253].rstrip("-.")


def taint_key(reason: str) -> str:
    """The key of the taint for a reason: a name of at most 63 characters below devherd.io."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", reason)[:63].strip("-._")
    return f"devherd.io/{name or 'unhealthy'}"
