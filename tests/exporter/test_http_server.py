"""The exporter's HTTP on the wire: what it understands, what it refuses, and that nobody can take it from others."""

import asyncio
import threading
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devherd.exporter import server as connections_module
from devherd.exporter.application import Rendering
from devherd.exporter.server import HEAD_BYTES, HttpConnections, Request, RequestError, Response, parse

PAGE_BYTES = 32 << 20


async def echo(request):
    """Says what it was asked."""
    if request.path == "/defect":
        raise ValueError("a defect")
    return Response(HTTPStatus.OK, "text/plain", f"{request.method} {request.path} {request.query}".encode())


@asynccontextmanager
async def serving(handler=echo):
    """The port of a server that echoes, or answers otherwise."""
    connections = HttpConnections(handler)
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


async def half_a_request(port, **options):
    """A connection whose first byte has been read by the server: it has been accepted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
    writer.write(b"G")
    await asyncio.sleep(0)
    return reader, writer


async def ended(connection):
    """That the server ends a connection."""
    try:
        return await asyncio.wait_for(connection[0].read(1), 20) == b""
    except ConnectionError:
        return True


async def lost(connection):
    """Whether a connection ends before the whole of its page has come."""
    try:
        await asyncio.wait_for(connection[0].readexactly(PAGE_BYTES), 20)
    except (ConnectionError, asyncio.IncompleteReadError):
        return True
    return False


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
    """A request that is never finished holds a connection for a while only, and so does none after an answer."""
    monkeypatch.setattr(connections_module, "REQUEST_SECONDS", 0.2)
    monkeypatch.setattr(connections_module, "IDLE_SECONDS", 0.2)
    async with serving() as port:
        assert await ask(port, b"") == b""
        assert await ask(port, b"GET / HTTP/1.1\r\nHost") == b""
        assert await ask(port, b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf") == b""
        assert bodies(await ask(port, b"GET / HTTP/1.1\r\n\r\n")) == [(200, "GET / ")]


async def test_a_newcomer_takes_the_place_of_the_connection_that_waits_longest(monkeypatch):
    """For its client: one whose request is complete is not the one to go."""
    monkeypatch.setattr(connections_module, "MOST_CONNECTIONS", 3)
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slow(request):
        if request.path == "/slow":
            begun.set()
            await may_end.wait()
        return await echo(request)

    request = b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"
    async with serving(slow) as port:
        asked_first = asyncio.create_task(ask(port, request.replace(b"/ ", b"/slow ", 1)))
        await begun.wait()
        older, newer = [await half_a_request(port) for _ in range(2)]
        assert bodies(await ask(port, request)) == [(200, "GET / ")]
        assert await ended(older)
        newer[1].write(request[1:])
        assert bodies(await asyncio.wait_for(newer[0].read(), 20)) == [(200, "GET / ")]
        may_end.set()
        assert bodies(await asked_first) == [(200, "GET /slow ")]
        older[1].close()
        newer[1].close()


async def test_one_client_takes_its_own_places_only(monkeypatch):
    """A pod that opens connections without end ends its own."""
    monkeypatch.setattr(connections_module, "MOST_OF_A_CLIENT", 2)
    async with serving() as port:
        other = await half_a_request(port, local_addr=("127.0.0.2", 0))
        opened = [await half_a_request(port) for _ in range(4)]
        assert [await ended(each) for each in opened[:2]] == [True, True]
        for _, writer in (other, opened[2], opened[3]):
            writer.write(b"ET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        for reader, writer in (other, opened[2], opened[3]):
            assert bodies(await asyncio.wait_for(reader.read(), 20)) == [(200, "GET / ")]
            writer.close()


async def test_a_client_that_sends_many_requests_at_once_lets_others_in_between(monkeypatch):
    """They were all answered before anybody else was: the loop stood still, and the process was taken for hung."""
    many = 3000
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n" * many)
        turns = 0
        received = 0
        while received < many:
            await asyncio.sleep(0)
            turns += 1
            received += (await reader.read(1 << 16)).count(b"HTTP/1.1 200")
        writer.close()
    assert turns > 10


async def test_a_page_that_nobody_waits_for_any_more_is_not_made():
    """Connections that had to give way left their pages behind them in the queue."""
    rendering, begun, may_end, made = Rendering(), asyncio.Event(), threading.Event(), []
    loop = asyncio.get_running_loop()

    def slow():
        loop.call_soon_threadsafe(begun.set)
        may_end.wait()

    first = asyncio.create_task(rendering.shared("first", slow))
    await begun.wait()
    others = [asyncio.create_task(rendering.shared(key, lambda key=key: made.append(key))) for key in "abb"]
    await asyncio.sleep(0.01)
    assert rendering.queue_length == 2
    others[0].cancel()
    others[1].cancel()
    await asyncio.sleep(0.01)
    assert rendering.queue_length == 1
    may_end.set()
    await asyncio.gather(first, others[2])
    assert made == ["b"]


async def test_answers_that_nobody_reads_give_way_to_one_that_is_read(monkeypatch):
    """Their bytes are bounded, all together; the one that is read comes whole."""
    # The kernel takes some megabytes of each for itself: 24 to 32 are unread.
    monkeypatch.setattr(connections_module, "MOST_UNREAD_BYTES", 70 << 20)
    page = Response(HTTPStatus.OK, "text/plain", b"x" * PAGE_BYTES)

    async def large(_):
        return page

    request = b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"
    async with serving(large) as port:
        slow = []
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 10)
            writer.write(request)
            await reader.readexactly(100)
            slow.append((reader, writer))
        answer = await ask(port, request)
        assert len(answer.partition(b"\r\n\r\n")[2]) == len(page.body)
        assert await lost(slow[0])
        assert not await lost(slow[1])
        for _, writer in slow:
            writer.close()


async def test_a_newline_in_a_path_is_not_one_in_the_log(caplog):
    """It would let anybody write lines of their own."""

    async def defect(_):
        raise ValueError("a defect")

    async with serving(defect) as port:
        assert b" 500 " in await ask(port, b"GET /%0aforged%0d HTTP/1.0\r\n\r\n")
    [record] = caplog.records
    assert record.getMessage() == "cannot answer GET '/\\nforged\\r'"


@given(st.binary(max_size=80))
def test_no_bytes_make_more_than_a_refusal(head):
    """Whatever comes: a request, or an error that has a status."""
    try:
        outcome = parse(head + b"\r\n\r\n")
    except RequestError as error:
        outcome = error.status
    assert isinstance(outcome, Request) or outcome is HTTPStatus.BAD_REQUEST
