"""A call to the API server ends in time and in bounds, whatever answers there, or does not."""

import contextlib
import re
import socket
import threading
import time

import pytest
from dripping_server import HEAD, DrippingServer, without_end

from devherd import api_server as api_module
from devherd import api_server as api_server_calls
from devherd.api_server import CALL_SECONDS, Api, ApiError, Deadline
from devherd.config.api_access import ApiAccess
from devherd.waits import USUAL_WAITS

SECONDS = 0.5
NOTICED_SECONDS = 60
"""What drips here ends only when the test does: this notices it."""
RECORD = b"\x16\x03\x03\x40\x00" + b"\0" * 0x4000
"""The beginning of a TLS handshake, 16 KiB long."""
STEPS = {
    "the handshake": (b"", without_end(RECORD), False),
    "the status line": (b"", without_end(b"H"), True),
    "the head": (HEAD, without_end(b"X-More: 1\r\n"), True),
    "informational answers": (b"", without_end(b"HTTP/1.1 100 Continue\r\n\r\n"), True),
    "a body of a length": (HEAD + b"Content-Length: 1000000\r\n\r\n{", without_end(b" "), True),
    "a body of chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", without_end(b"1\r\n \r\n"), True),
    "a body without an end": (HEAD + b"Connection: close\r\n\r\n{", without_end(b" "), True),
}


@pytest.fixture
def dripping(api_server):
    """`dripping(at_once, then, in_tls)`: where it serves."""
    servers = []

    def serve(at_once, then, in_tls=True):
        servers.append(DrippingServer(api_server.directory, at_once, then, in_tls=in_tls))
        return ApiAccess.of_service_account("127.0.0.1", servers[-1].port, api_server.directory)

    yield serve
    for server in servers:
        server.close()


def refused(access, seconds=SECONDS):
    """What is said of a call, which has to end long before what it waits for."""
    api, began = Api(access, seconds=seconds), time.monotonic()
    with contextlib.closing(api), pytest.raises(ApiError) as caught:
        api.get("/x/y/z")
    assert time.monotonic() - began < NOTICED_SECONDS
    return caught.value


@pytest.mark.parametrize("step", STEPS)
def test_a_server_that_drips_is_left_after_the_time_for_a_whole_call(dripping, step):
    """Defect: each byte began the time anew, and such a server held the process for ever."""
    at_once, then, in_tls = STEPS[step]

    error = refused(dripping(at_once, then, in_tls))

    assert error.status == 0
    assert re.search("timed out|no complete answer within 0.5 s", str(error))


def test_a_kept_connection_has_the_time_anew_for_each_call(api_server, monkeypatch):
    """Of that of the call before nothing is left."""
    now = [0.0]
    monkeypatch.setattr(api_module, "Deadline", lambda seconds: Deadline(seconds, lambda: now[0]))
    with contextlib.closing(Api(api_server.access, seconds=60.0)) as api:
        for now[0] in (0.0, 100.0, 200.0):
            assert api.get("/x/y/z")["metadata"]["name"] == "z"


def test_what_is_left_of_the_time_gets_less_and_ends():
    """Never nothing or less: that would be no limit for a socket."""
    now = [10.0]
    deadline = Deadline(5.0, lambda: now[0])
    seen = []
    for now[0] in (10.0, 12.0, 14.5):
        seen.append(deadline.left())
    assert seen == [5.0, 3.0, 0.5]
    for now[0] in (15.0, 99.0):
        with pytest.raises(TimeoutError, match="no complete answer within 5 s"):
            deadline.left()


def test_one_time_is_for_all_addresses_of_a_name(api_server, monkeypatch):
    """A name of many addresses at which nobody answers takes no longer."""
    silent = socket.create_server(("127.0.0.1", 0), backlog=0)
    full = [socket.socket() for _ in range(3)]  # no more connections are taken
    for each in full:
        each.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            each.connect(silent.getsockname())
    address = (socket.AF_INET, socket.SOCK_STREAM, 0, "", silent.getsockname())
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [address] * 1000)

    assert refused(ApiAccess.of_service_account("api.example.com", 443, api_server.directory)).status == 0
    for each in (silent, *full):
        each.close()


