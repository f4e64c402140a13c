"""An HTTP/1.1 server for probes, scrapers and browsers: messages, and connections with limits for each client."""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from devherd.exporter.encryption import Encryption

if TYPE_CHECKING:
    import ssl

HEAD_BYTES = 1 << 14
"""Limit of a request line and its headers."""
BODY_BYTES = 1 << 16
"""Limit of a request body, which is read and discarded: no page takes one."""


@dataclass(frozen=True, slots=True)
class Client:
    """The client of a request."""

    address: str = ""
    is_local: bool = False
    """True for a client of a Unix socket, whose mode controls access."""
    certificate: Mapping[str, Any] = field(default_factory=dict)
    """The verified client certificate, as returned by `ssl.SSLSocket.getpeercert`; empty if none was sent."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request; header names are in lower case, the path is unquoted."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    keeps_alive: bool = False
    client: Client = Client()


@dataclass(frozen=True, slots=True)
class Response:
    """One response."""

    status: HTTPStatus
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Awaitable[Response]]


class RequestError(Exception):
    """A malformed, unsupported or too large request, with the status of its answer."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


async def read(reader: asyncio.StreamReader, begun: bytes = b"") -> Request:
    """Read the next request and discard its body; `begun` is the part that was read before.

    Raises RequestError for a refused request, EOFError if the connection ends.
    """
    try:
        head = begun + await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise RequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from error
    request = parse(head)
    if "transfer-encoding" in request.headers:
        raise RequestError(HTTPStatus.NOT_IMPLEMENTED)
    length = request.headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()):
        raise RequestError(HTTPStatus.BAD_REQUEST)
    if len(length) > len(str(BODY_BYTES)) or int(length) > BODY_BYTES:
        raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    await reader.readexactly(int(length))
    return request


def parse(head: bytes) -> Request:
    """Parse a request line and headers, up to the empty line after them. Raises RequestError if malformed."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[0].isalpha() or parts[2] not in ("HTTP/1.0", "HTTP/1.1"):
        raise RequestError(HTTPStatus.BAD_REQUEST)
    method, target, version = parts
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise RequestError(HTTPStatus.BAD_REQUEST)
        key = name.lower()
        headers[key] = f"{headers[key]}, {value.strip()}" if key in headers else value.strip()
    path, _, query = target.partition("?")
    if not target.startswith("/"):  # an absolute URL, as sent to a proxy
        try:
            path, query = urlsplit(target).path, urlsplit(target).query
        except ValueError as error:
            raise RequestError(HTTPStatus.BAD_REQUEST) from error
    keeps_alive = version == "HTTP/1.1" and "close" not in headers.get("connection", "").lower()
    return Request(method, unquote(path) or "/", query, headers, keeps_alive)


def encoded(answer: Response, method: str, *, keeps_alive: bool) -> bytes:
    """The bytes of an answer; without a body for HEAD, and without headers that describe one for status 304."""
    of_the_body = {"Content-Type": answer.content_type, "Content-Length": str(len(answer.body))}
    headers = {
        "Date": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()),
        **({} if answer.status == HTTPStatus.NOT_MODIFIED else of_the_body),
        "Connection": "keep-alive" if keeps_alive else "close",
        **answer.headers,
    }
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        *(f"{name}: {headers[name]}" for name in headers),
    ]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    return head if method == "HEAD" else head + answer.body


def bare(status: HTTPStatus) -> Response:
    """An answer that consists of its status."""
    return Response(status, "text/plain; charset=utf-8", f"{status.phrase}\n".encode())


log = logging.getLogger(__name__)

REQUEST_SECONDS = 10.0
"""Limit for a complete request, from its first byte; for the first request from the start of the connection."""
IDLE_SECONDS = 75.0
"""Limit between an answer and the next request: scrapers that keep a connection scrape at least once a minute."""
ANSWER_SECONDS = 30.0
"""Limit for a client to read an answer."""
HANDSHAKE_SECONDS = 5.0
"""Limit of the TLS handshake, which takes some milliseconds and two round trips."""
GOODBYE_SECONDS = 2.0
"""Limit of the TLS shutdown."""
MOST_CONNECTIONS = 200
MOST_OF_A_CLIENT = 50
"""Limit of connections from one address."""
MOST_HANDSHAKES = 40
"""Limit of unfinished TLS handshakes: their clients are not verified yet, and each has its own buffers."""
MOST_HANDSHAKES_OF_A_CLIENT = 10
MOST_UNREAD_BYTES = 32 << 20
"""Limit of all answers that are being sent, together."""
_CHUNK_BYTES = 64 << 10


class Doing(IntEnum):
    """What a connection waits for. If there are too many, the lowest are closed first, longest wait first."""

    GREETING = 0
    """Its client, during the TLS handshake."""
    WAITING = 1
    """The next request."""
    SENDING = 2
    """Its client, to read the answer."""
    ANSWERING = 3
    """The handler."""


class Connection:
    """A connection of one client."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        peer: Any = writer.get_extra_info("peername")
        is_local = writer.get_extra_info("socket").family == socket.AF_UNIX
        self.client = Client(address="" if is_local or not peer else peer[0], is_local=is_local)
        self.is_new = True
        self.task = asyncio.current_task()
        self.unread = 0
        """Number of bytes of its answer that are not sent yet."""
        self.turn_to(Doing.WAITING)

    def turn_to(self, doing: Doing) -> None:
        """Set what the connection waits for, from now on."""
        self.doing = doing
        self.since = time.monotonic()

    def worth(self) -> tuple[Doing, float]:
        """The sort key for closing: the lowest is closed first."""
        return self.doing, self.since

    async def encrypt(self, context: "ssl.SSLContext") -> None:
        """Start TLS, before the first request. Raises OSError if the handshake fails."""
        self.turn_to(Doing.GREETING)
        await self.writer.start_tls(context, ssl_handshake_timeout=HANDSHAKE_SECONDS)
        self.client = replace(self.client, certificate=self.writer.get_extra_info("peercert") or {})

    async def close(self) -> None:
        """Close the connection. A TLS shutdown that takes longer than GOODBYE_SECONDS is aborted."""
        self.writer.close()
        if self.writer.get_extra_info("ssl_object") is not None:
            self.turn_to(Doing.WAITING)
            try:
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await self.writer.wait_closed()
            finally:
                self.writer.transport.abort()

    async def send(self, data: bytes) -> None:
        """Send in chunks, so that the transport does not buffer all data. Raises OSError, also after ANSWER_SECONDS."""
        self.turn_to(Doing.SENDING)
        view = memoryview(data)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                for begin in range(0, len(view), _CHUNK_BYTES):
                    self.unread = len(view) - begin
                    self.writer.write(view[begin : begin + _CHUNK_BYTES])
                    await self.writer.drain()
        finally:
            self.unread = 0


