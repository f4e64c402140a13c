"""A TLS connection of which every step ends in time: look-up of the name, connection, handshake, each read and write.

A limit for each step alone bounds nothing: a server that says one byte a second would be listened to for ever.
"""

import http.client
import ipaddress
import socket
import ssl
import threading
from queue import Empty, SimpleQueue
from typing import Any

from devherd.kubernetes.deadline import Deadline

_Address = tuple[Any, ...]
"""As `socket.getaddrinfo` has it, without the name: family, kind, protocol and where to connect."""


class TimedConnection(http.client.HTTPSConnection):
    """Kept for one call after the other; `within` says until when the next one has to be done.

    Every method of a call raises TimeoutError, an OSError, when that time is over.
    """

    sock: "_TimedSocket | None"

    def __init__(self, host: str, port: int, trusted: ssl.SSLContext) -> None:
        super().__init__(host, port, context=trusted)
        trusted.sslsocket_class = _TimedSocket
        self._trusted = trusted
        self._deadline = Deadline(0)

    def within(self, deadline: Deadline) -> None:
        """What follows has to be done by then."""
        self._deadline = deadline
        if self.sock is not None:
            self.sock.deadline = deadline

    def connect(self) -> None:
        """Called by the first request."""
        plain = self._reached()
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.settimeout(self._deadline.left())  # of the whole handshake, as the ssl module has it
            made = self._trusted.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise
        assert isinstance(made, _TimedSocket)
        made.deadline = self._deadline
        self.sock = made

    def _reached(self) -> socket.socket:
        """At the first address that answers."""
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
    """Reads and writes as long as the deadline lets it; http.client does nothing else with it."""

    deadline: Deadline

    def recv_into(self, *arguments: Any, **options: Any) -> int:
        self.settimeout(self.deadline.left())
        return super().recv_into(*arguments, **options)

    def send(self, *arguments: Any, **options: Any) -> int:
        """Of which `sendall` consists."""
        self.settimeout(self.deadline.left())
        return super().send(*arguments, **options)


def _addresses_of(host: str, port: int, deadline: Deadline) -> list[_Address]:
    """Of an address itself at once; a name is looked up in a thread, which nothing but its own end can end.

    The C library gives up after some tens of seconds at most.
    """
    if _is_address(host):
        return _looked_up(host, port)
    answers: SimpleQueue[list[_Address] | OSError] = SimpleQueue()

    def look_up() -> None:
        try:
            answers.put(_looked_up(host, port))
        except OSError as error:
            answers.put(error)

    threading.Thread(target=look_up, daemon=True).start()
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
