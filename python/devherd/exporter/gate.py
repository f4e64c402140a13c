"""Access control: passwords and client certificates of the web configuration, and the headers that it adds."""

import asyncio
import base64
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from devherd.config.web import Web
from devherd.exporter.server import Handler, Request, Response, bare

MOST_REMEMBERED = 100
_LONGEST_PASSWORD = 72
"""Number of bytes that bcrypt uses."""


class TooManyGuessesError(Exception):
    """Another password from the same address is being checked."""


class Passwords:
    """Checks passwords. `users` are hashes by name, at least one when `fits` is called."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = {name: hashed.encode() for name, hashed in users.items()}
        self._salt = os.urandom(16)
        self._right: set[bytes] = set()
        self._guessing: dict[str, tuple[bytes, asyncio.Task[bool]]] = {}
        self._turn = asyncio.Lock()

    async def fits(self, authorization: str, address: str) -> bool:
        """True if an `Authorization` header has a user's password.

        Raises TooManyGuessesError if another password from the same address is being checked.
        """
        given = _credentials(authorization)
        if given is None:
            return False
        digest = hashlib.blake2b(authorization.encode(), key=self._salt).digest()
        if digest in self._right:
            return True
        guess = self._guessing.get(address)
        if guess is None:
            task = asyncio.create_task(self._check(digest, *given))
            guess = self._guessing[address] = digest, task
            task.add_done_callback(lambda _: self._guessing.pop(address))
        elif guess[0] != digest:
            raise TooManyGuessesError
        return await asyncio.shield(guess[1])

    async def _check(self, digest: bytes, user: str, password: bytes) -> bool:
        from bcrypt import checkpw  # noqa: PLC0415 - only needed if there are users

        hashed = self._users.get(user)
        any_hash = next(iter(self._users.values()))  # an unknown user's check takes as long as a known one's
        async with self._turn:
            fits = await asyncio.to_thread(checkpw, password[:_LONGEST_PASSWORD], hashed or any_hash)
        is_right = fits and hashed is not None
        if is_right:
            if len(self._right) >= MOST_REMEMBERED:
                self._right.clear()
            self._right.add(digest)
        return is_right


def _credentials(authorization: str) -> tuple[str, bytes] | None:
    """User and password of a Basic header (RFC 7617); None if it is malformed."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except ValueError:  # not base64, not ASCII, not UTF-8
        return None


OPEN_TO_ALL = frozenset({"/healthz", "/readyz"})


class Gate:
    """Wraps another handler with access control."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.guard(Web())

    def guard(self, web: Web) -> None:
        """Apply this configuration to all further requests."""
        self._web = web
        self._passwords = Passwords(web.users)

    async def answer(self, request: Request) -> Response:
        """The answer to a request, or the refusal of this client."""
        is_open = request.client.is_local or request.path in OPEN_TO_ALL
        refusal = None if is_open else await self._refusal(request)
        answer = refusal or await self._handler(request)
        return replace(answer, headers={**answer.headers, **self._web.headers})

    async def _refusal(self, request: Request) -> Response | None:
        tls = self._web.tls
        if tls is not None and tls.client_auth_type != "NoClientCert":
            shown = request.client.certificate
            if not shown and tls.client_auth_type == "RequireAndVerifyClientCert":
                return _text(HTTPStatus.FORBIDDEN, "a client certificate is required\n")
            if shown and tls.client_allowed_sans and not set(tls.client_allowed_sans) & set(_names(shown)):
                return _text(HTTPStatus.FORBIDDEN, "this client certificate is not among client_allowed_sans\n")
        if not self._web.users:
            return None
        try:
            if await self._passwords.fits(request.headers.get("authorization", ""), request.client.address):
                return None
        except TooManyGuessesError:
            return bare(HTTPStatus.TOO_MANY_REQUESTS)
        return replace(bare(HTTPStatus.UNAUTHORIZED), headers={"WWW-Authenticate": 'Basic realm="devherd"'})


def _names(certificate: Mapping[str, Any]) -> Iterator[str]:
    """The certificate's subject alternative names: hosts, addresses, mail addresses and URIs."""
    for _, name in certificate.get("subjectAltName", ()):
        yield name


def _text(status: HTTPStatus, body: str) -> Response:
    return Response(status, "text/plain; charset=utf-8", body.encode())
