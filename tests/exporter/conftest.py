"""Instances for the tests of the exporter."""

import pytest
from exporter_instance import instances


@pytest.fixture
def make_instance():
    """Makes instances."""
    with instances() as make:
        yield make


@pytest.fixture
def instance(make_instance):
    """One instance whose exporter is not started yet."""
    return make_instance()
