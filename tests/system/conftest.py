"""A stage for each test: devherd beside an embedded kubelet on a simulated node."""

import shutil
import tempfile
from pathlib import Path

import pytest
import pytest_asyncio

from devherd.sim.node.presets import preset
from devherd.sim.stage import Stage


@pytest.fixture
def directory():
    """A directory with a path short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="dh", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@pytest_asyncio.fixture
async def stage(directory, request):
    """A herd on the node and with the configuration of the test's `on` mark; by default two FPGA cards."""
    mark = request.node.get_closest_marker("on")
    spec, config = mark.args if mark else ("fpga-opae-2", {})
    async with Stage(directory, preset(spec), config) as stage:
        yield stage
    assert "Traceback" not in stage.log, stage.log
