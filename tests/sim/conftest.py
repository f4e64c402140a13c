"""Directories for the tests of the embedded kubelet: short, because Unix sockets go there."""

import shutil

import pytest
import scratch
from sim_kubelet import Serving

from devherd_sim.kubelet.events import KINDS, Events


@pytest.fixture
def kubelet_dir():
    """A kubelet's directory that goes with the test."""
    directory = scratch.directory()
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def serving(devherd_kubelet):
    """Starts plugins that serve `devherd_kubelet` until the test ends."""
    plugins = Serving(devherd_kubelet.directory)
    yield plugins
    plugins.end()


@pytest.fixture(autouse=True)
def _events_are_as_declared(monkeypatch):
    """Each event has the details that the docs name for its kind, no more and no fewer."""
    record = Events.record

    def checked(events, kind, resource="", **detail):
        assert set(detail) == set(KINDS[kind][1]), kind
        record(events, kind, resource, **detail)

    monkeypatch.setattr(Events, "record", checked)
