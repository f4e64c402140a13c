"""NVML's answer for one scan, without an instance: a process that lives for one attempt, and a file in memory.

`python -m devherd.health.sources.nvml.once` is that process: a request as JSON on stdin, the answer on stdout.
"""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from devherd._native import die_with_parent
from devherd.health.sources.nvml import answer as nvml_answer
from devherd.health.sources.nvml.answer import Answer, Request

NOT_STARTED = "NVML cannot be asked — {error} — check memory and the pids limit"
DIE_SECONDS = 1.0
"""How long a killed process may take to end; one that takes longer is in uninterruptible sleep."""


class AnswerOnce:
    """An answer file that is empty until NVML was asked."""

    def __enter__(self) -> Self:
        self._memory = os.memfd_create("nvml answer")
        self.file = Path(f"/proc/self/fd/{self._memory}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._memory)

    def ask(self, requests: Mapping[str, str]) -> bool:
        """Ask NVML what a scan requests, waiting no longer than its patience; False without a request."""
        if "nvml" not in requests:
            return False
        request: Request = json.loads(requests["nvml"])
        begun = Answer().begun(request)
        try:
            process = _start(request, self._memory)
        except OSError as error:
            self._replace(begun.failing(NOT_STARTED.format(error=error)))
            return True
        try:
            code = process.wait(request["patience_seconds"])
        except subprocess.TimeoutExpired:
            _kill(process)
            self._replace(begun.slow())
        else:
            if code:
                how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
                self._replace(begun.crashed(how))
        return True

    def _replace(self, answer: Answer) -> None:
        os.ftruncate(self._memory, 0)
        os.pwrite(self._memory, answer.json(), 0)


def _start(request: Request, output: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", __spec__.name]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as pipe:  # one that has crashed already
        pipe.write(json.dumps(request).encode())
    return process


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):  # it dies when it wakes; init reaps it
        process.wait(DIE_SECONDS)


def main() -> None:
    """Ask once."""
    die_with_parent(signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    begun = Answer().begun(json.load(sys.stdin))
    os.write(1, nvml_answer.ask(begun).json())


if __name__ == "__main__":
    main()
