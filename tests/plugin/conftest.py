import shutil
import tempfile
from pathlib import Path

import pytest
from plugin_host import Host


@pytest.fixture
def host():
    """Directories with short paths (a socket's has at most 107 bytes). No child may leave a traceback."""
    directory = Path(tempfile.mkdtemp(prefix="dh", dir="/tmp"))
    host = Host(directory)
    yield host
    host.close()
    log = host.log.read_text() if host.log.exists() else ""
    shutil.rmtree(directory)
    assert "Traceback" not in log, log