class HttpConnections:
    """The open connections of all listening sockets."""

    def __init__(self, handler: Handler, encryption: Encryption | None = None) -> None:
        self._handler = handler
        self._encryption = encryption or Encryption()
        self._open: set[Connection] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until its end. Never raises."""
        connection = Connection(writer)
        context = None if connection.client.is_local else self._encryption.context
        self._make_room_for(connection, self._open, MOST_CONNECTIONS, MOST_OF_A_CLIENT)
        self._open.add(connection)
        try:
            if context is not None:
                await self._greet(connection, context)
            while await self._exchange(connection, reader):
                pass
            await connection.close()
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # the peer is gone or too slow, or the connection was closed to make room or at the end of the process
        finally:
            self._open.discard(connection)
            writer.close()

    def close(self) -> None:
        """Abort all connections."""
        for connection in list(self._open):
            self._end(connection)

    async def _greet(self, connection: Connection, context: "ssl.SSLContext") -> None:
        """Start TLS, within the limits of handshakes. Raises OSError if it fails."""
        greeting = [each for each in self._open if each.doing is Doing.GREETING]
        self._make_room_for(connection, greeting, MOST_HANDSHAKES, MOST_HANDSHAKES_OF_A_CLIENT)
        await connection.encrypt(context)

    def _make_room_for(
        self, newcomer: Connection, others: Collection[Connection], most: int, most_of_a_client: int
    ) -> None:
        """Abort the lowest connection by `worth`, of the same client or of all, if the limit is reached."""
        of_the_client = [each for each in others if each.client.address == newcomer.client.address]
        if len(of_the_client) >= most_of_a_client:
            self._end(min(of_the_client, key=Connection.worth))
        elif len(others) >= most:
            self._end(min(others, key=Connection.worth))

    def _make_room_for_bytes(self, wanted: int) -> None:
        """Abort the connections that have been sending longest until the unread bytes are within the limit."""
        sending = sorted((each for each in self._open if each.doing is Doing.SENDING), key=Connection.worth)
        unread = sum(each.unread for each in sending) + wanted
        for each in sending:
            if unread <= MOST_UNREAD_BYTES:
                break
            unread -= each.unread
            self._end(each)

    def _end(self, connection: Connection) -> None:
        self._open.discard(connection)
        connection.writer.transport.abort()
        if connection.task is not None:
            connection.task.cancel()  # no client is left to receive its answer

    async def _exchange(self, connection: Connection, reader: asyncio.StreamReader) -> bool:
        """Handle one request; returns True if another may follow."""
        connection.turn_to(Doing.WAITING)
        try:
            request = await _next_request(connection, reader)
        except RequestError as error:
            await connection.send(encoded(bare(error.status), "GET", keeps_alive=False))
            return False
        connection.turn_to(Doing.ANSWERING)
        try:
            answer = await self._handler(replace(request, client=connection.client))
        except Exception:  # a defect in one page must not end the others
            log.exception("cannot answer %s %r", request.method, request.path)
            answer = bare(HTTPStatus.INTERNAL_SERVER_ERROR)
        message = encoded(answer, request.method, keeps_alive=request.keeps_alive)
        self._make_room_for_bytes(len(message))
        await connection.send(message)
        await asyncio.sleep(0)  # lets other connections run: a client may have sent thousands of requests at once
        return request.keeps_alive


async def _next_request(connection: Connection, reader: asyncio.StreamReader) -> Request:
    """Read the next request within the time limits. Raises RequestError, EOFError or TimeoutError."""
    begun = b""
    if not connection.is_new:
        async with asyncio.timeout(IDLE_SECONDS):
            begun = await reader.readexactly(1)
    connection.is_new = False
    async with asyncio.timeout(REQUEST_SECONDS):
        return await read(reader, begun)
