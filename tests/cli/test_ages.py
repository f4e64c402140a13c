"""Ages after the wall clock was set: those of processes and findings count from the boot, where that is known."""

import os
import shutil
import time

import pytest
import scratch

from devherd import spool
from devherd.instance.read import read_instance
from devherd.process import Heartbeats, started_at
from devherd.proto.health_pb2 import UNHEALTHY, Held, Verdict, Verdicts
from devherd.proto.spool_pb2 import Child, Children, Device, Instance
from devherd.settings import Settings

ILL = Device(id="0", reasons=["xid"])
DAY = 86_400.0


@pytest.fixture
def settings():
    """A run directory."""
    directory = scratch.directory()
    yield Settings(run_dir=directory)
    shutil.rmtree(directory)


@pytest.mark.parametrize("ahead", [3600.0, -3600.0, -50 * 365 * DAY])
def test_a_process_has_run_since_it_started_whatever_the_clock_was_then(settings, ahead):
    """Defect: "up 19675 d" on a board without a clock, or 0 s for an hour."""
    started = started_at(os.getpid())
    assert 0 < time.time() - started < 3600
    child = Child(name="scanner", state="RUNNING", pid=os.getpid(), started_timestamp_seconds=started + ahead)
    spool.write(settings.children_file, Children(children=[child], supervisor_pid=os.getpid()))
    spool.write(settings.instance_file, Instance(pid=os.getpid(), started=started + ahead))

    herd = read_instance(settings, Heartbeats(1))
    assert herd.instance.started == pytest.approx(started, abs=0.5)
    assert herd.children["scanner"].started_timestamp_seconds == pytest.approx(started, abs=0.5)
    outside = read_instance(settings)  # of another PID namespace, whose processes have these numbers
    assert outside.instance.started == started + ahead


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        (-60.0, -60.0),
        (3600.0 - 60.0, -60.0),
        (-50 * 365 * DAY, -60.0),
        (-400 * DAY, -400 * DAY),
    ],
)
def test_a_finding_is_as_old_as_it_is_whatever_the_clock_was_then(settings, recorded, shown):
    """One that is a minute old by the clock of this boot; the last is of an earlier boot, whose clock alone it has."""
    now = time.time()
    held = Held(
        reason="xid",
        action=UNHEALTHY,
        first_timestamp_seconds=now + recorded,
        since_monotonic_seconds=time.monotonic() - 60.0,
    )
    spool.write(settings.verdicts_file, Verdicts(verdicts=[Verdict(device="0", held=[held])]))
    assert read_instance(settings).since(ILL) == pytest.approx(now + shown, abs=1.0)
