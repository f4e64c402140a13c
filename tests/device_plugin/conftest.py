import shutil

import pytest
import scratch
from plugin_host import Host


@pytest.fixture
def host():
    """Directories with short paths (a socket's has at most 107 bytes). No child may leave a traceback."""
    directory = scratch.directory()
    host = Host(directory)
    yield host
    host.close()
    log = host.log.read_text() if host.log.exists() else ""
    shutil.rmtree(directory)
    assert "Traceback" not in log, log
