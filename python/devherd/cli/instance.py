"""Whether an instance runs on a run directory, and which kubelet it serves."""

import json
import socket
from pathlib import Path

from devherd.errors import UnreachableError
from devherd.settings import Settings

PATIENCE_SECONDS = 5.0


def require_running(settings: Settings) -> None:
    """Raises UnreachableError unless a supervisor listens on its control socket.

    Its lock is not tried: to try it is to hold it for a moment, and to turn away an instance that just then starts.
    """
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE_SECONDS)
        try:
            client.connect(str(settings.control_socket))
        except PermissionError as error:
            raise UnreachableError(
                f"cannot reach the instance in {settings.run_dir}", "its socket is its owner's alone", "use sudo"
            ) from error
        except OSError as error:
            raise UnreachableError(
                f"no instance runs in {settings.run_dir}",
                f"{settings.control_socket}: {error.strerror or error}",
                "start it with `devherd run`, or name its directory with --run-dir",
            ) from error


def kubelet_directory(settings: Settings) -> Path:
    """The kubelet directory that the instance was configured with; ours where it has not said."""
    try:
        return Path(json.loads(settings.last_good_config_file.read_bytes())["kubelet_dir"]).absolute()
    except (OSError, ValueError, KeyError, TypeError):
        return settings.kubelet_dir
