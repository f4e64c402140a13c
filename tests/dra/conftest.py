"""A testbed for tests of the two processes: devherd whole, with a stand-in for what prepares claims."""

import shutil

import pytest
import pytest_asyncio
import scratch
import standing_in

from devherd_sim.node.presets import preset
from devherd_sim.testbed import Testbed


@pytest.fixture
def directory():
    """A directory with a path short enough for sockets."""
    path = scratch.directory()
    yield path
    shutil.rmtree(path)


@pytest_asyncio.fixture
async def testbed(directory, request, monkeypatch):
    """A herd on the node, with the configuration and the waits of the test's `on` mark."""
    monkeypatch.setenv("NODE_NAME", "node-1")
    mark = request.node.get_closest_marker("on")
    spec, config = mark.args
    testbed = Testbed(directory, preset(spec), config)
    testbed.command = standing_in.command(**mark.kwargs)
    async with testbed:
        yield testbed
    assert "Traceback" not in testbed.log, testbed.log
