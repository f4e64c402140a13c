"""The listening sockets: bound to the configured address, bound again when it changes, tried again when it is taken."""

import errno
import logging
import socket
import time
from collections.abc import Callable
from typing import Any

from waitress.server import create_server

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 30.0

# What getaddrinfo offers but this host does not have: IPv6 switched off, mostly.
_NOT_HERE = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}


class Listener:
    """Serves a WSGI application on `address` (`ADDRESS:PORT`, empty = off) from the loop over `sockets`."""

    def __init__(self, application: Callable[..., Any], sockets: dict[int, Any], address: str) -> None:
        self._application = application
        self._sockets = sockets
        self._address = address
        self._servers: list[Any] = []
        self._retry_seconds = FIRST_RETRY_SECONDS
        self._retry_at = 0.0

    def tend(self) -> None:
        """Bind when that is still to be done and its time has come. Never waits, never raises."""
        if not self._address or self._servers or time.monotonic() < self._retry_at:
            return
        try:
            bound = bind(self._address)
        except OSError as error:
            self._try_later(error)
            return
        self._servers = [self._serve(listening) for listening in bound]
        for server in self._servers:
            log.info("serving http://%s", _printed(server.effective_host, server.effective_port))

    def move_to(self, address: str) -> None:
        """Listen elsewhere from the next `tend` on; connections at the old address end."""
        if address == self._address:
            return
        self.close()
        log.info("listening address is now %r", address)
        self._address = address
        self._retry_seconds, self._retry_at = FIRST_RETRY_SECONDS, 0.0

    def close(self) -> None:
        """End the servers, their threads and their connections."""
        for server in self._servers:
            server.task_dispatcher.set_thread_count(0)  # each ends when it is idle: nobody waits, so nobody complains
            for channel in list(server.active_channels.values()):
                channel.close()
            server.close()
        self._servers = []

    def _serve(self, listening: socket.socket) -> Any:
        return create_server(
            self._application,
            map=self._sockets,
            sockets=[listening],
            threads=4,
            ident=None,
            connection_limit=200,
            channel_timeout=60,
            max_request_body_size=1 << 16,
            clear_untrusted_proxy_headers=True,
        )

    def _try_later(self, error: OSError) -> None:
        if self._retry_seconds == FIRST_RETRY_SECONDS:
            log.warning("cannot listen on %s: %s; trying again", self._address, error.strerror or error)
        self._retry_at = time.monotonic() + self._retry_seconds
        self._retry_seconds = min(2 * self._retry_seconds, LAST_RETRY_SECONDS)


def bind(address: str) -> list[socket.socket]:
    """Sockets listening on every IP address that `ADDRESS:PORT` stands for; no ADDRESS means all of this host.

    Raises OSError when one of them is taken, or none is this host's.
    """
    host, _, port = address.rpartition(":")
    found = socket.getaddrinfo(host.strip("[]") or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[socket.socket] = []
    refusal = OSError(errno.EADDRNOTAVAIL, "no such address on this host")
    for family, _, _, _, place in dict.fromkeys(found):
        try:
            bound.append(socket.create_server(place[:2], family=family))
        except OSError as error:
            refusal = error
            if error.errno not in _NOT_HERE:
                break
    else:
        if bound:
            return bound
    for listening in bound:
        listening.close()
    raise refusal


def _printed(host: str, port: str) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