def test_a_look_up_of_a_name_that_hangs_is_left(api_server, monkeypatch):
    """The resolver has limits of its own, which are longer."""
    ended = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [ended.wait(2 * NOTICED_SECONDS)][:0])

    error = refused(ApiAccess.of_service_account("api.example.com", 443, api_server.directory))
    ended.set()

    assert (error.status, str(error)) == (0, "the address of api.example.com is not found within 0.5 s")


def test_a_name_that_no_thread_is_left_to_look_up_is_said(api_server, monkeypatch):
    """Defect: the thread that follows the node ended for it, and nobody followed the node any more."""

    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)

    error = refused(ApiAccess.of_service_account("api.example.com", 443, api_server.directory))

    assert (error.status, str(error)) == (
        0,
        "the address of api.example.com cannot be looked up: can't start new thread",
    )


def test_a_name_that_is_not_known_is_said(api_server, monkeypatch):
    """In the resolver's words."""

    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)

    assert "Name or service not known" in str(
        refused(ApiAccess.of_service_account("api.example.com", 443, api_server.directory))
    )


def test_the_server_may_have_a_name(api_server, monkeypatch):
    """The certificate is for an address here, so it is the name that is refused, and not the connection."""
    address = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", api_server.port))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [address])

    assert "mismatch" in str(
        refused(ApiAccess.of_service_account("api.example.com", api_server.port, api_server.directory), NOTICED_SECONDS)
    )


@pytest.mark.parametrize("framing", [b"Content-Length: 90000000", b"Connection: close", b"Transfer-Encoding: chunked"])
def test_an_answer_of_any_size_is_not_taken(dripping, monkeypatch, framing):
    """What the API server keeps is smaller; the process has some MiB of memory."""
    monkeypatch.setattr(api_module, "LARGEST_ANSWER_BYTES", 1 << 20)
    piece = b" " * (1 << 16)
    piece = b"10000\r\n" + piece + b"\r\n" if b"chunked" in framing else piece

    error = refused(dripping(HEAD + framing + b"\r\n\r\n" + piece * 20, []), NOTICED_SECONDS)

    assert (error.status, str(error)) == (200, "200: the answer has more than 1 MiB")


def test_after_an_answer_that_is_too_large_the_next_one_is_read(api_server, monkeypatch):
    """Not its rest."""
    monkeypatch.setattr(api_module, "LARGEST_ANSWER_BYTES", 1 << 10)
    with contextlib.closing(Api(api_server.access)) as api:
        api_server.raw = b" " * 5000
        with pytest.raises(ApiError, match="more than"):
            api.get("/x/y/z")
        api_server.raw = b""

        assert api.get("/x/y/z")["metadata"]["name"] == "z"


def test_an_answer_that_is_cut_off_is_none(dripping):
    """It says how long it is."""
    error = refused(dripping(HEAD + b'Content-Length: 100\r\n\r\n{"metadata": {}}', []), NOTICED_SECONDS)

    assert error.status == 0
    assert "IncompleteRead" in str(error)


def test_a_process_beats_between_two_calls_and_none_takes_as_long_as_its_silence_may():
    """With room for what is done beside the call."""
    beats = []
    api = Api(ApiAccess.of_service_account("127.0.0.1", 1), lambda: beats.append(len(beats)))
    for _ in range(3):
        with pytest.raises(ApiError):
            api.get("/x")

    assert beats == [0, 1, 2]
    assert USUAL_WAITS.silence / 2 >= CALL_SECONDS


def test_an_address_is_not_looked_up_as_a_name(api_server, monkeypatch):
    """A pod is given the address: no thread is made."""
    monkeypatch.setattr(api_server_calls, "SimpleQueue", None)
    with contextlib.closing(Api(api_server.access)) as api:
        assert api.get("/x/y/z")["metadata"]["name"] == "z"
