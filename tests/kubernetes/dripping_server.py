"""A server that says one byte, and another one, and so on, at any step of a call: it never comes to an end."""

import contextlib
import itertools
import socket
import ssl
import threading
from collections.abc import Iterable
from pathlib import Path

BETWEEN_BYTES_SECONDS = 0.05
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


class DrippingServer:
    """Takes one connection. `at_once` is said first, `then` dripped; without `in_tls` it does not even speak TLS."""

    def __init__(self, directory: Path, at_once: bytes, then: Iterable[bytes], *, in_tls: bool = True) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._ended = threading.Event()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(directory / "ca.crt", directory / "key")
        self._thread = threading.Thread(target=self._serve, args=(at_once, then, in_tls))
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        with contextlib.suppress(OSError):  # it may wait for a connection
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self, at_once: bytes, then: Iterable[bytes], in_tls: bool) -> None:
        with contextlib.suppress(OSError):  # the client has had enough
            client, _ = self._listener.accept()
            with self._context.wrap_socket(client, server_side=True) if in_tls else client as said_to:
                if in_tls:
                    said_to.recv(1 << 16)  # the request: unread, it would have the kernel break the connection off
                said_to.sendall(at_once)
                for piece in then:
                    if self._ended.wait(BETWEEN_BYTES_SECONDS):
                        break
                    said_to.sendall(piece)


def without_end(piece: bytes) -> Iterable[bytes]:
    """It again and again, byte by byte."""
    return (bytes([byte]) for byte in itertools.cycle(piece))
