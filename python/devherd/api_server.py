"""A client of the API server on the standard library: client libraries need too much memory.

Each call has a deadline for all its steps: look-up of the name, connection, handshake, each read and write.
"""

import contextlib
import http
import http.client
import ipaddress
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar
from urllib.parse import urlencode

from devherd.config.api_access import ApiAccess

_Address = tuple[Any, ...]
"""A result of `socket.getaddrinfo` without the name: family, kind, protocol and address."""
CALL_SECONDS = 5.0
"""Limit of a whole call, from the look-up of a name to the last byte: half of Waits.silence."""
LARGEST_ANSWER_BYTES = 4 << 20
"""The API server stores no object above 3 MiB (`MaxRequestBodyBytes` of k8s.io/apiserver)."""
Json = dict[str, Any]
_LONGEST_MESSAGE = 500
_LONGEST_RETRY_AFTER_SECONDS = 3600.0
_JSON = "application/json"
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""<https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables>"""
Answer = TypeVar("Answer")
USER_AGENT = "devherd"
"""The API server names the writer of a field by it (`managedFields`)."""
_ATTEMPTS = 4
_IDLE_SECONDS = 60.0
"""A connection without a call for this time is closed; the server waits 90 s (k8s.io/apiserver, secure_serving.go)."""
_SPARED_SECONDS = 2.0
"""After a call without an answer, further calls fail at once for this time: the next part need not wait as well."""
_KEEPALIVE = {socket.TCP_KEEPIDLE: 15, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}
"""A connection whose server has vanished without a word fails after 30 s."""


class Deadline:
    """A moment `seconds` from now on `clock`."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._until = clock() + seconds

    def left(self) -> float:
        """Seconds that are left, more than 0. Raises TimeoutError once the deadline has passed."""
        left = self._until - self._clock()
        if left <= 0:
            raise TimeoutError(f"no complete answer within {self.seconds:g} s")
        return left


class TimedConnection(http.client.HTTPSConnection):
    """A connection for several calls; `within` sets the deadline of the next one.

    Every method raises TimeoutError, an OSError, once the deadline has passed.
    """

    sock: "_TimedSocket | None"

    def __init__(self, host: str, port: int, trusted: ssl.SSLContext, server_name: str = "") -> None:
        super().__init__(host, port, context=trusted)
        trusted.sslsocket_class = _TimedSocket
        self._trusted = trusted
        self._server_name = server_name or host
        self._deadline = Deadline(0)

    def within(self, deadline: Deadline) -> None:
        """Set the deadline of all following operations."""
        self._deadline = deadline
        if self.sock is not None:
            self.sock.deadline = deadline

    def connect(self) -> None:
        """Connect; http.client calls it for the first request."""
        plain = self._first_that_answers()
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEPALIVE.items():
                plain.setsockopt(socket.IPPROTO_TCP, option, value)
            plain.settimeout(self._deadline.left())  # the ssl module applies it to the whole handshake
            made = self._trusted.wrap_socket(plain, server_hostname=self._server_name)
        except BaseException:
            plain.close()
            raise
        assert isinstance(made, _TimedSocket)
        made.deadline = self._deadline
        self.sock = made

    def _first_that_answers(self) -> socket.socket:
        """A connection to the first address that accepts it."""
        failure: OSError = OSError(f"{self.host} has no address")
        for family, kind, protocol, address in _addresses_of(self.host, self.port, self._deadline):
            reached = socket.socket(family, kind, protocol)
            try:
                reached.settimeout(self._deadline.left())
                reached.connect(address)
            except OSError as error:
                reached.close()
                failure = error
            else:
                return reached
        raise failure


class _TimedSocket(ssl.SSLSocket):
    """A socket whose reads and writes end at the deadline; http.client uses only these two methods."""

    deadline: Deadline

    def recv_into(self, *arguments: Any, **options: Any) -> int:
        self.settimeout(self.deadline.left())
        return super().recv_into(*arguments, **options)

    def send(self, *arguments: Any, **options: Any) -> int:
        """Send a part; `sendall` calls it repeatedly."""
        self.settimeout(self.deadline.left())
        return super().send(*arguments, **options)


