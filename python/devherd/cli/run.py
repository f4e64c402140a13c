"""Run the supervisor in the foreground: it scans the host, serves every resource to the kubelet, keeps all of it alive.

SIGTERM and SIGINT stop it cleanly. SIGHUP reads the configuration again; a bad one changes nothing.
"""

import argparse

from devherd.cli.common_options import load_config


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """The command has no options of its own."""


def run(arguments: argparse.Namespace) -> int:
    """Run until it is stopped. Raises AlreadyRunningError and UsageError."""
    from devherd.supervisor import run as supervisor

    return supervisor.run(lambda: load_config(arguments))
