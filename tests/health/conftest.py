"""Fixtures."""

import shutil

import pytest
import scratch
from external_listener import Listener


@pytest.fixture
def listener():
    directory = scratch.directory()
    listener = Listener(directory)
    yield listener
    listener.end()
    assert "Traceback" not in listener.log.read_text()
    shutil.rmtree(directory)
