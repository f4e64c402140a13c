"""Lines of an external program or file as findings. Pure."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from devherd.proto import health_pb2
from devherd.reasons.registry import EXTERNAL

LONGEST_LINE = 4096
MOST_FINDINGS = 1000
LONGEST_DETAIL = 200
_LONGEST_WORD = 64
_PARTS = {"pci": "pci_address", "uuid": "uuid", "device": "device", "card": "card", "vendor": "vendor"}
_WORDS = {"reason", "complete", "failed", "hello", "alive"}
"""The keys of the protocol; each line has exactly one of them."""
_STATES = {"standing", "raised", "cleared", "mentioned"}
_PCI_ADDRESS = re.compile(r"(?:(?P<domain>[0-9a-f]{1,8}):)?(?P<slot>[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?)")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]+")

Key = tuple[bytes, str]
"""A serialized target, and the program's own word for the problem."""


class LineError(ValueError):
    """A line cannot be used; the text is the reason."""


@dataclass(slots=True)
class Report:
    """The active findings of a program or file."""

    origin: str
    """The program or file."""
    findings: dict[Key, health_pb2.Finding] = field(default_factory=dict)
    evidence: dict[bytes, health_pb2.Evidence] = field(default_factory=dict)
    """What ends events, by serialized target; only some sources have any."""
    failed: str = ""
    """Why the program or file cannot report at present; empty while it can."""
    max_age: float | None = None
    """Longest silence in seconds that the program has announced; None if it has not."""
    errors: list[str] = field(default_factory=list)
    """Defects of reports that still count."""
    _repeated: set[Key] = field(default_factory=set)
    """Findings reported since the last `complete`."""

    def take(self, line: bytes) -> None:
        """Apply one line. Raises LineError."""
        message = _object(line)
        if "failed" in message:
            self.failed = plain(message["failed"], LONGEST_DETAIL) or "no reason given"
            return
        if "reason" in message:
            self._take_finding(message)
        elif message.get("complete") is True:
            self._complete(_target(message).SerializeToString() if "device" in message else None)
        elif isinstance(message.get("hello"), Mapping):
            self._take_hello(message["hello"])
        elif message.get("alive") is not True:
            raise LineError("it has none of `reason`, `complete`, `failed`, `hello` and `alive`")
        self.failed = ""

    def begin(self) -> None:
        """Begin with a new process of the program: its `complete` clears the findings that it has not repeated."""
        self._repeated.clear()
        self.max_age = None

    def complain(self, text: str) -> None:
        """Replace all findings by one with this text, about every device of the source."""
        self.findings = {}
        self._put(health_pb2.Target(), "", text)
        self.failed = ""

    def conclude(self, output: bytes, *, is_problem: bool) -> None:
        """Replace all findings by those that a program which has ended printed.

        `is_problem`: it has found a problem; if no line is a finding, the lines outside the protocol describe it.
        """
        lines = list(enumerate(output.splitlines(), start=1))
        message = b"\n".join(line for _, line in lines if not _is_of_protocol(line))
        self._replace((number, line) for number, line in lines if _is_of_protocol(line))
        if is_problem and not self.failed and not self.findings:
            text = " ".join(message[:LONGEST_LINE].decode(errors="replace").split())
            self.complain(plain(text, LONGEST_DETAIL) or "it found a problem, without a message")

    def replace(self, content: bytes) -> None:
        """Replace all findings by those in `content`; if a line cannot be used, only set `failed`."""
        self._replace(enumerate(content.splitlines(), start=1))

    def _replace(self, lines: Iterable[tuple[int, bytes]]) -> None:
        news = Report(self.origin)
        for number, line in lines:
            try:
                if line.strip():
                    news.take(line)
            except LineError as error:
                self.failed = f"line {number}: {error}"
                return
        self.failed = news.failed
        if not news.failed:
            self.findings = news.findings

    def resume(self, findings: Iterable[health_pb2.Finding]) -> None:
        """Start with the findings of an earlier process."""
        self.findings = {(found.at.SerializeToString(), found.value): found for found in findings}

    def _take_finding(self, message: Mapping[str, Any]) -> None:
        state = message.get("state", "standing")
        if state not in _STATES:
            raise LineError(f"`state` is not one of {', '.join(sorted(_STATES))}")
        target, word = _target(message), plain(message["reason"], _LONGEST_WORD)
        key = target.SerializeToString(), word
        if state == "cleared":
            self.findings.pop(key, None)
        elif state != "mentioned":
            self._repeated.add(self._put(target, word, plain(message.get("detail", ""), LONGEST_DETAIL)))

    def _put(self, target: health_pb2.Target, word: str, detail: str) -> Key:
        key = target.SerializeToString(), word
        if key not in self.findings and len(self.findings) >= MOST_FINDINGS:
            raise LineError(f"there are more than {MOST_FINDINGS} findings")
        self.findings[key] = health_pb2.Finding(
            at=target,
            reason=EXTERNAL,
            detail=detail or word,
            file=f"{self.origin}#{word}" if word else self.origin,
            value=word,
        )
        return key

    def _complete(self, target: bytes | None) -> None:
        """Drop the findings that were not repeated since the last `complete`: of a target, or of all for None."""
        for key in [*self.findings]:
            if key not in self._repeated and target in (None, key[0]):
                del self.findings[key]
        self._repeated = {key for key in self._repeated if target not in (None, key[0])}

    def _take_hello(self, hello: Mapping[str, Any]) -> None:
        seconds = hello.get("max_age")
        if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 1 <= seconds <= 86_400:
            self.max_age = float(seconds)


def plain(value: Any, longest: int) -> str:
    """A value as one line of text without control characters, cut to `longest` characters."""
    return _UNPRINTABLE.sub(" ", str(value)).strip()[:longest]


def _is_of_protocol(line: bytes) -> bool:
    """True for a line that has a key of the protocol, also if it cannot be used."""
    try:
        return not _WORDS.isdisjoint(_object(line))
    except LineError:
        return False


def _object(line: bytes) -> Mapping[str, Any]:
    if len(line) > LONGEST_LINE:
        raise LineError(f"it is longer than {LONGEST_LINE} bytes")
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LineError("it is not JSON") from error
    if not isinstance(message, dict):
        raise LineError("it is not a JSON object")
    return message


def _target(message: Mapping[str, Any]) -> health_pb2.Target:
    """The devices that a line is about; without a target, all of the source."""
    parts = message.get("device", {})
    if not isinstance(parts, Mapping) or not parts.keys() <= _PARTS.keys():
        raise LineError(f"`device` is not an object with some of {', '.join(_PARTS)}")
    if not all(isinstance(part, str) and part for part in parts.values()):
        raise LineError("values of `device` must be strings")
    target = health_pb2.Target(**{_PARTS[name]: part for name, part in parts.items()})
    target.vendor = target.vendor.lower()
    target.card, target.pci_address = _as_in_sysfs(target.card), _as_in_sysfs(target.pci_address)
    return target


def _as_in_sysfs(address: str) -> str:
    """A PCI address as sysfs spells it, `0000:83:00.0`: in lower case, with a domain of at least four digits.

    nvidia-smi prints eight, lspci none. Anything else is returned as it is.
    """
    parts = _PCI_ADDRESS.fullmatch(address.lower())
    return f"{int(parts['domain'] or '0', 16):04x}:{parts['slot']}" if parts else address
