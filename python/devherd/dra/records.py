"""The claims that are prepared on this node, in one file for both processes that serve the drivers.

A process changes it under the lock of the file beside it, which it holds for that alone, never while it waits. Without
the lock it reads what may be old in the next moment. After a loss of power there is the old content or the new, unless
claims were being removed on a full disk: then the file may be damaged, which is noticed.
"""

import contextlib
import errno
import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from devherd import spool
from devherd.proto.spool_pb2 import PreparedClaim, PreparedClaims
from devherd.spool import Identity, identity_of

log = logging.getLogger(__name__)

Key = tuple[str, str]
"""Driver and uid of a claim."""
Claims = dict[Key, PreparedClaim]
LOCK_SECONDS = 3.0
"""After this time a process that holds the lock hangs: a change takes some milliseconds."""
_LOCK_PERIOD_SECONDS = 0.005
_HEALING = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_UNSEEN: Identity = (-1, -1, -1)
"""Of no file: it is read when it is needed next."""

Answer = TypeVar("Answer")


class RecordsError(Exception):
    """The file cannot be read or changed: what, why, and the cure."""

    def __init__(self, what: str, why: str, cure: str, *, may_heal: bool) -> None:
        super().__init__(f"{what} — {why} — {cure}")
        self.may_heal = may_heal
        """Whether it is worth while to try again."""

    @classmethod
    def of(cls, what: str, directory: Path, error: OSError) -> "RecordsError":
        """What an error in this directory means."""
        cure = f"make room in {directory}" if error.errno in _FULL else f"make {directory} usable"
        return cls(what, error.strerror or str(error), cure, may_heal=error.errno in _HEALING)


class ClaimRecords:
    """The file. Two threads of a process may use it at once."""

    def __init__(self, file: Path, *, lock_seconds: float = LOCK_SECONDS) -> None:
        self._file = file
        self._lock_seconds = lock_seconds
        self._last: tuple[Identity | None, Mapping[Key, PreparedClaim]] = (_UNSEEN, {})

    def read(self) -> Mapping[Key, PreparedClaim]:
        """The claims as they are now. Raises RecordsError."""
        seen = identity_of(self._file)
        if seen != self._last[0]:
            try:
                self._last = seen, self._content()
            except _DamagedError:  # or it was read while it was written in place
                with self._locked():
                    self._last = _UNSEEN, self._whole_content()
        return self._last[1]

    def change(self, edit: Callable[[Claims], Answer], lock_seconds: float | None = None) -> Answer:
        """Let `edit` change the claims, under the lock; returns its result. What it raises leaves them as they were.

        `lock_seconds`: another limit for the wait. Raises RecordsError, and then they are as they were, too. Removing
        claims needs no space.
        """
        with self._locked(lock_seconds):
            before = self._whole_content()
            claims = dict(before)
            answer = edit(claims)
            if claims != before:
                self._write(claims, before)
        return answer

    def _content(self) -> Claims:
        """Raises RecordsError, _DamagedError."""
        try:
            content = self._file.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._failure("cannot be read", error) from error
        return _parsed(content)

    def _whole_content(self) -> Claims:
        """The same under the lock: what is damaged is set aside. Raises RecordsError."""
        try:
            return self._content()
        except _DamagedError as damage:
            aside = self._file.with_name(f"{self._file.name}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
            try:
                self._file.rename(aside)
            except OSError as error:
                raise self._failure(f"is damaged ({damage}), and cannot be renamed", error) from error
            log.error(
                "%s is damaged: %s. Which claim has which device is not known any more: running pods keep theirs, and"
                " claims are noted again when they are prepared, but a device of a pod that was deleted by force may be"
                " given to the next one before its container has ended. The file is kept as %s",
                self._file,
                damage,
                aside,
            )
            return {}

    def _write(self, claims: Claims, before: Claims) -> None:
        """Replace the content. Raises RecordsError."""
        message = PreparedClaims(claims=[claims[key] for key in sorted(claims)])
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            if claims:
                spool.replace(self._file, spool.encoded(message), mode=0o600, is_synced=True)
            else:
                self._file.unlink(missing_ok=True)  # an empty file would look like one whose content was lost
        except OSError as error:
            is_shorter = claims and all(before.get(key) == claim for key, claim in claims.items())
            if not is_shorter or error.errno not in _FULL:
                raise self._failure("cannot be written", error) from error
            self._write_in_place(spool.encoded(message), error)
        self._last = _UNSEEN, claims

    def _write_in_place(self, content: bytes, failure: OSError) -> None:
        """Write what is shorter than the file: it needs no space, and pods can end on a full disk.

        A process that is killed meanwhile leaves a damaged file.
        """
        try:
            with self._file.open("r+b") as file:
                file.write(content)
                file.truncate()
                os.fsync(file.fileno())
        except OSError as error:
            raise self._failure("cannot be written", failure) from error

    @contextlib.contextmanager
    def _locked(self, seconds: float | None = None) -> Iterator[None]:
        """Hold the lock. Raises RecordsError."""
        path = self._file.with_suffix(".lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._failure("cannot be locked", error) from error
        try:
            self._await_lock(descriptor, self._lock_seconds if seconds is None else seconds)
            yield
        finally:
            os.close(descriptor)

    def _await_lock(self, descriptor: int, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno != errno.EWOULDBLOCK:
                    raise self._failure("cannot be locked", error) from error
            else:
                return
            if time.monotonic() >= until:
                raise RecordsError(
                    f"the record of prepared claims, {self._file}, is in use",
                    f"another process of devherd has held its lock for {seconds:g} s",
                    "devherd replaces a process that hangs",
                    may_heal=True,
                )
            time.sleep(_LOCK_PERIOD_SECONDS)

    def _failure(self, what: str, error: OSError) -> RecordsError:
        return RecordsError.of(f"the record of prepared claims, {self._file}, {what}", self._file.parent, error)


class _DamagedError(Exception):
    """The content is not what was written."""


def _key(claim: PreparedClaim) -> Key:
    return claim.driver, claim.uid


def _parsed(content: bytes) -> Claims:
    """Raises _DamagedError."""
    if not content:
        raise _DamagedError("it is empty")
    try:
        message = PreparedClaims.FromString(content)
    except DecodeError as error:
        raise _DamagedError(f"no PreparedClaims message: {error}") from error
    if len(UnknownFieldSet(message)):
        raise _DamagedError("it has other fields than a PreparedClaims message")
    if any(not (claim.driver and claim.uid and claim.devices) for claim in message.claims):
        raise _DamagedError("a claim without driver, uid or devices")
    claims = {_key(claim): claim for claim in message.claims}
    if len(claims) != len(message.claims):
        raise _DamagedError("a claim is in it twice")
    return claims
