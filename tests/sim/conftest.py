"""What the tests of the embedded kubelet share."""

import pytest
from sim_kubelet import kubelet_dir, serving  # noqa: F401 - fixtures

from devherd.cli.sim_kubelet_answers import KINDS
from devherd_sim.kubelet.events import Events


@pytest.fixture(autouse=True)
def _events_are_as_declared(monkeypatch):
    """Each event has the details that the docs name for its kind, no more and no fewer."""
    record = Events.record

    def checked(events, kind, resource="", **detail):
        assert set(detail) == set(KINDS[kind][1]), kind
        record(events, kind, resource, **detail)

    monkeypatch.setattr(Events, "record", checked)
