"""`devherd sim kubelet` as a command, and a plugin that serves the kubelet of the fixture `devherd_kubelet`."""

import asyncio
import contextlib
import shutil
import subprocess
import sys
import threading
from types import SimpleNamespace

import grpc
import pytest
import scratch
from small_plugin import SmallPlugin

from devherd.settings import Settings

COMMAND = [sys.executable, "-m", "devherd", "sim", "kubelet"]


def sim_kubelet(directory, *words):
    """Run an action to its end."""
    command = [*COMMAND, *map(str, words), "--kubelet-dir", str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


class Serving:
    """Plugins of two devices, `a` and `b`, each in a thread of its own. They do not register again by themselves."""

    def __init__(self, directory):
        self._directory = directory
        self._threads = []
        self._loops = []

    def __call__(self, bend=lambda _: None, *, wait=True, endpoint="p.sock", **words):
        """A plugin, bent before it calls Register with these words; returns when the kubelet has answered."""
        has_called = threading.Event()
        plugin = SmallPlugin(SimpleNamespace(paths=Settings(kubelet_dir=self._directory)), "a", "b", endpoint=endpoint)
        bend(plugin)
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(plugin, has_called, words)))
        self._threads.append(thread)
        thread.start()
        assert not wait or has_called.wait(30)
        return plugin

    def do(self, plugin, work):
        """Run a function of the plugin in its thread: a coroutine to its end."""
        return asyncio.run_coroutine_threadsafe(_awaited(work), plugin.loop).result(30)

    def end(self):
        """End all of them."""
        for loop, ended in self._loops:
            loop.call_soon_threadsafe(ended.set)
        for thread in self._threads:
            thread.join()

    async def _serve(self, plugin, has_called, words):
        plugin.loop, ended = asyncio.get_running_loop(), asyncio.Event()
        self._loops.append((plugin.loop, ended))
        await plugin.serve()
        calling = asyncio.create_task(self._register(plugin, has_called, words))
        await ended.wait()
        calling.cancel()
        await plugin.stop()

    async def _register(self, plugin, has_called, words):
        with contextlib.suppress(grpc.aio.AioRpcError):  # the kubelet's refusal is what some tests want
            await plugin.register(**words)
        has_called.set()


async def _awaited(work):
    done = work()
    return await done if asyncio.iscoroutine(done) else done


@pytest.fixture
def kubelet_dir():
    """A kubelet's directory that goes with the test; its path is short, because Unix sockets go there."""
    directory = scratch.directory()
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def serving(devherd_kubelet):
    """Starts plugins that serve `devherd_kubelet` until the test ends."""
    plugins = Serving(devherd_kubelet.directory)
    yield plugins
    plugins.end()
