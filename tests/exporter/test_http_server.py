"""The exporter's HTTP on the wire: what it understands, what it refuses, and that nobody can take it from others."""

import asyncio
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devherd.exporter import http_server
from devherd.exporter.http_server import HEAD_BYTES, Answer, Connections, Request, RequestError, parse


async def echo(request):
    """Says what it was asked."""
    if request.path == "/defect":
        raise ValueError("a defect")
    return Answer(HTTPStatus.OK, "text/plain", f"{request.method} {request.path} {request.query}".encode())


@asynccontextmanager
async def serving():
    """The port of a server that echoes."""
    connections = Connections(echo)
    server = await asyncio.start_server(connections.serve, "127.0.0.1", 0, limit=HEAD_BYTES)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        connections.close()


async def ask(port, sent):
    """All that comes back until the other side closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    answer = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    return answer


def bodies(answer):
    """Status and body of each answer on a connection."""
    found = []
    while answer:
        head, _, answer = answer.partition(b"\r\n\r\n")
        length = next(int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length: "))
        found.append((int(head.split()[1]), answer[:length].decode()))
        answer = answer[length:]
    return found


async def test_requests_on_one_connection_are_answered_in_turn():
    """Also when they are sent before the first answer is there, and with bodies that nobody wants."""
    async with serving() as port:
        sent = (
            b"GET /a?x=1 HTTP/1.1\r\nHost: h\r\n\r\n"
            b"POST /b%20c HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
            b"GET http://h:1/d?y HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
            b"GET /never HTTP/1.1\r\n\r\n"
        )
        assert bodies(await ask(port, sent)) == [(200, "GET /a x=1"), (200, "POST /b c "), (200, "GET /d y")]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.0\r\n\r\n", 200),
        (b"hello\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : h\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\n folded\r\n\r\n", 400),
        (b"GET http://[ HTTP/1.1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nContent-Length: 70000\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * (HEAD_BYTES + 10) + b"\r\n\r\n", 431),
        (b"GET /defect HTTP/1.1\r\nConnection: close\r\n\r\n", 500),
    ],
)
async def test_a_request_that_cannot_be_answered_is_refused_and_the_connection_ends(sent, status):
    """With the status that says why; nothing that follows on the connection is taken for a request."""
    async with serving() as port:
        answer = await ask(port, sent)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"\r\nConnection: close\r\n" in answer


async def test_head_gets_the_length_and_no_body():
    """As GET would have it."""
    async with serving() as port:
        answer = await ask(port, b"HEAD /a HTTP/1.1\r\nConnection: close\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Content-Length: 8" in head
    assert body == b""


async def test_a_connection_that_does_nothing_ends(monkeypatch):
    """A request that is never finished holds its connection for a minute at most."""
    monkeypatch.setattr(http_server, "IDLE_SECONDS", 0.2)
    async with serving() as port:
        assert await ask(port, b"GET / HTTP/1.1\r\nHost") == b""
        assert await ask(port, b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf") == b""


async def test_more_connections_than_there_may_be_are_turned_away_and_the_others_served(monkeypatch):
    """One too many is closed at once; a connection that ends makes room."""
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 2)
    request = b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"
    async with serving() as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        while True:
            try:
                if not await ask(port, request):
                    break
            except ConnectionError:
                break  # reset
        idle[0][1].write(request)
        assert bodies(await asyncio.wait_for(idle[0][0].read(), 20)) == [(200, "GET / ")]
        for _, writer in idle:
            writer.close()
        while True:
            try:
                if await ask(port, request):
                    break
            except ConnectionError:
                await asyncio.sleep(0.01)


@given(st.binary(max_size=80))
def test_no_bytes_make_more_than_a_refusal(head):
    """Whatever comes: a request, or an error that has a status."""
    try:
        outcome = parse(head + b"\r\n\r\n")
    except RequestError as error:
        outcome = error.status
    assert isinstance(outcome, Request) or outcome is HTTPStatus.BAD_REQUEST
