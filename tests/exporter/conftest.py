"""Instances for the tests of the exporter."""

import shutil

import pytest
import scratch
from exporter_instance import Instance


@pytest.fixture
def make_instance():
    """Makes instances; their processes and directories go with the test. Short paths: UNIX sockets go there."""
    made = []

    def make(**options):
        directory = scratch.directory()
        made.append((Instance(directory, **options), directory))
        return made[-1][0]

    yield make
    for instance, directory in made:
        instance.end()
        shutil.rmtree(directory)


@pytest.fixture
def instance(make_instance):
    """One instance whose exporter is not started yet."""
    return make_instance()
