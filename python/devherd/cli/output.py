"""The command's stdout, as something that can fail: a disk may be full, a descriptor may be closed or the wrong one."""

import io
import os
import sys
from typing import Any

from devherd.errors import DevherdError


class OutputError(DevherdError):
    """The command's output cannot be written."""


class _Descriptor(io.FileIO):
    """stdout's descriptor. Of all OSErrors, those of its own writes become OutputError; a pipe nobody reads stays."""

    def write(self, data: Any) -> int:
        """Write some of the bytes; how many."""
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(
                "cannot write the output", error.strerror or str(error), "make room, or write it elsewhere"
            ) from error


def prepare() -> None:
    """Open what is missing of stdin, stdout and stderr, and have stdout say what goes wrong.

    A descriptor that is closed would be given to the next file opened, which would then get what was meant for stdout.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)  # a standard stream of our children, too
    os.close(descriptor)
    sys.stdin = sys.stdin or open(0)  # noqa: SIM115 - for as long as we live
    sys.stderr = sys.stderr or open(2, "w")  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w")  # noqa: SIM115
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Descriptor(sys.stdout.fileno(), "w", closefd=False)),
            encoding=sys.stdout.encoding,
            errors="replace",  # a terminal that cannot show a character is no reason to fail
            line_buffering=sys.stdout.line_buffering,
        )


def give_up() -> None:
    """Drop the rest of the output: the interpreter's flush at exit must not fail as well."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
