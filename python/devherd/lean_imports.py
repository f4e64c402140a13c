"""Skips imports of library parts that devherd never runs: they delay its start, and every child would share them.

supervisord imports an XML-RPC client, a web page and a parser of configuration files; protobuf its slower
implementation; dataclasses, asyncio and gRPC a reader of source code, of which they call four functions; asyncio and
hashlib load OpenSSL, prometheus-client a server and a client of its own. While these are imported, a stand-in replaces
each. It has the names that are used at import, and later those of the real module, for code that imports the module
again and for code that holds the stand-in. The names are known for the versions that pyproject.toml permits.
"""

import functools
import importlib
import sys
import types
import typing
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_ASYNC_GENERATOR, _COROUTINE = 0x200, 0x80
"""Flags of a function's code: https://docs.python.org/3/library/inspect.html#code-objects-bit-flags."""


def _later(module: str, name: str) -> Callable[..., Any]:
    """A function that imports the module when called."""

    def called(*args: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*args, **options)

    return called


class _Page:
    """supervisord's handler of its web page, imported at the first request that is not a call of supervisorctl."""

    def __init__(self, supervisord: Any) -> None:
        self._supervisord = supervisord

    @functools.cached_property
    def _handler(self) -> Any:
        return importlib.import_module("supervisor.web").supervisor_ui_handler(self._supervisord)

    def match(self, request: Any) -> bool | None:
        """Whether the page answers this request."""
        return self._handler.match(request)  # type: ignore[no-any-return]

    def handle_request(self, request: Any) -> None:
        """Answer it."""
        self._handler.handle_request(request)


def _has_flag(flag: int, function: Any) -> bool:
    while isinstance(function, (functools.partial, types.MethodType)):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    return isinstance(function, types.FunctionType) and bool(function.__code__.co_flags & flag)


StandIns = Mapping[str, Mapping[str, object]]
"""The names that other modules use at import, by module."""

HERD: StandIns = {
    "asyncio.sslproto": {},  # TLS
    "bz2": {},  # archives, by shutil
    "calendar": {},  # times in protobuf's JSON
    "configparser": {"RawConfigParser": object},  # reads supervisord.conf
    "google.protobuf.descriptor_database": {},  # the same
    "getopt": {},  # the words of supervisord's command line
    "google.protobuf.internal.python_message": {},  # messages without the C library
    "google.protobuf.text_encoding": {},
    "html": {"escape": _later("html", "escape")},
    "html.entities": {},
    "html.parser": {"HTMLParser": object},
    "http": {},
    "http.client": {"HTTPConnection": object},  # supervisorctl's, as `Transport`
    "importlib.metadata": {"EntryPoint": None},  # finds what a supervisord.conf names
    "importlib.resources": {"files": None},
    "inspect": {
        "get_annotations": lambda kind: dict(vars(kind).get("__annotations__", {})),
        "isasyncgenfunction": functools.partial(_has_flag, _ASYNC_GENERATOR),
        "isawaitable": lambda value: isinstance(value, Awaitable),
        "iscoroutinefunction": functools.partial(_has_flag, _COROUTINE),
    },
    "ipaddress": {},
    "locale": {},  # encodings of programs' output
    "lzma": {},
    "mimetypes": {},
    "ntpath": {},
    "pickle": {},  # records of logs, sent to other hosts
    "pkgutil": {},  # gRPC's own certificates
    "platform": {},  # names in supervisord.conf
    "queue": {},  # logs of threads
    "ssl": {"SSLSocket": type("SSLSocket", (), {})},  # asyncio asks of each socket whether it is one
    "subprocess": {"PIPE": -1, "STDOUT": -2, "DEVNULL": -3},  # programs, of which the herd itself starts none
    "supervisor.medusa.http_date": {},  # of answers
    "supervisor.web": {"supervisor_ui_handler": _Page},
    "tempfile": {},
    "textwrap": {},  # tracebacks
    "typing_extensions": {"Self": typing.Self, "override": lambda function: function},
    "xml.etree.ElementTree": {"iterparse": _later("xml.etree.ElementTree", "iterparse")},
    "xmlrpc.client": {"Transport": object, "Fault": None},
}
"""Stand-ins for the imports of the supervisor, which all its children share."""
PROMETHEUS: StandIns = {
    "gzip": {},
    "http.server": {"BaseHTTPRequestHandler": object},
    "prometheus_client.asgi": {"make_asgi_app": None},
    "prometheus_client.gc_collector": dict.fromkeys(("GCCollector", "GC_COLLECTOR")),
    "prometheus_client.metrics": dict.fromkeys(
        (
            "Counter",
            "Enum",
            "Gauge",
            "Histogram",
            "Info",
            "Summary",
            "disable_created_metrics",
            "enable_created_metrics",
        )
    ),
    "prometheus_client.platform_collector": dict.fromkeys(("PlatformCollector", "PLATFORM_COLLECTOR")),
    "prometheus_client.process_collector": dict.fromkeys(("ProcessCollector", "PROCESS_COLLECTOR")),
    "socketserver": {"ThreadingMixIn": type("ThreadingMixIn", (), {})},
    "ssl": dict.fromkeys(("SSLContext", "TLSVersion", "PROTOCOL_TLS_CLIENT", "PROTOCOL_TLS_SERVER"), object),
    "urllib.error": {"HTTPError": OSError},
    "urllib.request": {
        **dict.fromkeys(("BaseHandler", "HTTPHandler", "HTTPRedirectHandler", "HTTPSHandler", "Request"), object),
        "build_opener": None,
    },
    "wsgiref.simple_server": {"make_server": None, "WSGIRequestHandler": object, "WSGIServer": object},
}
"""prometheus-client's server, its client for a push gateway, and metrics that are kept in their process."""
_KEPT = ("SSLSocket", *HERD["inspect"])
"""Names that stay in a stand-in: asyncio never gets such a socket, and these functions do what the real ones do."""
_OPENSSL = "_hashlib"
"""Without this module, hashlib uses its own functions, which give the same results and need no OpenSSL."""


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
    """Use stand-ins while modules are imported. Modules that are already imported stay."""
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
