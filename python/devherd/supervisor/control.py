"""The interface for supervisorctl: the control socket, the file for `supervisorctl -c`, the calls."""

import json
import os
import socket
from typing import Any

from supervisor.http import NOT_DONE_YET
from supervisor.rpcinterface import SupervisorNamespaceRPCInterface

from devherd import spool
from devherd.errors import UsageError
from devherd.settings import Settings

WAIT_SECONDS = 0.05
"""Pause between two checks for the end of a call that supervisorctl waits for."""

_MAX_PATH_BYTES = 107  # sun_path has 108 bytes, the last of them 0

_CONF = """\
; Written by devherd at its start, for `supervisorctl -c {conf}`.
[unix_http_server]
file = {socket}
chmod = 0700

[supervisord]
identifier = devherd

[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface

[supervisorctl]
serverurl = unix://{socket}
prompt = devherd
"""


class SupervisorctlCalls(SupervisorNamespaceRPCInterface):
    """The calls of supervisorctl. Programs come from the spool, so reloading means devherd's own configuration."""

    def restart(self) -> bool:
        """`supervisorctl reload`: reload the configuration, as SIGHUP does. No process is restarted."""
        self._update("restart")
        self.supervisord.reload()
        return True

    def reloadConfig(self) -> list[list[list[str]]]:  # noqa: N802 - supervisord's name
        """`supervisorctl update` and `reread`: same as `restart`. Programs change later, when the spool changes."""
        self._update("reloadConfig")
        self.supervisord.reload()
        return [[[], [], []]]

    def reloadAndWait(self) -> Any:  # noqa: N802 - as supervisord names its own
        """For `devherd reload`: like `restart`, but answers when the reload ends: the refusal, empty if accepted.

        The answer is JSON, which is ASCII: supervisord's HTTP server counts characters as bytes.
        """
        self._update("reloadAndWait")
        number = self.supervisord.reload()

        def answer() -> Any:
            outcome = self.supervisord.outcome_of(number)
            return NOT_DONE_YET if outcome is None else json.dumps(outcome)

        answer.delay = WAIT_SECONDS  # type: ignore[attr-defined] # where supervisord looks for it
        return answer

    def stopProcess(self, name: str, wait: bool = True) -> Any:  # noqa: N802 - supervisord's name
        """Stop a program. supervisord polls without a pause until it has stopped; a short pause saves CPU time."""
        answer = super().stopProcess(name, wait)
        if callable(answer):
            answer.delay = WAIT_SECONDS
        return answer


def server_config(settings: Settings) -> dict[str, Any]:
    """The control socket in the form that supervisord's HTTP server expects."""
    return {
        "family": socket.AF_UNIX,
        "section": "unix_http_server",
        "file": str(settings.control_socket),
        "chmod": 0o700,
        "chown": (-1, -1),
        "username": None,
        "password": None,
    }


def check_path(settings: Settings) -> None:
    """Raise UsageError if the path of the control socket is too long for the kernel."""
    bound = f"{settings.control_socket}.{os.getpid()}"  # supervisord's name for it until it is linked into place
    length = len(os.fsencode(bound))
    if length > _MAX_PATH_BYTES:
        raise UsageError(
            f"the run directory {settings.run_dir} is too long",
            f"its control socket's path would have {length} bytes and the kernel takes {_MAX_PATH_BYTES}",
            "choose a shorter --run-dir",
        )


def write_conf(settings: Settings) -> None:
    """Write `<run-dir>/supervisord.conf`. Raises OSError."""
    path = settings.supervisord_conf
    quoted = {"conf": path, "socket": str(settings.control_socket).replace("%", "%%")}  # % begins an expansion
    spool.replace(path, _CONF.format(**quoted).encode(), 0o600)
