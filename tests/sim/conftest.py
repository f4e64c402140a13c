"""Directories for the tests of the embedded kubelet: short, because Unix sockets go there."""

import shutil

import pytest
import scratch


@pytest.fixture
def kubelet_dir():
    """A kubelet's directory that goes with the test."""
    directory = scratch.directory()
    yield directory
    shutil.rmtree(directory)
