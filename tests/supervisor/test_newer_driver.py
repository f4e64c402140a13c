"""When a supervisor ends for NVIDIA's driver, which has become newer than the library of its container."""

import json
import logging

import pytest
from descriptors import descriptors

from devherd import spool
from devherd.history import History, events
from devherd.proto import spool_pb2
from devherd.settings import Settings
from devherd.supervisor import host_watch

NEW, OLD = "590.48.01", "580.105.08"


@pytest.fixture
def settings(tmp_path):
    """Those of an instance whose NVML process has not answered yet."""
    settings = Settings(run_dir=tmp_path)
    settings.facts_directory.mkdir()
    return settings


@pytest.fixture
def clock(monkeypatch):
    """A list whose last number is the time."""
    now = [100.0]
    monkeypatch.setattr(host_watch.time, "monotonic", lambda: now[-1])
    return now


def answer(settings, newer=None):
    spool.update(settings.nvml_answer_file, json.dumps({"newer_driver": newer, "failures": 1}).encode())


def watch(settings):
    return host_watch.NewerDriver(settings, History(settings.history_directory, "supervisor"))


def test_it_ends_once_that_has_lasted_for_a_minute(settings, clock, caplog):
    """Not while nothing is known, nor for a moment of an upgrade. The reason is in log and history."""
    history = History(settings.history_directory, "supervisor")
    driver = host_watch.NewerDriver(settings, history)
    assert not driver.look()
    answer(settings, [NEW, OLD])
    assert not driver.look()
    clock.append(clock[-1] + 50)
    answer(settings)
    assert not driver.look()
    answer(settings, [NEW, OLD])
    clock.append(clock[-1] + 50)
    assert not driver.look()
    clock.append(clock[-1] + 59)
    assert not driver.look()
    clock.append(clock[-1] + 1)
    with caplog.at_level(logging.WARNING):
        assert driver.look()

    [record] = caplog.records
    assert f"the NVIDIA driver {NEW} is newer than the library {OLD} of this container" in record.message
    history.keep()
    assert [event.message for event in events(settings.run_dir)] == [record.message]
    noted = spool.read(settings.driver_restart_file, spool_pb2.DriverRestart)
    assert (noted.driver, noted.library) == (NEW, OLD)


def test_where_a_restart_did_not_help_it_does_not_end_again(settings, clock):
    """The same library comes back: the runtime has another driver root, say. Another version is another matter."""
    answer(settings, [NEW, OLD])
    for versions, ends in (([NEW, OLD], True), ([NEW, OLD], False), (["595.1.2", OLD], True)):
        answer(settings, versions)
        driver = watch(settings)
        assert not driver.look()
        clock.append(clock[-1] + 60)
        assert driver.look() == ends


def test_it_does_not_end_where_that_cannot_be_noted(settings, clock):
    """It would end for ever: the run directory is gone."""
    answer(settings, [NEW, OLD])
    driver = watch(settings)
    assert not driver.look()
    settings.driver_restart_file.with_name(f".{settings.driver_restart_file.name}.new").mkdir()
    settings.driver_restart_file.mkdir()
    clock.append(clock[-1] + 60)
    assert not driver.look()


def test_without_descriptors_it_does_not_end_and_the_supervisor_goes_on(settings, clock):
    """What it has noted may say that a restart did not help."""
    driver = watch(settings)
    answer(settings, [NEW, OLD])
    assert not driver.look()
    clock.append(clock[-1] + 61)
    with descriptors(0):
        assert not driver.look()
    assert driver.look()
