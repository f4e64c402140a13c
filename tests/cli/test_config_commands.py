"""`devherd check-config` and `devherd config-schema`."""

import json

import jsonschema
import pytest
import yaml
from command_line import devherd


def test_every_error_of_a_config_has_its_line_and_key_path(tmp_path):
    """All of them at once, each in the form of every error; exit 2."""
    path = tmp_path / "config.yaml"
    path.write_text("scan: {period: 5x}\nhealth: {recover_after: 0}\nresorces: []\n")

    outcome = devherd("check-config", path)
    lines = outcome.stderr.splitlines()

    assert (outcome.code, outcome.stdout) == (2, "")
    assert len(lines) == 3
    assert all(line.startswith(f"devherd: bad configuration in {path} — ") for line in lines)
    for key in ("scan.period: ", "health.recover_after: ", "resorces: unknown key; did you mean `resources`?"):
        assert sum(f" — {key}" in line for line in lines) == 1


def test_a_good_config_is_shown_with_the_resources_it_makes(tmp_path):
    """On this host, now."""
    path = tmp_path / "config.yaml"
    path.write_text("simulated: [{name: example.com/gpu, count: 2}]\n")

    outcome = devherd("check-config", path, "--host-root", tmp_path)

    assert (outcome.code, outcome.stderr) == (0, "")
    assert outcome.stdout.startswith(f"{path} is valid. On this host it results in:\n")
    assert outcome.stdout.count("example.com/gpu") == 2


def test_a_selector_that_can_match_nothing_is_told_and_is_no_error(tmp_path):
    """A fact that no vendor has, with what was perhaps meant: the rule would be without effect and without a word."""
    path = tmp_path / "config.yaml"
    path.write_text(
        "simulated: [{name: a.example/x, count: 1}]\nresources: [{match: {interfaceid: '*'}, advertise: false}]\n"
    )

    outcome = devherd("check-config", path, "--host-root", tmp_path)

    assert outcome.code == 0
    assert outcome.stderr == (
        f"devherd: warning: {path}: resources[0].match.interfaceid: no vendor has this fact — "
        "did you mean `interface_id`?\n"
    )
    assert f"{path} is valid." in outcome.stdout
    assert "a.example/x" in outcome.stdout


def test_a_simulated_resource_that_is_named_twice_is_an_error_with_both_places(tmp_path):
    """It was called good, and its second entry was left out."""
    path = tmp_path / "config.yaml"
    path.write_text("simulated: [{name: a.example/x, count: 1}, {name: a.example/x, count: 2}]\n")

    outcome = devherd("check-config", path)

    assert (outcome.code, outcome.stdout) == (2, "")
    assert outcome.error_line == (
        f"devherd: bad configuration in {path} — simulated[1].name: `a.example/x` is already defined in simulated[0];"
        " merge the two entries or rename one — correct it"
    )


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"a: [", b"- 1\n", b"scan: {period: 1s}\nscan: {period: 2s}\n", b"? [1]\n: 2\n"]
)
def test_a_file_that_is_no_configuration_is_one_line(tmp_path, content):
    """Not text, not YAML, not a mapping, a key twice, a key that is a list."""
    path = tmp_path / "config.yaml"
    path.write_bytes(content)

    outcome = devherd("check-config", path)

    assert outcome.code == 2
    assert str(path) in outcome.error_line


def test_an_unreadable_file_is_one_line(tmp_path):
    """Absent, or a directory."""
    for path in (tmp_path / "absent.yaml", tmp_path):
        outcome = devherd("check-config", path)

        assert outcome.code == 2
        assert f"cannot read {path}" in outcome.error_line


def test_the_schema_is_valid_and_fits_the_default_and_an_example():
    """Editors and validators can use it."""
    outcome = devherd("config-schema")
    schema = json.loads(outcome.stdout)

    assert outcome.code == 0
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    example = yaml.safe_load("generic: [{name: devic.es/kvm, groups: [{count: 10, paths: [{path: /dev/kvm}]}]}]")
    assert list(validator.iter_errors({})) == []
    assert list(validator.iter_errors(example)) == []
    assert list(validator.iter_errors({"nonsense": 1})) != []
