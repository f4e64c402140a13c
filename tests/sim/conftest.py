"""Directories for the tests of the embedded kubelet: short, because Unix sockets go there."""

import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def kubelet_dir():
    """A kubelet's directory that goes with the test."""
    directory = Path(tempfile.mkdtemp(prefix="dh", dir="/tmp"))
    yield directory
    shutil.rmtree(directory)
