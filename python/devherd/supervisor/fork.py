"""What a forked process does before its main function. Nothing is exec'd, so everything is inherited.

Before the fork the supervisor has one thread, no gRPC channel or server, and nothing else that must not be copied.
Here the copy drops what belongs to the supervisor: descriptors (locks, control socket, pipes of other children), signal
handlers and log. Python objects behind closed descriptors stay referenced from the supervisor's frames below on the
stack, so none of them is ever closed a second time.
"""

import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator
from typing import NoReturn

from devherd import _native
from devherd import log as logs
from devherd.child import Child, ChildMain
from devherd.supervisor.sandbox import Sandbox
from devherd.supervisor.title import entitle

CRASHED = 70
"""Exit code of a main function that raised (EX_SOFTWARE of sysexits.h)."""

_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR2)

log = logging.getLogger(__name__)


def cross(child: Child, main: ChildMain, sandbox: Sandbox, output: int, parent: int) -> NoReturn:
    """Become the child and end with its main function's exit code. `output` is where stdout and stderr go."""
    code = CRASHED
    try:
        leave_the_supervisor(output)
        die_with(parent)
        entitle(child.name, child.settings)
        logs.configure(child.name, child.settings.log_level, child.settings.log_format)
        sandbox.enter()
        gc.freeze()
        code = main(child)
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else CRASHED
    except BaseException:  # whatever it is, it must not get into the supervisor's frames below
        log.exception("%s crashed", child.name)
    finally:
        end(code)


def end(code: int) -> NoReturn:
    """Exit without the clean-up that belongs to the process this one was forked from."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(code)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, however that ends."""
    _native.die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call above
        os._exit(0)


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """For a fork: a signal that reaches the new process before its `reset_signals` is not answered as if by us."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def reset_signals() -> None:
    """Default handlers, nothing held but SIGHUP (child.py). SIGPIPE stays ignored, as Python's own start leaves it."""
    signal.set_wakeup_fd(-1)
    for number in _HANDLED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGHUP})


KEPT = 3
"""The descriptor that `leave_the_supervisor` may keep."""


def leave_the_supervisor(output: int, keep: int | None = None) -> None:
    """Drop everything that belongs to the supervisor; stdout and stderr go to `output`, `keep` becomes `KEPT`."""
    os.setpgid(0, 0)  # a Ctrl-C in the terminal is for the supervisor alone
    for target in (1, 2):
        os.dup2(output, target)
    if keep is not None:
        os.dup2(keep, KEPT)
    os.closerange(KEPT + (keep is not None), os.sysconf("SC_OPEN_MAX"))
    os.closerange(0, 1)
    os.open(os.devnull, os.O_RDONLY)  # takes the lowest number that is free: 0; opened last, when there surely are some
    reset_signals()
