"""Prepares a forked process for its main function. Nothing is exec'd, so everything is inherited."""

import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator
from typing import NoReturn

import setproctitle

from devherd import _native
from devherd import log as logs
from devherd.process import Child, ChildMain
from devherd.settings import Settings
from devherd.supervisor.sandbox import Sandbox

CRASHED = 70
"""Exit code of a main function that raised (EX_SOFTWARE of sysexits.h)."""
KEPT = 3
"""The descriptor that `leave_the_supervisor` may keep."""

_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR2)

log = logging.getLogger(__name__)


def cross(child: Child, main: ChildMain, sandbox: Sandbox, output: int, parent: int) -> NoReturn:
    """Become the child and exit with its main function's exit code; the rest as in `leave_the_supervisor`."""
    code = CRASHED
    try:
        leave_the_supervisor(output)
        die_with(parent)
        entitle(child.name, child.settings)
        logs.configure(child.name, child.settings.log_level, child.settings.log_format)
        sandbox.enter()
        gc.freeze()
        code = main(child)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else CRASHED
    except BaseException:  # nothing may reach the supervisor's frames below
        log.exception("%s crashed", child.name)
    finally:
        end(code)


def end(code: int) -> NoReturn:
    """Exit without the parent process's clean-up."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # its reader is gone
            stream.flush()
    os._exit(code)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends in any way."""
    _native.die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call above
        os._exit(0)


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Block signals during a fork: until `reset_signals` the child has the supervisor's handlers."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def reset_signals() -> None:
    """Set default handlers and block SIGHUP alone (devherd/process.py). SIGPIPE stays ignored, as Python sets it."""
    signal.set_wakeup_fd(-1)
    for number in _HANDLED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGHUP})


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
    reset_signals()


def entitle(name: str, settings: Settings) -> None:
    """Set the process title. `name` is the child's name in supervisorctl, and what `top` shows."""
    setproctitle.setproctitle(title(name, settings))  # also sets the short name, but cut: the next line sets it again
    _native.set_process_name(name)


def title(name: str, settings: Settings) -> str:
    """`devherd: resource nvidia.com/gpu`, and the options that distinguish instances."""
    kind, _, key = name.partition(":")
    resource = [key.replace("_", "/", 1)] if key else []  # a resource's domain has no underscore
    options = [f"--{option.replace('_', '-')}={value}" for option, value in settings.given_options]
    return " ".join(["devherd:", kind, *resource, *options])
