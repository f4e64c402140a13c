"""What was cordoned before a boot is cordoned after it."""

import pytest

from devherd import spool
from devherd.config import load
from devherd.health.sources.cordon import Cordons
from devherd.proto import health_pb2
from devherd.settings import Settings
from devherd.supervisor import startup

GPU = ("nvidia", "0000:3b:00.0", "GPU-0")
OTHER = ("nvidia", "0000:5e:00.0", "GPU-1")


@pytest.fixture
def settings(tmp_path):
    """A run directory that a boot has emptied, and a state directory with one cordoned device."""
    settings = Settings(run_dir=tmp_path / "run", state_dir=tmp_path / "state")
    with Cordons(tmp_path / "before", settings.kept_cordons_file).changing() as changes:
        changes.cordon(GPU, "runs hot", "alice")
    settings.run_dir.mkdir()
    return settings


def cordoned(settings) -> list[str]:
    file = spool.path_of(settings.findings_directory, "cordon")
    return [one.at.device for one in spool.read_or_empty(file, health_pb2.Findings).findings]


def test_a_start_in_an_empty_run_directory_cordons_what_was_cordoned(settings):
    """Before the first scan: no pod gets the device."""
    startup._restore_cordons(settings)

    assert cordoned(settings) == ["GPU-0"]
    with Cordons(settings.findings_directory).changing() as changes:
        assert changes.keys == [GPU]


def test_a_start_in_a_run_directory_that_was_kept_changes_no_cordon(settings):
    """What is there is as young, or younger."""
    with Cordons(settings.findings_directory).changing() as changes:
        changes.cordon(OTHER, "", "bob")

    startup._restore_cordons(settings)

    assert cordoned(settings) == ["GPU-1"]


def test_a_start_without_cordons_or_without_a_state_directory_makes_nothing(tmp_path):
    """No directory of an instance that never cordoned anything."""
    for state in (None, tmp_path / "state"):
        startup._restore_cordons(Settings(run_dir=tmp_path / "run", state_dir=state))

    assert list(tmp_path.iterdir()) == []


def test_cordons_that_cannot_be_read_are_said_and_stop_no_start(settings, caplog):
    """The devices would be given to pods: somebody has to know."""
    settings.kept_cordons_file.unlink()
    settings.kept_cordons_file.mkdir()

    startup._restore_cordons(settings)

    assert "cannot read what was cordoned before the boot" in caplog.text


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "/var/lib/devherd"),
        ({"run_dir": "/tmp/mine"}, None),
        ({"run_dir": "/tmp/mine", "state_dir": "/tmp/kept"}, "/tmp/kept"),
        ({"state_dir": "/tmp/kept"}, "/tmp/kept"),
    ],
)
def test_an_instance_beside_that_of_the_host_shares_no_state_with_it(options, expected):
    """Two of them would cordon each other's devices."""
    state = load(options, {"DEVHERD_CONFIG": ""}).settings().lasting_directory

    assert (None if state is None else str(state)) == expected
