"""HTTP/1.1 messages, as far as probes, scrapers and browsers need them: GET and HEAD, keep-alive, no uploads.

Source: RFC 9112. Frameworks were measured: they cost 3 to 20 MB of memory, asyncio is there with gRPC anyway.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote, urlsplit

HEAD_BYTES = 1 << 14
"""Of a request line and its headers."""
BODY_BYTES = 1 << 16
"""Of a body, which is read and discarded: no page takes one."""


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks."""

    address: str = ""
    is_local: bool = False
    """Over a Unix socket: its mode has let them in."""
    certificate: Mapping[str, Any] = field(default_factory=dict)
    """Theirs, verified, as `ssl.SSLSocket.getpeercert` has it; empty if they showed none."""


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
class Answer:
    """What is sent back."""

    status: HTTPStatus
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Awaitable[Answer]]


class RequestError(Exception):
    """A malformed or too large request, with the status to answer it by."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


async def read(reader: asyncio.StreamReader, begun: bytes = b"") -> Request:
    """The next request, without its body; `begun` has been read of it. Raises RequestError, EOFError."""
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
    """Request line and headers, with the empty line after them. Raises RequestError."""
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
    if not target.startswith("/"):  # as sent to a proxy
        try:
            path, query = urlsplit(target).path, urlsplit(target).query
        except ValueError as error:
            raise RequestError(HTTPStatus.BAD_REQUEST) from error
    keeps_alive = version == "HTTP/1.1" and "close" not in headers.get("connection", "").lower()
    return Request(method, unquote(path) or "/", query, headers, keeps_alive)


def encoded(answer: Answer, method: str, *, keeps_alive: bool) -> bytes:
    """An answer as it is sent: to HEAD without its body. One that says that nothing has changed describes no body."""
    of_the_body = {"Content-Type": answer.content_type, "Content-Length": str(len(answer.body))}
    headers = {
        "Date": formatdate(usegmt=True),
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


def bare(status: HTTPStatus) -> Answer:
    """An answer that says its status and no more."""
    return Answer(status, "text/plain; charset=utf-8", f"{status.phrase}\n".encode())