def _addresses_of(host: str, port: int, deadline: Deadline) -> list[_Address]:
    """The addresses of a host; a name is looked up in a thread, because the look-up cannot be interrupted.

    The thread ends by itself: the C library gives up after some tens of seconds at most.
    """
    if _is_address(host):
        return _looked_up(host, port)
    answers: SimpleQueue[list[_Address] | OSError] = SimpleQueue()

    def look_up() -> None:
        try:
            answers.put(_looked_up(host, port))
        except OSError as error:
            answers.put(error)

    try:
        threading.Thread(target=look_up, daemon=True).start()
    except RuntimeError as error:  # the pod has reached its limit
        raise OSError(f"the address of {host} cannot be looked up: {error}") from error
    try:
        answer = answers.get(timeout=deadline.left())
    except Empty:
        raise TimeoutError(f"the address of {host} is not found within {deadline.seconds:g} s") from None
    if isinstance(answer, OSError):
        raise answer
    return answer


def _looked_up(host: str, port: int) -> list[_Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, kind, protocol, address) for family, kind, protocol, _, address in found]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class ApiError(Exception):
    """A failed call: the HTTP status, 0 without an answer, and the reason, which becomes one line."""

    def __init__(self, status: int, why: str, retry_after_seconds: float | None = None) -> None:
        why = " ".join(why.split())
        super().__init__(f"{status}: {why}" if status else why)
        self.status = status
        self.retry_after_seconds = retry_after_seconds
        """After how long the server wants to be asked again; None if it does not say. With 429, and some 5xx."""


NO_ACCESS = ApiError(0, "there is no API server to talk to: neither a pod's token nor a `kubeconfig` is there")


def _nothing() -> None:
    pass


