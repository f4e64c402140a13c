"""Forked processes. None calls exec, so each inherits everything; `become` begins and ends its life."""

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

import setproctitle

from devherd import _native, signals
from devherd import log as logs
from devherd.errors import DevherdError
from devherd.settings import Settings

CRASHED = 70
"""Exit code of a process whose work raised an exception (EX_SOFTWARE of sysexits.h)."""
KEPT = 3
"""The descriptor that `leave_the_supervisor` may keep."""

log = logging.getLogger(__name__)


def forked(name: str, work: Callable[[], int]) -> int:
    """Fork a process that does `work` and ends with the exit code that it returns. Returns its id. Raises OSError."""
    parent = os.getpid()
    with signals.held():
        pid = os.fork()
        if pid == 0:
            become(name, work, parent)
    return pid


def become(name: str, work: Callable[[], int], parent: int) -> NoReturn:
    """In a process that was forked with signals held: do `work`, then end; end earlier if `parent` does.

    No exception reaches the parent's stack frames: errors are logged under this name.
    """
    code = CRASHED
    try:
        signals.reset()
        _die_with(parent)
        code = work()
    except DevherdError as error:
        logs.fail(error)
        code = error.exit_code
    except BaseException:  # of the frames below, too
        log.exception("%s crashed", name)
    finally:
        end(code)


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends in any way."""
    _native.die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call above
        os._exit(0)


def end(code: int) -> NoReturn:
    """Exit without any clean-up: of the parent's, and of what this process has open."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # its reader is gone
            stream.flush()
    os._exit(code)


def leave_the_supervisor(output: int, keep: int | None = None) -> None:
    """Drop everything that belongs to the supervisor; stdout and stderr go to `output`, `keep` becomes `KEPT`."""
    os.setpgid(0, 0)  # only the supervisor gets a Ctrl-C in the terminal
    for target in (1, 2):
        os.dup2(output, target)
    if keep is not None:
        os.dup2(keep, KEPT)
    os.closerange(KEPT + (keep is not None), os.sysconf("SC_OPEN_MAX"))
    os.closerange(0, 1)
    os.open(os.devnull, os.O_RDONLY)  # gets the lowest free number, 0; last, because now descriptors are free


def introduce(name: str, settings: Settings, title: str = "") -> None:
    """Set the process's title and its name in the log; without a title, `name` gives it."""
    setproctitle.setproctitle(title_of(title or name, settings))  # also sets the short name, but cut
    _native.set_process_name(title or name)
    logs.configure(name, settings.log_level, settings.log_format)


def title_of(name: str, settings: Settings) -> str:
    """`devherd: resource nvidia.com/gpu`, and the options that distinguish instances.

    `name` is the child's name in supervisorctl, and what `top` shows.
    """
    kind, _, key = name.partition(":")
    resource = [key.replace("_", "/", 1)] if key else []  # a resource's domain has no underscore
    options = [f"--{option.replace('_', '-')}={value}" for option, value in settings.given_options]
    return " ".join(["devherd:", kind, *resource, *options])
