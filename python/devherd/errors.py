"""Errors for users: what failed, why, and what to do."""

import re
from enum import IntEnum

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")  # escaped, so that an error is one line


class ExitCode(IntEnum):
    """The exit codes that scripts may rely on."""

    DONE = 0
    PROBLEM_FOUND = 1
    USAGE = 2
    ALREADY_RUNNING = 3
    UNREACHABLE = 4


class DevherdError(Exception):
    """An expected failure, shown to the user as one line: `devherd: <what> — <why> — <what to do>`."""

    exit_code = ExitCode.PROBLEM_FOUND

    def __init__(self, what: str, why: str, cure: str) -> None:
        super().__init__(_UNPRINTABLE.sub(lambda found: f"\\x{ord(found[0]):02x}", f"{what} — {why} — {cure}"))
        self.what = what
        self.why = why
        self.cure = cure


class UsageError(DevherdError):
    """A wrong option or a bad configuration."""

    exit_code = ExitCode.USAGE


class AlreadyRunningError(DevherdError):
    """Another instance holds the run directory or the kubelet directory."""

    exit_code = ExitCode.ALREADY_RUNNING


class UnreachableError(DevherdError):
    """The program that must answer is not running."""

    exit_code = ExitCode.UNREACHABLE
