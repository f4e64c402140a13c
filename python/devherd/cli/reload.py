"""Make the running instance read its configuration again, and wait for the result.

Exit code 1 if the configuration is refused: the old one stays in force. SIGHUP and `devherd ctl update` do the same
without waiting.
"""

import argparse
import json
import sys
from pathlib import Path

from devherd.cli.instance import reaching_settings, require_running
from devherd.config.resolved import read_resolved
from devherd.errors import DevherdError, ExitCode, UnreachableError
from devherd.settings import Settings
from devherd.text import first_lines

PATIENCE_SECONDS = 120.0
"""The instance gives up reading a configuration after 30 s, and another request may come before this one."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command has no options of its own."""


def run(arguments: argparse.Namespace) -> int:
    """Reload and print the result. Raises UnreachableError, and DevherdError if the configuration is refused."""
    settings = reaching_settings(arguments, is_warned=False)  # the instance itself reports the error
    require_running(settings)
    refusal = _ask(settings.control_socket)
    if refusal:
        raise DevherdError("configuration not reloaded, the old one stays", refusal, "correct it, and reload again")
    _report(settings)
    return ExitCode.DONE


def _ask(control_socket: Path) -> str:
    """Request the reload; returns the reason of a refusal, empty if there is none. Raises UnreachableError."""
    import socket
    import xmlrpc.client

    from supervisor.xmlrpc import SupervisorTransport

    socket.setdefaulttimeout(PATIENCE_SECONDS)
    transport = SupervisorTransport(serverurl=f"unix://{control_socket}")
    try:
        with xmlrpc.client.ServerProxy("http://devherd", transport=transport) as supervisor:
            return str(json.loads(str(supervisor.supervisor.reloadAndWait())))
    except xmlrpc.client.Fault as fault:
        why = f"the instance does not know the question: {fault.faultString}"
        raise UnreachableError("cannot wait for the reload", why, "use `devherd ctl update`") from fault
    except (OSError, xmlrpc.client.ProtocolError) as error:
        cure = "see `devherd status`"
        raise UnreachableError("the instance did not answer", f"{control_socket}: {error}", cure) from error


def _report(settings: Settings) -> None:
    config = read_resolved(settings.resolved_config_file)
    print(f"configuration reloaded from {config.source or 'options and environment'}")
    for line in first_lines(config.warnings, "warnings"):
        print(f"devherd: warning: {line}", file=sys.stderr)
