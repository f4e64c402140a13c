"""What an external program or file says, line by line, as findings. Pure.

A line is a JSON object:

  {"whom": {"pci": "0000:3b:00"}, "reason": "hot", "detail": "…"}   stands from now on (`"state": "cleared"`: no longer)
  {"complete": true}     all that stands was said since the last such line; with `whom`, of these devices
  {"failed": "…"}        it cannot tell how the devices are
  {"alive": true}        nothing new; {"hello": {"max_age": 90}} is the same, with how long it may be silent

`whom` names devices by `pci`, `uuid`, `device` (id), `card` and `vendor`; without it all devices that it may speak of
are meant.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from devherd.health.registry import EXTERNAL
from devherd.proto import health_pb2

LONGEST_LINE = 4096
MOST_FINDINGS = 1000
LONGEST_DETAIL = 200
_LONGEST_WORD = 64
_PARTS = {"pci": "pci_address", "uuid": "uuid", "device": "device", "card": "card", "vendor": "vendor"}
_STATES = {"standing", "raised", "cleared", "mentioned"}
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]+")

Key = tuple[bytes, str]
"""Whom a finding is about, and the program's own word for it."""


class LineError(ValueError):
    """A line that says nothing: why."""


@dataclass(slots=True)
class Report:
    """All that it has said, as far as it still stands."""

    origin: str
    """The program or file."""
    findings: dict[Key, health_pb2.Finding] = field(default_factory=dict)
    evidence: dict[bytes, health_pb2.Evidence] = field(default_factory=dict)
    """What ends events, by whom it is about: of sources that tell of any."""
    failed: str = ""
    """Why it cannot tell at present."""
    max_age: float | None = None
    """How long it says that it may be silent."""
    _said: set[Key] = field(default_factory=set)
    """Since the last `complete`."""

    def take(self, line: bytes) -> None:
        """Take in a line. Raises LineError."""
        said = _object(line)
        if "failed" in said:
            self.failed = plain(said["failed"], LONGEST_DETAIL) or "it does not say why"
            return
        if "reason" in said:
            self._take_finding(said)
        elif said.get("complete") is True:
            self._complete(_target(said["whom"]).SerializeToString() if "whom" in said else None)
        elif isinstance(said.get("hello"), Mapping):
            self._take_hello(said["hello"])
        elif said.get("alive") is not True:
            raise LineError("it has none of `reason`, `complete`, `failed`, `hello` and `alive`")
        self.failed = ""

    def complain(self, text: str) -> None:
        """The one thing that stands is this, about all devices that it may speak of."""
        self.findings = {}
        self._put(health_pb2.Target(), "", text)
        self.failed = ""

    def replace(self, lines: bytes) -> None:
        """These lines are all that there is to say; where one of them says nothing, nothing of them counts."""
        news = Report(self.origin)
        for number, line in enumerate(lines.splitlines(), start=1):
            try:
                if line.strip():
                    news.take(line)
            except LineError as error:
                self.failed = f"line {number}: {error}"
                return
        self.failed = news.failed
        if not news.failed:
            self.findings = news.findings

    def clear(self) -> None:
        """Nothing stands."""
        self.findings = {}
        self.failed = ""

    def resume(self, findings: Iterable[health_pb2.Finding]) -> None:
        """Go on with what it said before."""
        self.findings = {(found.at.SerializeToString(), found.value): found for found in findings}

    def _take_finding(self, said: Mapping[str, Any]) -> None:
        state = said.get("state", "standing")
        if state not in _STATES:
            raise LineError(f"its `state` is none of {', '.join(sorted(_STATES))}")
        target, word = _target(said.get("whom", {})), plain(said["reason"], _LONGEST_WORD)
        key = target.SerializeToString(), word
        if state == "cleared":
            self.findings.pop(key, None)
        elif state != "mentioned":
            self._said.add(self._put(target, word, plain(said.get("detail", ""), LONGEST_DETAIL)))

    def _put(self, target: health_pb2.Target, word: str, detail: str) -> Key:
        key = target.SerializeToString(), word
        if key not in self.findings and len(self.findings) >= MOST_FINDINGS:
            raise LineError(f"{MOST_FINDINGS} findings are the most")
        self.findings[key] = health_pb2.Finding(
            at=target,
            reason=EXTERNAL,
            detail=detail or word,
            file=f"{self.origin}#{word}" if word else self.origin,
            value=word,
        )
        return key

    def _complete(self, whom: bytes | None) -> None:
        is_over = {key for key in self.findings.keys() - self._said if whom is None or key[0] == whom}
        for key in is_over:
            del self.findings[key]
        self._said = set() if whom is None else {key for key in self._said if key[0] != whom}

    def _take_hello(self, hello: Mapping[str, Any]) -> None:
        seconds = hello.get("max_age")
        if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 1 <= seconds <= 86_400:
            self.max_age = float(seconds)


def plain(said: Any, longest: int) -> str:
    """Text of bounded length in one line, whatever was said."""
    return _UNPRINTABLE.sub(" ", str(said)).strip()[:longest]


def _object(line: bytes) -> Mapping[str, Any]:
    if len(line) > LONGEST_LINE:
        raise LineError(f"it is longer than {LONGEST_LINE} bytes")
    try:
        said = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LineError("it is not JSON") from error
    if not isinstance(said, dict):
        raise LineError("it is no JSON object")
    return said


def _target(whom: Any) -> health_pb2.Target:
    if not isinstance(whom, Mapping) or not whom.keys() <= _PARTS.keys():
        raise LineError(f"its `whom` is not an object with some of {', '.join(_PARTS)}")
    if not all(isinstance(part, str) and part for part in whom.values()):
        raise LineError("a part of its `whom` is not text")
    return health_pb2.Target(**{_PARTS[name]: part for name, part in whom.items()})
