"""The listening sockets: bound to the configured addresses, again when these change, retried while one is in use."""

import asyncio
import errno
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from devherd.backoff import Backoff
from devherd.exporter.binding import BACKLOG, bind, printed, unbind
from devherd.exporter.connections import Connections
from devherd.exporter.encryption import Encryption
from devherd.exporter.http_message import HEAD_BYTES, Handler
from devherd.served import Address
from devherd.settings import UNIX

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 30.0


@dataclass(slots=True)
class _Unbound:
    """An address that is still to be bound: what it was refused for last, and when to try again."""

    address: str
    retries: Backoff = field(default_factory=lambda: Backoff(FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS))
    retry_at: float = 0.0
    refusal: str = "not tried yet"
    cure: str = "wait for a moment"

    def is_refused(self, error: OSError) -> None:
        """Said once, and again when it is refused for something else."""
        refusal, cure = _why(error), _cure(error, self.address)
        if refusal != self.refusal:
            log.warning("cannot listen on %s: %s; trying again — %s", self.address, refusal, cure)
        self.refusal, self.cure = refusal, cure
        self.retry_at = time.monotonic() + self.retries.seconds()


class Listener:
    """Serves HTTP on its addresses, at first none: those of TCP encrypted, if there is to be TLS."""

    def __init__(self, handler: Handler, encryption: Encryption) -> None:
        self._connections = Connections(handler, encryption)
        self._encryption = encryption
        self._addresses: list[str] = []
        self._to_bind: list[_Unbound] = []
        self._servers: list[asyncio.Server] = []

    async def tend(self) -> None:
        """Bind what is still to be bound, where the next attempt is due. Never raises."""
        for each in list(self._to_bind):
            lacks_a_certificate = self._encryption.is_missing and not each.address.startswith(UNIX)
            if lacks_a_certificate or time.monotonic() < each.retry_at:
                continue
            try:
                await self._serve(each.address)
            except OSError as error:
                each.is_refused(error)
            else:
                self._to_bind.remove(each)

    def addresses(self) -> list[Address]:
        """Where it serves, and where not."""
        waiting = {each.address: each for each in self._to_bind}
        return [
            self._unserved(waiting[address]) if address in waiting else Address(address=address)
            for address in self._addresses
        ]

    def _unserved(self, waiting: _Unbound) -> Address:
        if self._encryption.is_missing and not waiting.address.startswith(UNIX):
            refusal = f"the certificates cannot be used: {self._encryption.refusal}"
            return Address(address=waiting.address, refusal=refusal, cure="mend the file that it names")
        return Address(address=waiting.address, refusal=waiting.refusal, cure=waiting.cure)

    def move_to(self, addresses: Sequence[str], *, anew: bool = False) -> None:
        """Listen at these from the next `tend` on. When they are others, or `anew`, all connections end."""
        if list(addresses) == self._addresses and not anew:
            log.debug("listening address is still %r", ",".join(addresses))
            return
        if self._addresses:
            self.close()
        if list(addresses) != self._addresses:
            log.info("listening address is now %r", ",".join(addresses))
        self._addresses, self._to_bind = list(addresses), list(map(_Unbound, addresses))

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


def _why(error: OSError) -> str:
    """`socket.create_server` adds the address to what the system says."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)  # getaddrinfo's are below 0


def _cure(error: OSError, address: str) -> str:
    """What an operator can do about it."""
    other = "name another address with `listen`"
    if error.errno != errno.EADDRINUSE:
        return other
    if address.startswith(UNIX):
        return f"remove what is there, or {other}"
    return f"end the program that listens there (`ss -lptn` names it), or {other}"
