"""What libraries import and the herd never runs is not there, and is there for whoever needs it after all."""

import subprocess
import sys
import textwrap

SPARED = ("http.client", "xmlrpc.client", "importlib.metadata", "html.entities")


def python(code):
    """What fresh Python prints that runs this code."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_the_supervisor_imports_nothing_that_it_never_runs():
    there = python("""
        import sys
        from devherd.lean_imports import lean_imports
        with lean_imports():
            import devherd.supervisor.startup
        print(*sys.modules)
    """)
    assert set(there.split()) & set(SPARED) == set()


def test_who_imports_a_spared_module_later_has_the_real_one():
    said = python("""
        from devherd.lean_imports import lean_imports
        with lean_imports():
            import devherd.supervisor.startup
        import configparser, html, http.client, importlib.metadata, importlib.resources.abc, ipaddress
        import typing_extensions, xmlrpc.client
        print(http.client.HTTPSConnection.__name__, html.escape("<"), ipaddress.ip_address("::1"))
        print(typing_extensions.TypedDict.__name__, importlib.metadata.version("pip") > "")
        print(configparser.RawConfigParser.__name__, xmlrpc.client.Transport.__name__)
    """)
    assert said.split("\n") == [
        "HTTPSConnection &lt; ::1",
        "TypedDict True",
        "RawConfigParser Transport",
    ]


def test_who_has_a_stand_in_has_what_is_in_the_real_module():
    said = python("""
        from devherd.lean_imports import lean_imports
        with lean_imports():
            import ipaddress, xmlrpc.client as xmlrpc
            import sys
            assert type(sys.modules["ipaddress"]).__name__ == "_StandIn"
        print(ipaddress.ip_address("::1"), xmlrpc.dumps(xmlrpc.Fault(1, "a"))[:5])
    """)
    assert said == "::1 <?xml"


def test_a_library_that_takes_more_than_is_known_has_the_real_module_at_once():
    said = python("""
        from devherd.lean_imports import lean_imports
        with lean_imports():
            from html import unescape
            from typing_extensions import Self, TypedDict
        import typing_extensions
        print(unescape("&lt;"), typing_extensions.TypedDict is TypedDict)
    """)
    assert said == "< True"


def test_a_module_that_is_there_already_stays():
    said = python("""
        import html
        from devherd.lean_imports import lean_imports
        with lean_imports():
            import html as again
            assert again is html
        import sys
        print(sys.modules["html"] is html)
    """)
    assert said == "True"


def test_stand_ins_that_answer_for_good_say_what_the_real_functions_say():
    """dataclasses, asyncio and gRPC keep these four of `inspect`."""
    said = python("""
        import functools
        from collections.abc import Awaitable
        from devherd.lean_imports import lean_imports
        with lean_imports():
            import dataclasses
        ours = dataclasses.inspect
        assert type(ours).__name__ == "_StandIn"
        import inspect

        class Waiting:
            first: int
            def __await__(self): yield
            async def method(self): pass
        class Nothing(Waiting): pass
        async def coroutine(): pass
        async def generator(): yield
        def function(): yield
        running = coroutine()
        values = (1, Waiting(), Waiting, Nothing(), Waiting().method, Waiting.method, coroutine, generator, function,
                  functools.partial(coroutine), functools.partial(Waiting().method), functools.partial(generator),
                  running, generator(), function(), print, lambda: 1)
        for name in ("isasyncgenfunction", "isawaitable", "iscoroutinefunction"):
            assert [getattr(ours, name)(one) for one in values] == [getattr(inspect, name)(one) for one in values], name
        assert [ours.get_annotations(one) for one in (Waiting, Nothing)] == [{"first": int}, {}]
        running.close()
        print(ours.signature(function), ours.signature is inspect.signature)
    """)
    assert said == "() True"


def test_openssl_is_loaded_only_by_who_asks_for_it():
    """4 MB: asyncio and hashlib work without it, and with the real module from then on."""
    said = python("""
        from pathlib import Path
        from devherd.lean_imports import lean_imports
        with lean_imports():
            import devherd.supervisor.startup
        import asyncio, hashlib

        async def knock():
            listening = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
            _, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
            writer.close()

        asyncio.run(knock())
        assert hashlib.sha256(b"abc").hexdigest().startswith("ba7816bf8f01cfea")
        print("libcrypto" in Path("/proc/self/maps").read_text())
        import ssl
        print(asyncio.base_events.ssl.SSLContext is ssl.SSLContext)
        print(asyncio.base_events.sslproto.SSLProtocol.__module__)
    """)
    assert said.split("\n") == ["False", "True", "asyncio.sslproto"]
