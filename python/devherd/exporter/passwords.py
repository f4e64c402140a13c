"""The users of a web configuration, and whether a password is theirs.

bcrypt takes 50 ms and more of a core, on purpose. So hashes are made in a thread, one at a time and one for each client
address, and what was right once is remembered: a scraper costs one hash, and whoever guesses keeps nobody else waiting.
"""

import asyncio
import base64
import hashlib
import os
from collections.abc import Mapping

MOST_REMEMBERED = 100
_LONGEST_PASSWORD = 72
"""Bytes that bcrypt looks at."""


class TooManyGuessesError(Exception):
    """Another password from the same address is being checked."""


class Passwords:
    """`users` are hashes by name; without any, nobody has to say theirs."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = {name: hashed.encode() for name, hashed in users.items()}
        self._salt = os.urandom(16)
        self._right: set[bytes] = set()
        self._guessing: dict[str, tuple[bytes, asyncio.Task[bool]]] = {}
        self._turn = asyncio.Lock()

    async def fits(self, authorization: str, address: str) -> bool:
        """Whether a header `Authorization` has a user's password. Raises TooManyGuessesError."""
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
        from bcrypt import checkpw  # noqa: PLC0415 - where there are users alone

        hashed = self._users.get(user)
        somebodys = next(iter(self._users.values()))  # who does not exist takes as long as who does
        async with self._turn:
            fits = await asyncio.to_thread(checkpw, password[:_LONGEST_PASSWORD], hashed or somebodys)
        is_right = fits and hashed is not None
        if is_right:
            if len(self._right) >= MOST_REMEMBERED:
                self._right.clear()
            self._right.add(digest)
        return is_right


def _credentials(authorization: str) -> tuple[str, bytes] | None:
    """User and password of RFC 7617."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except ValueError:  # not base64, not ASCII, not UTF-8
        return None