class Api:
    """Calls one after the other over a kept connection. The token is read for each call, because it is renewed.

    `before_each` is called before each call; a call takes `seconds` at most. A call that finds its connection closed is
    sent again over a new one: each is idempotent, as the caller names what it creates. So is a call that is refused
    with 401: token and certificate are read again. Without `remembers_outages` each call asks the server.
    """

    def __init__(
        self,
        access: ApiAccess,
        before_each: Callable[[], None] = _nothing,
        *,
        seconds: float = CALL_SECONDS,
        remembers_outages: bool = True,
    ) -> None:
        self._access = access
        self._before_each = before_each
        self._seconds = seconds
        self._remembers_outages = remembers_outages
        self._connection: TimedConnection | None = None
        self._called_at = 0.0
        self._outage: tuple[float, ApiError] | None = None

    def get(self, path: str, *, metadata_alone: bool = False) -> Json:
        """An object, or only its metadata: a node's status is large. Raises ApiError."""
        answer = self._call("GET", path, accept=_METADATA if metadata_alone else _JSON)
        if not isinstance(answer.get("metadata"), dict):
            raise ApiError(http.client.OK, f"not a Kubernetes object: {json.dumps(answer)[:_LONGEST_MESSAGE]}")
        return answer

    def collection(
        self, path: str, made: Callable[[Json], Answer], *, page: int, **query: str
    ) -> tuple[list[Answer], str]:
        """What `made` makes of each object of a collection, read in pages, and the collection's version.

        It is read anew if the server has forgotten its beginning before the end, a few times at most. Raises ApiError.
        """
        return _past(http.HTTPStatus.GONE, partial(self._pages, path, made, {**query, "limit": str(page)}))

    def _pages(self, path: str, made: Callable[[Json], Answer], query: Mapping[str, str]) -> tuple[list[Answer], str]:
        found: list[Answer] = []
        following: Mapping[str, str] = {}
        version = ""
        while True:
            answer = self.get(f"{path}?{urlencode({**query, **following})}")
            found += map(made, answer.get("items") or ())
            metadata = answer["metadata"]
            version = version or str(metadata.get("resourceVersion", ""))  # the first: a watch tells what came later
            if not metadata.get("continue"):
                return found, version
            following = {"continue": metadata["continue"]}

    def watch(self, path: str, silence_seconds: float, *, metadata_alone: bool = False) -> Iterator[Json]:
        """Begin a watch; the iterator yields its events as they come, until the server ends it. Both raise ApiError.

        The iterator raises it, too, if nothing comes for `silence_seconds`. Exhaust it before the next call.
        """
        headers = {"Accept": _METADATA if metadata_alone else _JSON} | self._who()
        try:
            connection = self._connected()
            connection.within(Deadline(self._seconds))
            connection.request("GET", self._access.path + path, headers=headers)
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                self._content(answer)
                raise ApiError(answer.status, "not a watch")
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise _unanswered(error) from error
        return self._events_of(connection, answer, silence_seconds)

    def _events_of(
        self, connection: TimedConnection, answer: http.client.HTTPResponse, silence_seconds: float
    ) -> Iterator[Json]:
        is_whole = False
        try:
            connection.within(Deadline(silence_seconds))
            while line := answer.readline(LARGEST_ANSWER_BYTES):
                yield _event_in(line)
                connection.within(Deadline(silence_seconds))
            is_whole = True
        except (OSError, http.client.HTTPException) as error:
            raise _unanswered(error) from error
        finally:
            if not is_whole:
                self.close()

    def create(self, path: str, body: Json) -> Json:
        """Create an object that has a name, in a collection. Raises ApiError, 409 if there is one of this name."""
        return self._call("POST", path, body)

    def patch(self, path: str, body: Json) -> Json:
        """Merge into an object, lists by their keys (strategic merge). Raises ApiError."""
        return self._call("PATCH", path, body, kind="application/strategic-merge-patch+json")

    def replace(self, path: str, body: Json) -> Json:
        """Replace the object of the same name and version. Raises ApiError."""
        return self._call("PUT", path, body)

    def delete(self, path: str, **preconditions: str) -> None:
        """Remove an object, if it exists. Raises ApiError, 409 if its `uid` or `resourceVersion` is not the given."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions} if preconditions else None
        try:
            self._call("DELETE", path, body)
        except ApiError as error:
            if error.status != http.client.NOT_FOUND:
                raise

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def close_if_idle(self) -> None:
        """Close the connection if it has not been used for a minute."""
        if self._connection is not None and time.monotonic() - self._called_at > _IDLE_SECONDS:
            self.close()

    def _call(
        self, method: str, path: str, body: Json | None = None, *, kind: str = _JSON, accept: str = _JSON
    ) -> Json:
        self._before_each()
        if self._outage and time.monotonic() - self._outage[0] < _SPARED_SECONDS:
            raise self._outage[1]
        headers = {"Accept": accept, "Content-Type": kind}
        ask = partial(self._ask, method, path, body, headers, Deadline(self._seconds))
        try:
            return self._answered(ask)
        except ApiError as error:
            if error.status != http.client.UNAUTHORIZED:
                raise
        return self._answered(ask)  # with the token and the certificate as they are now

    def _answered(self, ask: Callable[[], Json]) -> Json:
        was_kept = self._connection is not None
        try:
            return ask()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not was_kept or isinstance(error, TimeoutError):
                raise self._noted(error) from error
        try:  # the server may have closed an idle connection
            return ask()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._noted(error) from error

    def _noted(self, error: Exception) -> ApiError:
        made = _unanswered(error)
        if self._remembers_outages:
            self._outage = time.monotonic(), made
        return made

    def _ask(self, method: str, path: str, body: Json | None, headers: Mapping[str, str], deadline: Deadline) -> Json:
        who = self._who()
        connection = self._connected()
        connection.within(deadline)
        content = None if body is None else json.dumps(body)
        connection.request(method, self._access.path + path, content, {**who, **headers})
        answer = connection.getresponse()
        self._called_at = time.monotonic()
        return self._content(answer)

    def _content(self, answer: http.client.HTTPResponse) -> Json:
        text = self._complete_text(answer)
        if answer.status == http.client.UNAUTHORIZED:
            self.close()  # the next connection shows the client's certificate as it is then
        return _checked(answer.status, text, answer.headers.get("Retry-After", ""))

    def _complete_text(self, answer: http.client.HTTPResponse) -> bytes:
        text = answer.read(LARGEST_ANSWER_BYTES + 1)
        if len(text) > LARGEST_ANSWER_BYTES:
            self.close()
            raise ApiError(answer.status, f"the answer has more than {LARGEST_ANSWER_BYTES >> 20} MiB")
        if answer.length:
            raise http.client.IncompleteRead(text, answer.length)
        return text

    def _who(self) -> dict[str, str]:
        try:
            token = self._access.bearer()
        except OSError as error:
            raise _unanswered(error) from error
        name = {"User-Agent": USER_AGENT}
        return name | {"Authorization": f"Bearer {token}"} if token else name

    def _connected(self) -> TimedConnection:
        if self._connection is None:
            access = self._access
            self._connection = TimedConnection(access.host, access.port, _trusted(access), access.server_name)
        return self._connection


def _trusted(access: ApiAccess) -> ssl.SSLContext:
    """The server's certificates that are believed, and the client's own. Raises OSError."""
    context = ssl.create_default_context(cafile=str(access.ca_file) if access.ca_file and not access.ca else None)
    if access.ca:
        context = ssl.create_default_context(cadata=access.ca)
    if access.certificate or access.certificate_file:
        certificate = _as_file(access.certificate, access.certificate_file)
        with certificate as of_client, _as_file(access.key, access.key_file) as key:
            context.load_cert_chain(of_client, key)
    return context


@contextlib.contextmanager
def _as_file(text: str, file: Path | None) -> Iterator[str]:
    """The path of a file with this text, which lies in memory alone: the ssl module takes the client's as a file."""
    if not text:
        yield str(file)
        return
    descriptor = os.memfd_create("devherd", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _unanswered(error: Exception) -> ApiError:
    return ApiError(0, str(error) or type(error).__name__)


def _checked(status: int, text: bytes, retry_after: str) -> Json:
    """The content of an answer. Raises ApiError if it is not what was asked for."""
    says = retry_after.isascii() and retry_after.isdecimal()
    seconds = min(float(retry_after), _LONGEST_RETRY_AFTER_SECONDS) if says else None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):  # from a proxy, for example
        raise ApiError(status, text[:_LONGEST_MESSAGE].decode(errors="replace"), seconds)
    if not http.client.OK <= status < http.client.MULTIPLE_CHOICES:
        raise ApiError(status, str(content.get("message", ""))[:_LONGEST_MESSAGE], seconds)
    return content


