"""Handles failures of stdout: a full disk, a closed or a read-only descriptor."""

import io
import os
import sys
from typing import Any

from devherd.errors import DevherdError


class OutputError(DevherdError):
    """The command's output cannot be written."""


class _Descriptor(io.FileIO):
    """stdout's descriptor; an OSError of a write becomes OutputError, except BrokenPipeError."""

    def write(self, data: Any) -> int:
        """Write some of the bytes and return their number. Raises OutputError and BrokenPipeError."""
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(
                "cannot write the output", error.strerror or str(error), "make room, or write it elsewhere"
            ) from error


def prepare() -> None:
    """Open those of stdin, stdout and stderr that are closed, and make failed writes to stdout raise OutputError.

    The next file opened would otherwise get the closed descriptor, and with it the output meant for stdout.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)  # children inherit the standard streams
    os.close(descriptor)
    sys.stdin = sys.stdin or open(0)  # noqa: SIM115 - open as long as the process runs
    sys.stderr = sys.stderr or open(2, "w")  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w")  # noqa: SIM115
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Descriptor(sys.stdout.fileno(), "w", closefd=False)),
            encoding=sys.stdout.encoding,
            errors="replace",  # a character that the terminal cannot show must not fail the command
            line_buffering=sys.stdout.line_buffering,
        )


def give_up() -> None:
    """Discard the rest of the output, so that the interpreter's flush at exit does not fail as well."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
