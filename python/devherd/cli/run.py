"""Run the supervisor in the foreground: it scans the host, serves resources to the kubelet and restarts what fails.

SIGTERM and SIGINT stop it cleanly. SIGHUP reads the configuration again; a bad one changes nothing.
"""

import argparse
import os
from typing import TYPE_CHECKING

from devherd.cli.common_options import load_config
from devherd.errors import UsageError

if TYPE_CHECKING:
    from devherd.config.resolved import Config
    from devherd.settings import Settings


_TAKE_OVER = "DEVHERD_TAKE_OVER"
_VALUES = {"true": True, "false": False, "": False}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="where another instance runs, prepare everything, wait for its end and take over, instead of ending with"
        f" exit code 3; also {_TAKE_OVER}=true",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run until it is stopped. Raises AlreadyRunningError and UsageError."""
    from devherd.supervisor import run as supervisor

    def load(running: "Settings | None") -> "Config":
        from devherd.config import reload, resolve

        return resolve(reload(running, os.environ) if running else load_config(arguments))

    return supervisor.run(load, takes_over=arguments.take_over or _is_told_to_take_over())


def _is_told_to_take_over() -> bool:
    value = os.environ.get(_TAKE_OVER, "")
    if value.lower() not in _VALUES:
        raise UsageError(f"{_TAKE_OVER}: `{value}`", "it is neither true nor false", "set one of these, or unset it")
    return _VALUES[value.lower()]
