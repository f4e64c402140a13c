"""Listening sockets of the exporter: bound to the configured addresses, retried while one is in use."""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from devherd.backoff import Backoff
from devherd.exporter.encryption import Encryption
from devherd.exporter.server import HEAD_BYTES, Handler, HttpConnections
from devherd.kubelet.registration import refused
from devherd.log import Once
from devherd.proto.spool_pb2 import Address
from devherd.settings import UNIX

BACKLOG = 1024
"""Length of the accept queue. If a flood fills it, a probe has to wait until its kernel retries the connection."""

# Errors of addresses that getaddrinfo returns and the host lacks, mostly because IPv6 is disabled.
_NOT_HERE = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}
_OWNER_AND_GROUP = 0o117
"""umask of a socket: owner and group may connect. The setgid bit on the directory lets an operator choose the group."""


def bind(address: str) -> list[socket.socket]:
    """Sockets listening on `ADDRESS:PORT` or `unix:PATH`. Raises OSError if one cannot be bound."""
    return [_bind_path(Path(address.removeprefix(UNIX)))] if address.startswith(UNIX) else _bind_tcp(address)


def _bind_path(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(_OWNER_AND_GROUP)
    try:
        if _is_dead(path):
            path.unlink()
        listening.bind(str(path))
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    finally:
        os.umask(before)
    return listening


def _is_dead(path: Path) -> bool:
    """True if the path is a Unix socket on which no process listens. Does not block."""
    # A connection to another file is refused, too.
    return path.is_socket() and isinstance(refused(path), ConnectionRefusedError)


def unbind(listening: socket.socket) -> None:
    """Remove the path of a Unix socket; does nothing for TCP."""
    if listening.family == socket.AF_UNIX:
        with contextlib.suppress(OSError):
            Path(listening.getsockname()).unlink()


def _bind_tcp(address: str) -> list[socket.socket]:
    """Without ADDRESS, bind all addresses of this host. Raises OSError also if the host has none of them."""
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


def printed(listening: socket.socket, *, is_encrypted: bool) -> str:
    """The socket's URL; for a Unix socket, its address as in the configuration."""
    if listening.family == socket.AF_UNIX:
        return f"{UNIX}{listening.getsockname()}"
    host, port = listening.getsockname()[:2]
    scheme = "https" if is_encrypted else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 30.0


class _Unbound:
    """An address that is not bound yet, with the last refusal and the time of the next attempt."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.retries = Backoff(FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS)
        self.retry_at = 0.0
        self.refusal, self.cure = "not tried yet", "wait for a moment"
        self._complaint = Once(log.warning)

    def is_refused(self, error: OSError) -> None:
        """Record a failed attempt. Logs it only if the reason is new."""
        self.refusal, self.cure = _why(error), _cure(error, self.address)
        text = "cannot listen on %s: %s; trying again — %s"
        self._complaint.complain(text, self.address, self.refusal, self.cure)
        self.retry_at = time.monotonic() + self.retries.seconds()


class Listener:
    """Serves HTTP on its addresses, initially none. TCP is encrypted if TLS is configured."""

    def __init__(self, handler: Handler, encryption: Encryption) -> None:
        self._connections = HttpConnections(handler, encryption)
        self._encryption = encryption
        self._addresses: list[str] = []
        self._to_bind: list[_Unbound] = []
        self._servers: list[asyncio.Server] = []

    async def tend(self) -> None:
        """Bind the remaining addresses whose next attempt is due. Never raises."""
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
        """All addresses, with refusal and cure if one is not served."""
        waiting = {each.address: each for each in self._to_bind}
        return [
            self._unserved(waiting[address]) if address in waiting else Address(address=address)
            for address in self._addresses
        ]

    def _unserved(self, waiting: _Unbound) -> Address:
        if self._encryption.is_missing and not waiting.address.startswith(UNIX):
            refusal = f"the certificates cannot be used: {self._encryption.refusal}"
            return Address(address=waiting.address, refusal=refusal, cure="correct the file that it names")
        return Address(address=waiting.address, refusal=waiting.refusal, cure=waiting.cure)

    def move_to(self, addresses: Sequence[str], *, anew: bool = False) -> None:
        """Listen on these addresses from the next `tend` on. If they differ, or with `anew`, close all connections."""
        if list(addresses) == self._addresses and not anew:
            log.debug("listening address is still %r", ",".join(addresses))
            return
        if self._addresses:
            self.close()
        if list(addresses) != self._addresses:
            log.info("listening address is now %r", ",".join(addresses))
        self._addresses, self._to_bind = list(addresses), list(map(_Unbound, addresses))

    def close(self) -> None:
        """Close the servers and their connections."""
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
    """The system's error text, without the address that `socket.create_server` adds."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)  # getaddrinfo's numbers are negative


def _cure(error: OSError, address: str) -> str:
    """What an operator can do about the error."""
    other = "name another address with `listen`"
    if error.errno != errno.EADDRINUSE:
        return other
    if address.startswith(UNIX):
        return f"remove what is there, or {other}"
    return f"end the program that listens there (`ss -lptn` names it), or {other}"
