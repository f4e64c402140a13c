"""What has a configuration loaded again without a request: a label, the chosen file's content, a new reader."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from descriptors import descriptors

from devherd import spool
from devherd.config.chosen_file import chosen_again
from devherd.config.loader import load, resolve
from devherd.configurations import DEFAULT_LABEL
from devherd.proto.spool_pb2 import LabelAnswer
from devherd.settings import Settings
from devherd.supervisor.loader import ConfigurationsWatch, Loader
from devherd.supervisor.startup import write_label_answer


class ConfigMap:
    """A directory in which the kubelet swaps `..data`: every file is another one each time."""

    def __init__(self, directory: Path, **contents: str) -> None:
        self.directory = directory
        self._version = 0
        directory.mkdir()
        self.hold(**contents)

    def hold(self, **contents: str) -> None:
        self._version += 1
        version = self.directory / f"..{self._version}"
        version.mkdir()
        for name, content in contents.items():
            (version / name).write_text(content)
            if not (self.directory / name).is_symlink():
                (self.directory / name).symlink_to(f"..data/{name}")
        (self.directory / "..new").symlink_to(version.name)
        (self.directory / "..new").rename(self.directory / "..data")


@pytest.fixture
def configs(tmp_path) -> ConfigMap:
    return ConfigMap(tmp_path / "configs", default="scan: {period: 5s}", mig="scan: {period: 6s}")


@pytest.fixture
def settings(tmp_path, configs) -> Settings:
    """Of an instance that has loaded `default`."""
    return load({"configs": str(configs.directory), "run_dir": str(tmp_path / "run")}, {}, "").settings()


@pytest.fixture
def watch(settings) -> ConfigurationsWatch:
    return ConfigurationsWatch(settings.configurations, settings)


def told(settings: Settings, value: str, at: float = 1.0, label: str = DEFAULT_LABEL) -> None:
    file = settings.config_label_file
    file.parent.mkdir(parents=True, exist_ok=True)
    spool.write(file, LabelAnswer(label=label, value=value, asked_timestamp_seconds=at))


def test_nothing_is_loaded_again_while_nothing_changes(watch, settings):
    """Also when the label is told for the first time, and says what was known."""
    assert not watch.has_changed()
    told(settings, "")
    assert not watch.has_changed()


def test_another_value_is_loaded_once(watch, settings):
    """And the one before, when the label goes."""
    told(settings, "mig")
    assert [watch.has_changed(), watch.has_changed()] == [True, False]
    told(settings, "", 2.0)
    assert [watch.has_changed(), watch.has_changed()] == [True, False]


def test_a_value_that_no_descriptor_was_left_for_is_loaded_once_there_is_one(watch, settings):
    """It would have been the default configuration's turn."""
    told(settings, "mig")
    with descriptors(0):
        assert not watch.has_changed()
    assert [watch.has_changed(), watch.has_changed()] == [True, False]


def test_another_labels_value_says_nothing(watch, settings):
    """What an instance with another option was told."""
    told(settings, "mig", label="other/label")
    assert not watch.has_changed()


def test_what_an_earlier_instance_was_told_is_old(configs, settings):
    """The label was asked for at the start; the file of the run directory has not been written since."""
    told(settings, "mig")
    watch = ConfigurationsWatch(settings.configurations, settings)
    assert not watch.has_changed()

    told(settings, "mig", 2.0)
    assert watch.has_changed()


def test_an_answer_to_an_earlier_instance_does_not_hold_at_a_reload(settings):
    """Defect: a reload before the first answer loaded what the last instance was told, for good."""
    told(settings, "mig")
    write_label_answer(settings)
    assert chosen_again(settings).label_value == ""


def test_another_content_is_loaded_and_the_same_in_another_file_is_not(watch, configs):
    """A changed ConfigMap replaces all of its files."""
    configs.hold(default="scan: {period: 5s}", mig="scan: {period: 7s}")
    assert not watch.has_changed()
    configs.hold(default="scan: {period: 8s}", mig="scan: {period: 7s}")
    assert [watch.has_changed(), watch.has_changed()] == [True, False]


def test_a_change_between_the_first_look_and_the_watch_is_noticed(configs, settings):
    """The start takes a while."""
    configs.hold(default="scan: {period: 8s}", mig="")
    assert ConfigurationsWatch(settings.configurations, settings).has_changed()


def test_each_name_that_is_none_is_tried_once_and_its_file_when_it_comes(watch, settings, configs):
    """To try is to refuse, with a message."""
    told(settings, "absent")
    assert [watch.has_changed(), watch.has_changed()] == [True, False]
    told(settings, "gone", 2.0)
    assert [watch.has_changed(), watch.has_changed()] == [True, False]

    configs.hold(default="", mig="", gone="scan: {period: 9s}")
    assert [watch.has_changed(), watch.has_changed()] == [True, False]


def test_a_directory_that_vanishes_for_a_moment_is_no_loss(watch, configs, tmp_path):
    """What is in force stays; when it is back it is loaded again."""
    configs.directory.rename(tmp_path / "away")
    assert watch.has_changed()
    (tmp_path / "away").rename(configs.directory)
    assert [watch.has_changed(), watch.has_changed()] == [True, False]


def test_a_changed_file_is_loaded_for_a_reader_that_follows_another_and_for_no_first_one(tmp_path, monkeypatch):
    """Defect: an edit in an instance's first second was loaded, and refused, before anybody asked for it."""
    file = tmp_path / "config.yaml"
    file.write_text("scan: {period: 5s}")
    config = resolve(load({"config": str(file), "run_dir": str(tmp_path / "run")}, {}))
    forks = []

    def fork():
        forks.append(1)
        raise OSError

    monkeypatch.setattr("os.fork", fork)
    loader = Loader(load, SimpleNamespace(settings=config.settings()), config, is_old=False)
    file.write_text("scan: {period: 6s}\n")
    for readers in ({}, {"scanner": 0}, {"scanner": 0, "exporter": 0}, {"scanner": 0}):
        loader.tend(readers)
    assert forks == []
    loader.tend({"scanner": 0, "exporter": 1})
    assert forks == [1]
    loader.tend({"scanner": 1, "exporter": 1})
    assert forks == [1], "it has been looked at as it is now"
