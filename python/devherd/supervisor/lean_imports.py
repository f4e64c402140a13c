"""Skips imports of library parts that devherd never runs: 3 MB per node, which every child would share and partly copy.

supervisord imports an XML-RPC client, a web page and a parser of configuration files; protobuf imports its slower
implementation. While the supervisor imports, a stand-in replaces each. It has the names that are used at import, and
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


_STAND_INS: Mapping[str, Mapping[str, object]] = {
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
    "typing_extensions": {"Self": typing.Self, "override": lambda function: function},
    "xmlrpc.client": {"Transport": object, "Fault": None},
}
"""The names that other modules use at import, by module."""


class _StandIn(ModuleType):
    """Imports the real module for any other name, but not for the names that the import system looks up."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _forget(self)
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def lean_imports() -> Iterator[None]:
    """Use stand-ins while the supervisor imports. Modules that are already imported stay."""
    names = [name for name in _STAND_INS if name not in sys.modules]
    for name in names:
        sys.modules[name] = _StandIn(name)
        vars(sys.modules[name]).update(_STAND_INS[name])
    for name in names:
        package, _, attribute = name.rpartition(".")
        if package:
            setattr(importlib.import_module(package), attribute, sys.modules[name])
    try:
        yield
    finally:
        for name in names:
            if isinstance(stand_in := sys.modules.get(name), _StandIn):
                _forget(stand_in)


def _forget(stand_in: ModuleType) -> None:
    """Let the next import find the real module, and take all names from it from now on."""
    name = stand_in.__name__
    if sys.modules.get(name) is stand_in:
        del sys.modules[name]
    package, _, attribute = name.rpartition(".")
    if package in sys.modules and vars(sys.modules[package]).get(attribute) is stand_in:
        delattr(sys.modules[package], attribute)
    for given in _STAND_INS[name]:
        vars(stand_in).pop(given, None)
