"""Listening sockets for an address of the configuration: of TCP, on every IP address that it names, or of a path."""

import contextlib
import errno
import os
import socket
from pathlib import Path

from devherd.settings import UNIX

BACKLOG = 1024
"""Connections that wait to be accepted: a probe must not wait behind a flood for the next attempt of its kernel."""

# getaddrinfo offers it and the host does not have it: mostly IPv6, switched off.
_NOT_HERE = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}
_OWNER_AND_GROUP = 0o117
"""umask: the group is the directory's where that has the setgid bit, so an operator can let one in."""


def bind(address: str) -> list[socket.socket]:
    """Sockets listening on `ADDRESS:PORT` or `unix:PATH`. Raises OSError when one of them is in use."""
    return [_bind_path(Path(address.removeprefix(UNIX)))] if address.startswith(UNIX) else _bind_tcp(address)


def _bind_path(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(_OWNER_AND_GROUP)
    try:
        if _is_dead(path):
            path.unlink()
        listening.bind(str(path))
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    finally:
        os.umask(before)
    return listening


def _is_dead(path: Path) -> bool:
    """Whether it is a socket that somebody has left behind."""
    if not path.is_socket():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
        try:
            knocking.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def unbind(listening: socket.socket) -> None:
    """Remove the path of a Unix socket; others have none."""
    if listening.family == socket.AF_UNIX:
        with contextlib.suppress(OSError):
            Path(listening.getsockname()).unlink()


def _bind_tcp(address: str) -> list[socket.socket]:
    """Without ADDRESS, on all addresses of this host. Raises OSError also when the host has none of them."""
    host, _, port = address.rpartition(":")
    name: str | bytes | None = host.strip("[]") or None
    if isinstance(name, str) and name.isascii():
        name = name.encode()  # a str would be encoded by IDNA, whose tables take 1 MB of memory
    found = socket.getaddrinfo(name, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[socket.socket] = []
    refusal = OSError(errno.EADDRNOTAVAIL, "no such address on this host")
    for family, _, _, _, place in dict.fromkeys(found):
        try:
            bound.append(socket.create_server(place[:2], family=family))
        except OSError as error:
            refusal = error
            if error.errno not in _NOT_HERE:
                break
    else:
        if bound:
            return bound
    for listening in bound:
        listening.close()
    raise refusal


def printed(listening: socket.socket, *, is_encrypted: bool) -> str:
    """Its URL, or for a path its address as the configuration has it."""
    if listening.family == socket.AF_UNIX:
        return f"{UNIX}{listening.getsockname()}"
    host, port = listening.getsockname()[:2]
    scheme = "https" if is_encrypted else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
