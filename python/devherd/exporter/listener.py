"""The listening sockets: bound to the configured addresses, again when these change, retried while one is in use."""

import asyncio
import logging
import time
from collections.abc import Sequence

from devherd.backoff import Backoff
from devherd.exporter.binding import BACKLOG, bind, printed, unbind
from devherd.exporter.connections import Connections
from devherd.exporter.encryption import Encryption
from devherd.exporter.http_message import HEAD_BYTES, Handler
from devherd.settings import UNIX

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 30.0


class Listener:
    """Serves HTTP on its addresses, at first none: those of TCP encrypted, if there is to be TLS."""

    def __init__(self, handler: Handler, encryption: Encryption) -> None:
        self._connections = Connections(handler, encryption)
        self._encryption = encryption
        self._addresses: list[str] = []
        self._to_bind: list[str] = []
        self._servers: list[asyncio.Server] = []
        self._retries = Backoff(FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS)
        self._retry_at = 0.0

    async def tend(self) -> None:
        """Bind what is still to be bound, if the next attempt is due. Never raises."""
        if not self._to_bind or time.monotonic() < self._retry_at:
            return
        in_use: list[str] = []
        for address in self._to_bind:
            if self._encryption.is_missing and not address.startswith(UNIX):
                in_use.append(address)
                continue
            try:
                await self._serve(address)
            except OSError as error:
                in_use.append(address)
                if self._retries.is_fresh:
                    log.warning("cannot listen on %s: %s; trying again", address, error.strerror or error)
        self._to_bind = in_use
        if in_use and not self._encryption.is_missing:
            self._retry_at = time.monotonic() + self._retries.seconds()

    def move_to(self, addresses: Sequence[str], *, anew: bool = False) -> None:
        """Listen at these from the next `tend` on. When they are others, or `anew`, all connections end."""
        if list(addresses) == self._addresses and not anew:
            log.debug("listening address is still %r", ",".join(addresses))
            return
        if self._addresses:
            self.close()
        if list(addresses) != self._addresses:
            log.info("listening address is now %r", ",".join(addresses))
        self._addresses, self._to_bind = list(addresses), list(addresses)
        self._retries.reset()
        self._retry_at = 0.0

    def close(self) -> None:
        """End the servers and their connections."""
        for server in self._servers:
            for listening in server.sockets:
                unbind(listening)
            server.close()
        self._connections.close()
        self._servers = []

    async def _serve(self, address: str) -> None:
        for listening in bind(address):
            server = await asyncio.start_server(
                self._connections.serve, sock=listening, limit=HEAD_BYTES, backlog=BACKLOG
            )
            self._servers.append(server)
            log.info("serving %s", printed(listening, is_encrypted=self._encryption.context is not None))
