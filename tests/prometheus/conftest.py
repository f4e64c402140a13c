"""devherd beside an embedded kubelet on a simulated node, watched by a real Prometheus."""

import shutil

import pytest
import pytest_asyncio
import scratch
from monitoring import Monitoring

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
    """A herd on the node and with the configuration of the test's `on` mark."""
    spec, config = request.node.get_closest_marker("on").args
    async with Testbed(directory, preset(spec), config) as testbed:
        yield testbed
    assert "Traceback" not in testbed.log, testbed.log


@pytest.fixture
def monitor(directory, testbed, tool):
    """Starts Prometheus and Alertmanager when it is called."""
    started = []

    def start():
        place = directory / "monitoring"
        place.mkdir()
        started.append(Monitoring(place, testbed.settings.listen, tool))
        return started[-1]

    yield start
    for each in started:
        each.close()
