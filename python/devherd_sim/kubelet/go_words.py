"""Translates error texts of gRPC-Python into those that gRPC-Go and Go use in a kubelet's messages.

Sources: status/status.go, internal/transport/http2_client.go and rpc_util.go of google.golang.org/grpc; strconv.Quote.
"""

import re

import grpc

CLOSING = "rpc error: code = Canceled desc = grpc: the client connection is closing"
CONNECTION_LOST = "error reading from server: "
"""Before `EOF`, or a reset if the plugin died with unread data. Kubelets up to 1.36 name the socket before a reset."""


def text(error: grpc.aio.AioRpcError) -> str:
    """Format an error like gRPC-Go: `rpc error: code = FailedPrecondition desc = device busy`.

    The plugin's own text is unchanged. A code that gRPC does not know becomes `Unknown`; Go prints its number.
    """
    words = error.code().name.replace("CANCELLED", "CANCELED").split("_")
    code = "OK" if words == ["OK"] else "".join(word.capitalize() for word in words)
    return f"rpc error: code = {code} desc = {_details(error.details() or '')}"


_OF_PYTHON = (
    (re.compile(r"Deadline Exceeded"), "context deadline exceeded"),
    (re.compile(r"Stream removed \(Socket closed\)"), f"{CONNECTION_LOST}EOF"),
    (
        re.compile(r"Stream removed \(recvmsg:Connection reset by peer \(104\)\)"),
        f"{CONNECTION_LOST}connection reset by peer",
    ),
    (
        re.compile(r"Stream removed \(CLIENT: Received message larger than max (\(.*\))\)"),
        r"grpc: received message larger than max \1",
    ),
    (
        re.compile(
            r"failed to connect to all addresses; last error: .*? unix:(.*?): .*error: No such file or directory"
        ),
        r'connection error: desc = "transport: Error while dialing: dial unix \1: connect: no such file or directory"',
    ),
    (
        re.compile(r"failed to connect to all addresses; last error: .*? unix:(.*?): .*error: Connection refused"),
        r'connection error: desc = "transport: Error while dialing: dial unix \1: connect: connection refused"',
    ),
)
"""Error texts of gRPC's C core, each with gRPC-Go's text for the same error."""


def _details(details: str) -> str:
    for pattern, words in _OF_PYTHON:
        found = pattern.fullmatch(details)
        if found:
            return found.expand(words)
    return details


_ESCAPES = {each: f"\\{letter}" for each, letter in zip('\a\b\f\n\r\t\v\\"', 'abfnrtv\\"', strict=True)}


def quoted(words: str) -> str:
    """The words as Go's %q prints them."""
    return '"' + "".join(_ESCAPES.get(each) or _escaped(each) for each in words) + '"'


def _escaped(character: str) -> str:
    number = ord(character)
    if character.isprintable():
        return character
    if number < ord(" ") or number == 0x7F:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