def _event_in(line: bytes) -> Json:
    """An event of a watch. Raises ApiError, also for an event with the server's reason for the end of the watch."""
    try:
        event = json.loads(line)
        kind, changed = event["type"], event["object"]
        if kind == "ERROR":
            raise ApiError(int(changed.get("code", 0)), str(changed.get("message", ""))[:_LONGEST_MESSAGE])
        changed["metadata"]["resourceVersion"]
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        raise ApiError(http.client.OK, f"not an event: {line[:_LONGEST_MESSAGE].decode(errors='replace')}") from None
    return {"type": kind, "object": changed}


class RateLimit:
    """A token bucket, full at first."""

    def __init__(self, burst: int, seconds: float) -> None:
        self.seconds = seconds
        """The time in which one token is added."""
        self._burst = float(burst)
        self._tokens = float(burst)
        self._filled_at = time.monotonic()

    def allows(self) -> bool:
        """Take a token; False if there is none."""
        if self.wait_seconds() > 0:
            return False
        self._tokens -= 1
        return True

    def wait_seconds(self) -> float:
        """Seconds until there is a token; 0 if there is one."""
        now = time.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) / self.seconds)
        self._filled_at = now
        return max(0.0, 1 - self._tokens) * self.seconds


def past_conflicts(change: Callable[[], Answer]) -> Answer:
    """Call `change` until it does not meet a conflict, a few times at most; returns its result. Raises ApiError.

    `change` must read the object again: others may change a node between a read and a write.
    """
    return _past(http.HTTPStatus.CONFLICT, change)


def _past(status: http.HTTPStatus, call: Callable[[], Answer]) -> Answer:
    """Call it until it does not fail with this status, a few times at most; returns its result. Raises ApiError."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return call()
        except ApiError as error:
            if error.status != status:
                raise
    return call()
