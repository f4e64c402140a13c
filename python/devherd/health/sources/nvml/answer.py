"""The answer file of NVML: its content, and the steps from one content to the next. Pure, except `ask`.

rust/src/nvml/answer.rs reads it, rust/src/nvml/request.rs makes the requests.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from devherd._native import nvml_facts

Request = dict[str, Any]
Facts = dict[str, Any]

SLOW = "NVML has not answered yet — it is slow, or hangs — check that nvidia-smi works, and start nvidia-persistenced"
STUCK = "NVML hangs in the kernel and cannot be ended — a GPU does not respond — see `dmesg`; it may take a reboot"
_HANGS = "NVML did not answer within {seconds:g} s — it hangs — check `dmesg` for messages about the GPUs"
_CRASHED = "NVML crashed — the process that asked it ended: {how} — reinstall the NVIDIA driver libraries"
_DEFECT = "NVML probe failed — {error} — please report this bug"

ATTEMPT = 10
"""How many times its patience an attempt may take: GPUs without persistence mode take a second or more each."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The content of the answer file. Facts outlive every failure."""

    facts: Facts | None = None
    facts_of: Request | None = None
    """The request that `facts` answer."""
    failures: int = 0
    """Attempts that failed since then."""
    failed: Request | None = None
    """The request of the last of them."""
    problem: str | None = None
    asking: Request | None = None
    """The request that NVML is being asked now."""

    def begun(self, request: Request) -> "Answer":
        """An attempt begins."""
        return replace(self, asking=request, problem=self.problem if self.failures else None)

    def slow(self) -> "Answer":
        """The attempt takes longer than it should."""
        return self if self.failures else replace(self, problem=SLOW)

    def succeeded(self, facts: Facts) -> "Answer":
        """The attempt succeeded."""
        return Answer(facts=facts, facts_of=self.asking)

    def failing(self, problem: str | None) -> "Answer":
        """The attempt failed; without a problem if there is no NVML here."""
        failures = self.failures + 1
        return replace(self, failures=failures, failed=self.asking, problem=problem, asking=None)

    def hanging(self) -> "Answer":
        """The attempt has taken too long."""
        return self.failing(_HANGS.format(seconds=deadline_seconds(self.asking or {})))

    def crashed(self, how: str) -> "Answer":
        """The process that made the attempt ended in the middle of it."""
        return self.failing(_CRASHED.format(how=how))

    def json(self) -> bytes:
        """The file's content."""
        return json.dumps(asdict(self)).encode()


def read(file: Path) -> Answer:
    """The answer in a file; empty if it cannot be read."""
    try:
        return Answer(**json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError):
        return Answer()


def deadline_seconds(request: Request) -> float:
    """How long an attempt may take."""
    return float(ATTEMPT * request.get("patience_seconds", 0.0))


def ask(begun: Answer) -> Answer:
    """Ask NVML in this process, which may hang or crash."""
    request = begun.asking or {}
    try:
        return begun.succeeded(json.loads(nvml_facts(request.get("driver_root"), request.get("library"))))
    except FileNotFoundError:
        return begun.failing(None)
    except OSError as error:
        return begun.failing(str(error))
    except Exception as error:  # noqa: BLE001 - whatever it is, the devices are served without NVML
        return begun.failing(_DEFECT.format(error=error))
