"""The listening sockets: bound to the configured address, again when that changes, and retried while it is in use."""

import asyncio
import errno
import logging
import socket
import time

from devherd.backoff import Backoff
from devherd.exporter.connections import Connections
from devherd.exporter.http_message import HEAD_BYTES, Handler

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 30.0
BACKLOG = 1024
"""Connections that wait to be accepted: a probe must not wait behind a flood for the next attempt of its kernel."""

# getaddrinfo offers it and the host does not have it: mostly IPv6, switched off.
_NOT_HERE = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}


class Listener:
    """Serves HTTP on `address` (`ADDRESS:PORT`, empty = off)."""

    def __init__(self, handler: Handler, address: str) -> None:
        self._connections = Connections(handler)
        self._address = address
        self._servers: list[asyncio.Server] = []
        self._retries = Backoff(FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS)
        self._retry_at = 0.0

    async def tend(self) -> None:
        """Bind if that is still to be done and the next attempt is due. Never raises."""
        if not self._address or self._servers or time.monotonic() < self._retry_at:
            return
        try:
            bound = bind(self._address)
        except OSError as error:
            self._try_later(error)
            return
        for listening in bound:
            server = await asyncio.start_server(
                self._connections.serve, sock=listening, limit=HEAD_BYTES, backlog=BACKLOG
            )
            self._servers.append(server)
            log.info("serving http://%s", _printed(*listening.getsockname()[:2]))

    def move_to(self, address: str) -> None:
        """Listen elsewhere from the next `tend` on; connections at the old address end."""
        if address == self._address:
            log.debug("listening address is still %r", address)
            return
        self.close()
        log.info("listening address is now %r", address)
        self._address = address
        self._retries.reset()
        self._retry_at = 0.0

    def close(self) -> None:
        """End the servers and their connections."""
        for server in self._servers:
            server.close()
        self._connections.close()
        self._servers = []

    def _try_later(self, error: OSError) -> None:
        if self._retries.is_fresh:
            log.warning("cannot listen on %s: %s; trying again", self._address, error.strerror or error)
        self._retry_at = time.monotonic() + self._retries.seconds()


def bind(address: str) -> list[socket.socket]:
    """Sockets listening on every IP address of `ADDRESS:PORT`; without ADDRESS, on all addresses of this host.

    Raises OSError when one of them is in use, or the host has none of them.
    """
    host, _, port = address.rpartition(":")
    name: str | bytes | None = host.strip("[]") or None
    if isinstance(name, str) and name.isascii():
        name = name.encode()  # a str would be encoded by IDNA, whose tables take 1 MB of memory
    found = socket.getaddrinfo(name, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
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


def _printed(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
