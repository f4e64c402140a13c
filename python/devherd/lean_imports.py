"""Skips imports of library parts that devherd never runs: 7 MB per node, which every child would share and partly copy.

supervisord imports an XML-RPC client, a web page and a parser of configuration files; protobuf imports its slower
implementation; asyncio and hashlib load OpenSSL, prometheus-client a server and a client of its own. While these are
imported, a stand-in replaces each. It has the names that are used at import, and
later those of the real module, for code that imports the module again and for code that holds the stand-in. The names
are known for the versions that pyproject.toml permits.
"""

import importlib
import sys
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any


def _escape(text: str, quote: bool = True) -> str:
    return importlib.import_module("html").escape(text, quote)  # type: ignore[no-any-return]


StandIns = Mapping[str, Mapping[str, object]]
"""The names that other modules use at import, by module."""

HERD: StandIns = {
    "asyncio.sslproto": {},  # TLS
    "configparser": {"RawConfigParser": object},  # reads supervisord.conf
    "google.protobuf.internal.python_message": {},  # messages without the C library
    "html": {"escape": _escape},
    "html.entities": {},
    "html.parser": {"HTMLParser": object},
    "http.client": {"HTTPConnection": object},  # supervisorctl's, as `Transport`
    "importlib.metadata": {"EntryPoint": None},  # finds what a supervisord.conf names
    "importlib.resources": {"files": None},
    "ipaddress": {},
    "mimetypes": {},
    "ssl": {"SSLSocket": type("SSLSocket", (), {})},  # asyncio asks of each socket whether it is one
    "typing_extensions": {"Self": typing.Self, "override": lambda function: function},
    "xmlrpc.client": {"Transport": object, "Fault": None},
}
"""What the supervisor imports, for all its children."""
PROMETHEUS: StandIns = {
    "gzip": {},
    "http.server": {"BaseHTTPRequestHandler": object},
    "socketserver": {"ThreadingMixIn": type("ThreadingMixIn", (), {})},
    "ssl": dict.fromkeys(("SSLContext", "TLSVersion", "PROTOCOL_TLS_CLIENT", "PROTOCOL_TLS_SERVER"), object),
    "urllib.error": {"HTTPError": OSError},
    "urllib.request": {
        **dict.fromkeys(("BaseHandler", "HTTPHandler", "HTTPRedirectHandler", "HTTPSHandler", "Request"), object),
        "build_opener": None,
    },
    "wsgiref.simple_server": {"make_server": None, "WSGIRequestHandler": object, "WSGIServer": object},
}
"""prometheus-client's server and its client for a push gateway."""
_KEPT = ("SSLSocket",)
"""Names that stay in a stand-in: devherd hands no such object to the module that asks for it."""
_OPENSSL = "_hashlib"
"""Without it hashlib has its own functions, which are as right and need no OpenSSL."""


class _StandIn(ModuleType):
    """Imports the real module for any other name, but not for the names that the import system looks up."""

    def __init__(self, name: str, given: Mapping[str, object]) -> None:
        super().__init__(name)
        vars(self).update(given)
        self.given_names = given.keys() - _KEPT

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _forget(self)
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def lean_imports(stand_ins: StandIns = HERD) -> Iterator[None]:
    """Use stand-ins while modules are imported. Those that are already imported stay."""
    names = [name for name in stand_ins if name not in sys.modules]
    for name in names:
        sys.modules[name] = _StandIn(name, stand_ins[name])
    for name in names:
        package, _, attribute = name.rpartition(".")
        if package in sys.modules:
            setattr(sys.modules[package], attribute, sys.modules[name])
    lacks_openssl = _OPENSSL not in sys.modules
    if lacks_openssl:
        sys.modules[_OPENSSL] = None  # type: ignore[assignment]  # so that its import fails
    try:
        yield
    finally:
        if lacks_openssl:
            del sys.modules[_OPENSSL]
        for name in names:
            if isinstance(stand_in := sys.modules.get(name), _StandIn):
                _forget(stand_in)


def _forget(stand_in: _StandIn) -> None:
    """Let the next import find the real module, and take all names from it from now on."""
    name = stand_in.__name__
    if sys.modules.get(name) is stand_in:
        del sys.modules[name]
    package, _, attribute = name.rpartition(".")
    if package in sys.modules and vars(sys.modules[package]).get(attribute) is stand_in:
        delattr(sys.modules[package], attribute)
    for given in stand_in.given_names:
        vars(stand_in).pop(given, None)
