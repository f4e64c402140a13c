"""Runs the real command as a user does: for the tests beside it."""

import subprocess
import sys
import time
from dataclasses import dataclass

import pytest

COMMAND = [sys.executable, "-m", "devherd"]


@dataclass
class Outcome:
    """How a command ended and what it said."""

    code: int
    stdout: str
    stderr: str

    @property
    def error_line(self):
        """The one line of an error, checked for its form."""
        assert self.stderr.count("\n") == 1, self.stderr
        assert self.stderr.startswith("devherd: "), self.stderr
        assert self.stderr.count(" — ") >= 2, self.stderr
        assert "Traceback" not in self.stderr
        return self.stderr.strip()


def devherd(*words, environment=None, timeout=60, stdin=""):
    """Run `devherd` to its end."""
    done = subprocess.run(
        [*COMMAND, *map(str, words)],
        capture_output=True,
        check=False,
        text=True,
        timeout=timeout,
        env={"PATH": "/usr/bin:/bin", **(environment or {})},
        input=stdin,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def eventually(look, what):
    """The first true answer of `look`."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if answer := look():
            return answer
        time.sleep(0.05)
    pytest.fail(f"never happened: {what}")
