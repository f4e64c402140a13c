"""What was cordoned before a boot is cordoned after it."""

import os
from pathlib import Path

import pytest

from devherd import spool
from devherd.config.loader import load
from devherd.health.cordon import Cordons
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


def kept(settings) -> list[str]:
    return [one.at.device for one in spool.read(settings.kept_cordons_file, health_pb2.Findings).findings]


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


def test_what_was_cordoned_where_no_copy_was_made_is_copied_at_the_next_start(settings):
    """By an earlier version, or under another state directory: a boot would undo it."""
    with Cordons(settings.findings_directory).changing() as changes:
        changes.cordon(OTHER, "", "bob")

    startup._restore_cordons(settings)

    assert kept(settings) == ["GPU-1"]


def test_a_start_that_cannot_copy_what_is_cordoned_says_so_and_goes_on(settings, caplog):
    """It is in force until the boot."""
    with Cordons(settings.findings_directory).changing() as changes:
        changes.cordon(OTHER, "", "bob")
    settings.kept_cordons_file.unlink()
    settings.kept_cordons_file.mkdir()

    startup._restore_cordons(settings)

    assert "cannot keep what is cordoned" in caplog.text
    assert cordoned(settings) == ["GPU-1"]


def test_a_file_that_cannot_be_read_takes_the_place_of_no_copy(settings, caplog):
    """The copy may be all that is left."""
    live = spool.path_of(settings.findings_directory, "cordon")
    live.parent.mkdir(parents=True)
    live.write_bytes(b"")

    startup._restore_cordons(settings)

    assert "cannot keep what is cordoned" in caplog.text
    assert kept(settings) == ["GPU-0"]


@pytest.mark.parametrize("content", [b"", b"\xff\xff torn"])
def test_a_copy_that_a_loss_of_power_has_torn_is_said_and_put_nowhere(settings, caplog, content):
    """In place of the cordons it would stop `devherd cordon`, too."""
    settings.kept_cordons_file.write_bytes(content)

    startup._restore_cordons(settings)

    assert "cannot read what was cordoned before the boot" in caplog.text
    assert not spool.path_of(settings.findings_directory, "cordon").exists()


def test_a_copy_is_on_the_disk_before_it_takes_its_place_and_its_name_is_after_it(tmp_path, monkeypatch):
    """Only the copy: what is in the run directory is in memory."""
    steps, fsync, rename = [], os.fsync, Path.rename

    def seen_fsync(descriptor):
        steps.append(("sync", str(Path(f"/proc/self/fd/{descriptor}").readlink())))
        fsync(descriptor)

    def seen_rename(self, target):
        steps.append(("rename", str(target)))
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(Path, "rename", seen_rename)
    copy = tmp_path / "state/cordons.pb"
    with Cordons(tmp_path / "findings", copy).changing() as changes:
        changes.cordon(GPU, "", "alice")

    assert [step for step in steps if "findings" not in step[1]] == [
        ("sync", str(copy.with_name(".cordons.pb.new"))),
        ("rename", str(copy)),
        ("sync", str(copy.parent)),
    ]
    assert [what for what, path in steps if "findings" in path] == ["rename"]


def test_a_start_without_cordons_or_without_a_state_directory_makes_nothing(tmp_path):
    """No directory of an instance that never cordoned anything."""
    for state in (None, tmp_path / "state"):
        startup._restore_cordons(Settings(run_dir=tmp_path / "run", state_dir=state))
    assert list(tmp_path.iterdir()) == []

    with Cordons(tmp_path / "before", tmp_path / "state/cordons.pb").changing() as changes:
        changes.cordon(GPU, "", "alice")
    startup._restore_cordons(Settings(run_dir=tmp_path / "run", state_dir=tmp_path / "state"))
    assert (tmp_path / "run").is_dir()


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
