"""Reports the supervisor's state to the service manager that started it: systemd's sd_notify(3), a datagram socket.

The object removes the variables from the environment: no child may report for the service.
"""

import logging
import os
import socket
import time
from collections.abc import Sequence

log = logging.getLogger(__name__)


class ServiceManager:
    """The manager named by `NOTIFY_SOCKET`; without one nothing is sent.

    A manager with a watchdog (`WATCHDOG_USEC`) ends a supervisor that does not call `beat`.
    """

    def __init__(self, ready_seconds: float) -> None:
        address = os.environ.pop("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address  # in the abstract namespace
        watched_pid = os.environ.pop("WATCHDOG_PID", "")
        microseconds = os.environ.pop("WATCHDOG_USEC", "")
        is_watched = microseconds.isdecimal() and watched_pid in ("", str(os.getpid())) and bool(address)
        self.beat_seconds = int(microseconds) / 2e6 if is_watched else float("inf")
        """The longest time between two calls of `beat`: half of what the manager waits, by
        sd_watchdog_enabled(3)."""
        self.is_ready = not address
        """True once the manager knows that the service is ready, and without a manager."""
        self._ready_by = time.monotonic() + ready_seconds
        self._has_complained = False

    def report(self, failing: Sequence[str]) -> None:
        """Report the service as ready once no child is `failing`, or after `Waits.ready`.

        `systemctl status` shows the names.
        """
        if failing and time.monotonic() < self._ready_by:
            return
        self.is_ready = True
        status = f"not running: {', '.join(failing)}; see `devherd status`" if failing else "all processes run"
        self._send(f"READY=1\nSTATUS={status}")

    def beat(self) -> None:
        """Report that the supervisor's loop is alive; called in each round."""
        if self.beat_seconds < float("inf"):
            self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as manager:
            try:
                manager.sendto(message.encode(), self._address)
            except OSError as error:
                if not self._has_complained:
                    log.warning("cannot send %s to the service manager: %s", message.split("=", maxsplit=1)[0], error)
                self._has_complained = True
