"""supervisorctl for the running instance: status, restart, stop, start, tail and all its other commands.

Without ARGS it is interactive. Programs are `scanner`, `exporter` and `resource:<resource name, / replaced by _>`.
"""

import argparse

from devherd.cli.common_options import load_config
from devherd.cli.instance import require_running
from devherd.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument("arguments", metavar="ARGS", nargs=argparse.REMAINDER, help="passed to supervisorctl unchanged")


def run(arguments: argparse.Namespace) -> int:
    """Hand over to supervisorctl, which ends the process with its own exit code. Raises UnreachableError."""
    settings = load_config(arguments).settings()
    require_running(settings)
    from supervisor import supervisorctl

    supervisorctl.main(["-c", str(settings.supervisord_conf), *arguments.arguments])
    return ExitCode.DONE
