"""devherd beside an embedded kubelet on a simulated node, watched by a real Prometheus."""

import shutil

import pytest
import pytest_asyncio
import scratch
from monitoring import Monitoring
from nvml_stub import Stub, compiled

from devherd_sim.node import nvml_script
from devherd_sim.node.presets import preset
from devherd_sim.testbed import Testbed


@pytest.fixture
def directory():
    """A directory with a path short enough for sockets."""
    path = scratch.directory()
    yield path
    shutil.rmtree(path)


@pytest_asyncio.fixture
async def testbed(directory, request, tool, monkeypatch):
    """A herd on the node, and with the configuration, of the test's `on` mark; `nvml`: with a stub of NVML."""
    mark = request.node.get_closest_marker("on")
    spec, config = mark.args
    testbed = Testbed(directory, preset(spec) if isinstance(spec, str) else spec, config)
    if mark.kwargs.get("nvml"):
        root = testbed.node.root
        Stub(compiled(tool("cc"), directory / "libnvidia-ml.so.1"), root / nvml_script.SCRIPT).put_below(root)
        monkeypatch.setenv("DEVHERD_NVML_STUB", str(nvml_script.write(testbed.node)))
    async with testbed:
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
