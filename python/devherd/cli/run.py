"""Run the supervisor in the foreground: it scans the host, serves resources to the kubelet and restarts what fails.

SIGTERM and SIGINT stop it cleanly. SIGHUP reads the configuration again; a bad one changes nothing.
"""

import argparse
import os
from typing import TYPE_CHECKING

from devherd.cli.common_options import load_config

if TYPE_CHECKING:
    from devherd.config.resolved import Config
    from devherd.settings import Settings


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """The command has no options of its own."""


def run(arguments: argparse.Namespace) -> int:
    """Run until it is stopped. Raises AlreadyRunningError and UsageError."""
    from devherd.supervisor import run as supervisor

    def load(running: "Settings | None") -> "Config":
        from devherd.config import reload, resolve

        return resolve(reload(running, os.environ) if running else load_config(arguments))

    return supervisor.run(load)
