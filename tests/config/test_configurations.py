"""Which file is the configuration: given, chosen by a label of the node, or the default one."""

from pathlib import Path

import pytest

from devherd import spool
from devherd.config.chosen_file import ConfigSource, source_of
from devherd.config.loader import load, reload
from devherd.configurations import DEFAULT_LABEL, Configurations
from devherd.errors import UsageError
from devherd.proto.spool_pb2 import LabelAnswer
from devherd.settings import label_file


@pytest.fixture
def configs(tmp_path) -> Path:
    directory = tmp_path / "configs"
    directory.mkdir()
    for name in ("default", "mig", "plain.yaml"):
        (directory / name).write_text(f"simulated: [{{name: example.com/{name.partition('.')[0]}, count: 1}}]")
    (directory / "..data").mkdir()
    return directory


def told(run_dir: Path, value: str, label: str = DEFAULT_LABEL) -> None:
    label_file(run_dir).parent.mkdir(parents=True, exist_ok=True)
    spool.write(label_file(run_dir), LabelAnswer(label=label, value=value, asked_timestamp_seconds=1.0))


@pytest.mark.parametrize(
    ("value", "default", "file"),
    [("mig", "", "mig"), ("plain", "mig", "plain.yaml"), ("plain.yaml", "", "plain.yaml"), ("", "mig", "mig")],
)
def test_the_label_names_a_file_with_or_without_its_suffix(configs, value, default, file):
    """Keys of a ConfigMap for NVIDIA's plugin have none."""
    assert Configurations(configs, default=default).file_of(value) == configs / file


def test_without_a_default_it_is_the_file_of_that_name_or_the_only_one(configs):
    """As NVIDIA's plugin falls back."""
    assert Configurations(configs).file_of("") == configs / "default"
    (configs / "default").unlink()
    (configs / "mig").unlink()
    assert Configurations(configs).file_of("") == configs / "plain.yaml"


def test_a_name_that_is_none_is_an_error_with_those_that_are(configs):
    """A label's value cannot lead out of the directory, either."""
    for value in ("absent", "../configs/mig", "..data"):
        with pytest.raises(UsageError) as caught:
            Configurations(configs).file_of(value)
        assert str(caught.value) == (
            f"no configuration `{value}` in {configs} — the node's label {DEFAULT_LABEL} names it"
            " — name an existing one: default, mig, plain.yaml"
        )
    with pytest.raises(UsageError, match=r"no configuration `gone` in .* — it is the default"):
        Configurations(configs, default="gone").file_of("")
    with pytest.raises(UsageError, match="cannot read /nowhere — No such file"):
        Configurations(Path("/nowhere")).file_of("")


def test_an_option_counts_before_the_environment_and_a_file_before_a_directory(configs, tmp_path):
    """In either of them."""
    file, directory = str(tmp_path / "c.yaml"), str(configs)
    chosen = ConfigSource(configs / "default", Configurations(configs))

    assert source_of({"config": file}, {"DEVHERD_CONFIGS": directory}) == ConfigSource(Path(file))
    assert source_of({"configs": directory}, {"DEVHERD_CONFIG": file}, "") == chosen
    assert source_of({}, {"DEVHERD_CONFIG": file, "DEVHERD_CONFIGS": directory}) == ConfigSource(Path(file))
    assert source_of({}, {"DEVHERD_CONFIGS": directory}, "") == chosen


def test_label_and_default_are_options_and_variables(configs):
    """Each has its own."""
    environ = {"DEVHERD_CONFIGS": str(configs), "DEVHERD_CONFIG_LABEL": "a/b", "DEVHERD_CONFIG_DEFAULT": "mig"}

    assert source_of({}, environ, "").configurations == Configurations(configs, "a/b", "mig")
    options = {"config_label": "c/d", "config_default": "plain"}
    assert source_of(options, environ, "").configurations == Configurations(configs, "c/d", "plain")


def test_at_the_start_a_name_that_is_none_counts_as_no_label(configs):
    """There is nothing in force that could stay. What the label said is kept, so that a file of its name is noticed."""
    source = source_of({"configs": str(configs)}, {}, "absent")

    assert (source.file, source.label_value) == (configs / "default", "absent")


def test_a_command_reads_what_the_instance_was_told(configs, tmp_path):
    """`devherd scan` in the pod shows what the pod serves. Another label's answer is none."""
    environ = {"DEVHERD_CONFIGS": str(configs), "DEVHERD_RUN_DIR": str(tmp_path / "run")}
    assert load({}, environ).source == configs / "default"

    told(tmp_path / "run", "mig")
    assert load({}, environ).source == configs / "mig"

    told(tmp_path / "run", "mig", label="other/label")
    assert load({}, environ).source == configs / "default"


def test_a_reload_follows_the_label_and_refuses_a_name_that_is_none(configs, tmp_path):
    """The configuration in force stays then. While nothing was told it is the one of the start."""
    options = {"configs": str(configs), "run_dir": str(tmp_path / "run")}
    running = load(options, {}, "mig").settings()
    assert (running.config_path, running.config_label_value) == (configs / "mig", "mig")
    assert reload(running, {}).source == configs / "mig"

    told(tmp_path / "run", "plain")
    again = reload(running, {})
    assert (again.source, again.settings().run_dir) == (configs / "plain.yaml", tmp_path / "run")

    told(tmp_path / "run", "absent")
    with pytest.raises(UsageError, match="no configuration `absent`"):
        reload(running, {})
