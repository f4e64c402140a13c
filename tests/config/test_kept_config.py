"""The configuration that one start keeps for the next."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from devherd.config import kept
from devherd.config.kept import KeptConfig
from devherd.config.loader import load
from devherd.config.resolution import resolve

TEXT = "scan: {period: 7s}\n"
WEB = "basic_auth_users: {me: $2b$04$aaaaaaaaaaaaaaaaaaaaaeaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}\n"


class Start:
    """One way to start devherd: options, environment and files."""

    def __init__(self, directory):
        self.directory = directory
        self.file, self.web = directory / "config.yaml", directory / "web.yaml"
        self.file.write_text(TEXT)
        self.web.write_text(WEB)
        self.options = {
            "config": str(self.file),
            "state_dir": str(directory / "state"),
            "web_config": str(self.web),
            "listen": None,
        }
        self.environ = {"DEVHERD_LOG_LEVEL": "debug", "HOME": "/nowhere"}

    def load(self):
        """Validate, and keep the result."""
        config = resolve(load(self.options, self.environ))
        KeptConfig(self.options, self.environ).keep(config)
        return config

    def take(self):
        """What the next start takes."""
        return KeptConfig(self.options, self.environ).take()

    @property
    def kept(self):
        """The file."""
        return self.directory / "state/config.json"


@pytest.fixture
def start(tmp_path):
    """A start whose configuration is a file, with one for the web."""
    return Start(tmp_path)


def test_the_next_start_takes_what_this_one_has_validated(start):
    assert start.take() is None
    config = start.load()

    assert start.take() == config
    assert config.scan.period == 7.0


def test_only_root_reads_the_kept_configuration_which_has_hashes_of_passwords(start):
    start.load()
    assert start.kept.stat().st_mode & 0o777 == 0o600


def test_a_file_that_was_written_again_with_the_same_bytes_counts_as_read_now(start):
    start.load()
    start.file.unlink()
    start.file.write_text(TEXT)

    seen = start.take().common.config_seen
    assert seen[0] == start.file.stat().st_ino
    assert seen[1] == start.file.stat().st_mtime_ns


def another_place(start, monkeypatch):
    monkeypatch.chdir(start.directory)


def another_interpreter(_start, monkeypatch):
    monkeypatch.setattr(sys, "version", "3.99")


def another_version(_start, monkeypatch):
    monkeypatch.setattr(kept, "version", lambda: "0.0.1")


def another_file(start, _monkeypatch):
    other = start.directory / "other.yaml"
    other.write_text(TEXT)
    start.options["config"] = str(other)


OTHERWISE = {
    "file": lambda start, _: start.file.write_text("scan: {period: 8s}\n"),
    "web file": lambda start, _: start.web.write_text(""),
    "no web file": lambda start, _: start.web.unlink(),
    "no file": lambda start, _: start.file.unlink(),
    "option": lambda start, _: start.options.update(listen="127.0.0.1:1"),
    "environment": lambda start, _: start.environ.update(DEVHERD_LOG_LEVEL="info"),
    "less environment": lambda start, _: start.environ.clear(),
    "revision": lambda start, _: start.environ.update(DEVHERD_REVISION="abc"),
    "torn": lambda start, _: start.kept.write_bytes(start.kept.read_bytes()[:100]),
    "empty": lambda start, _: start.kept.write_text("{}"),
    "of another time": lambda start, _: start.kept.write_text(start.kept.read_text().replace("state_dir", "stat_dir")),
    "forgotten": lambda start, _: KeptConfig(start.options, start.environ).forget(),
    "place": another_place,
    "interpreter": another_interpreter,
    "version": another_version,
    "other file": another_file,
}


@pytest.mark.parametrize("what", OTHERWISE)
def test_what_is_not_the_same_is_validated_before_it_is_used(start, monkeypatch, what):
    start.load()
    assert start.take() is not None
    OTHERWISE[what](start, monkeypatch)
    assert start.take() is None


def test_another_variable_of_the_environment_does_not_matter(start):
    start.load()
    start.environ["HOME"] = "/elsewhere"
    assert start.take() is not None


def test_a_configuration_from_a_pipe_is_not_kept_and_not_waited_for(start):
    start.load()
    start.file.unlink()
    os.mkfifo(start.file)
    config = resolve(load({**start.options, "config": None}, {}))

    KeptConfig(start.options, start.environ).keep(
        replace(config, common=replace(config.common, config_path=start.file))
    )
    assert not start.kept.exists()


def test_a_file_that_changed_while_it_was_read_is_not_kept(start):
    config = resolve(load(start.options, start.environ))
    start.file.write_text("scan: {period: 8s}\n")

    KeptConfig(start.options, start.environ).keep(config)
    assert start.take() is None


def test_nothing_is_kept_without_a_state_directory_or_where_a_label_chooses(start, tmp_path):
    start.options["state_dir"] = None
    start.options["run_dir"] = str(tmp_path / "run")
    start.load()
    assert start.take() is None

    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/default").write_text(TEXT)
    by_label = {"configs": str(tmp_path / "configs"), "state_dir": str(tmp_path / "state")}
    KeptConfig(by_label, {}).keep(resolve(load(by_label, {})))
    assert not start.kept.exists()


def test_a_state_directory_that_cannot_be_written_costs_only_the_quick_start(start):
    start.options["state_dir"] = "/proc/nowhere"
    start.load()
    assert start.take() is None
    assert Path("/proc/nowhere").exists() is False
