"""The other side of control.py: what a command asks of the running embedded kubelet."""

import json
import socket
from pathlib import Path
from typing import Any

from devherd.errors import DevherdError, UnreachableError
from devherd_sim.kubelet.control import socket_of


def ask(kubelet_dir: Path, command: str, **words: Any) -> Any:
    """The answer to a request. There is no deadline: a plugin may think as long as it likes.

    Raises UnreachableError when no embedded kubelet runs on this directory, DevherdError with its words if it refuses.
    """
    path = socket_of(kubelet_dir)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(json.dumps({"command": command, **words}).encode() + b"\n")
            line = connection.makefile("rb").readline()
    except OSError as error:
        raise _unreachable(kubelet_dir, f"{path}: {error.strerror or error}") from error
    if not line:
        raise _unreachable(kubelet_dir, "it ended before it answered")
    reply = json.loads(line)
    if "error" in reply:
        raise DevherdError(*reply["error"])
    return reply["answer"]


def _unreachable(kubelet_dir: Path, why: str) -> UnreachableError:
    return UnreachableError(
        "no embedded kubelet answers", why, f"start one with `devherd sim kubelet --kubelet-dir {kubelet_dir}`"
    )
