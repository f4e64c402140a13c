"""A testbed for each test: devherd beside an embedded kubelet on a simulated node."""

import shutil

import pytest
import pytest_asyncio
import scratch
from hurried import hurried

from devherd_sim.node.presets import preset
from devherd_sim.testbed import Testbed


@pytest.fixture
def directory():
    """A directory with a path short enough for sockets."""
    path = scratch.directory()
    yield path
    shutil.rmtree(path)


@pytest_asyncio.fixture
async def testbed(directory, request):
    """A herd on the node, with the configuration and the waits of the test's `on` mark; by default two FPGA cards."""
    mark = request.node.get_closest_marker("on")
    spec, config = mark.args if mark else ("fpga-opae-2", {})
    testbed = Testbed(directory, preset(spec), config)
    if mark and mark.kwargs:
        testbed.command = hurried(**mark.kwargs)
    async with testbed:
        yield testbed
    assert "Traceback" not in testbed.log, testbed.log
