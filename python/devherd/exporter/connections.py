"""Open HTTP connections, each served in a task of its own; however many clients do nothing, a newcomer is served.

The port is open to the whole cluster: a client that holds connections, sends half a request or does not read its
answer must keep neither a probe nor a scrape from theirs. Where there are too many, one that waits for its client goes.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Collection
from dataclasses import replace
from enum import IntEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from devherd.exporter.encryption import Encryption
from devherd.exporter.http_message import Client, Handler, Request, RequestError, bare, encoded, read

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)

REQUEST_SECONDS = 10.0
"""From its first byte, or from the beginning of the connection, until a request is complete."""
IDLE_SECONDS = 75.0
"""Without a byte after an answer: scrapers that keep a connection come back each minute at least."""
ANSWER_SECONDS = 30.0
"""Until an answer is read."""
HANDSHAKE_SECONDS = 5.0
"""Of TLS, at the beginning; it takes some milliseconds and two round trips."""
GOODBYE_SECONDS = 2.0
"""Of TLS, at the end."""
MOST_CONNECTIONS = 200
MOST_OF_A_CLIENT = 50
"""From one address."""
MOST_HANDSHAKES = 40
"""Of TLS that have begun: nobody knows yet who is there, and each has buffers of its own."""
MOST_HANDSHAKES_OF_A_CLIENT = 10
MOST_UNREAD_BYTES = 32 << 20
"""Of all answers that are being sent."""
_CHUNK_BYTES = 64 << 10


class Doing(IntEnum):
    """What a connection waits for. Where there are too many, the lowest go first, of these who waits longest."""

    GREETING = 0
    """For its client, in the handshake of TLS."""
    WAITING = 1
    """For its client's next request."""
    SENDING = 2
    """For its client to read."""
    ANSWERING = 3
    """For us."""


class Connection:
    """One client's."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        peer: Any = writer.get_extra_info("peername")
        is_local = writer.get_extra_info("socket").family == socket.AF_UNIX
        self.client = Client(address="" if is_local or not peer else peer[0], is_local=is_local)
        self.is_new = True
        self.task = asyncio.current_task()
        self.unread = 0
        """Bytes of its answer that are still to be sent."""
        self.turn_to(Doing.WAITING)

    def turn_to(self, doing: Doing) -> None:
        """It waits for something else from now on."""
        self.doing = doing
        self.since = time.monotonic()

    def worth(self) -> tuple[Doing, float]:
        """The least goes first."""
        return self.doing, self.since

    async def encrypt(self, context: "ssl.SSLContext") -> None:
        """Begin TLS, before the first request. Raises OSError."""
        self.turn_to(Doing.GREETING)
        await self.writer.start_tls(context, ssl_handshake_timeout=HANDSHAKE_SECONDS)
        self.client = replace(self.client, certificate=self.writer.get_extra_info("peercert") or {})

    async def close(self) -> None:
        """Say goodbye; not for long: whoever does not answer must not keep the connection."""
        self.writer.close()
        if self.writer.get_extra_info("ssl_object") is not None:
            self.turn_to(Doing.WAITING)
            try:
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await self.writer.wait_closed()
            finally:
                self.writer.transport.abort()

    async def send(self, data: bytes) -> None:
        """Send, a chunk at a time: what is not read yet is kept once, however many read it. Raises OSError."""
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


class Connections:
    """The open connections of all listening sockets."""

    def __init__(self, handler: Handler, encryption: Encryption | None = None) -> None:
        self._handler = handler
        self._encryption = encryption or Encryption()
        self._open: set[Connection] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end. Never raises."""
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
            pass  # the peer is gone, too slow or one too many; or this process ends
        finally:
            self._open.discard(connection)
            writer.close()

    def close(self) -> None:
        """End all of them at once."""
        for connection in list(self._open):
            self._end(connection)

    async def _greet(self, connection: Connection, context: "ssl.SSLContext") -> None:
        """Begin TLS. Raises OSError."""
        greeting = [each for each in self._open if each.doing is Doing.GREETING]
        self._make_room_for(connection, greeting, MOST_HANDSHAKES, MOST_HANDSHAKES_OF_A_CLIENT)
        await connection.encrypt(context)

    def _make_room_for(
        self, newcomer: Connection, others: Collection[Connection], most: int, most_of_a_client: int
    ) -> None:
        """End the least of its own client's, or of all, where there are as many as may be."""
        of_the_client = [each for each in others if each.client.address == newcomer.client.address]
        if len(of_the_client) >= most_of_a_client:
            self._end(min(of_the_client, key=Connection.worth))
        elif len(others) >= most:
            self._end(min(others, key=Connection.worth))

    def _make_room_for_bytes(self, wanted: int) -> None:
        """End those that have been reading longest while too much is unread."""
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
            connection.task.cancel()  # nobody is there for the page that it waits for

    async def _exchange(self, connection: Connection, reader: asyncio.StreamReader) -> bool:
        """One request and its answer; whether another may follow."""
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
        await asyncio.sleep(0)  # others first: a client may have sent thousands of requests at once
        return request.keeps_alive


async def _next_request(connection: Connection, reader: asyncio.StreamReader) -> Request:
    """Raises RequestError, EOFError, TimeoutError."""
    begun = b""
    if not connection.is_new:
        async with asyncio.timeout(IDLE_SECONDS):
            begun = await reader.readexactly(1)
    connection.is_new = False
    async with asyncio.timeout(REQUEST_SECONDS):
        return await read(reader, begun)
