"""`devherd doctor` as a user runs it: its report, its exit code, its archive."""

import json
import tarfile

import pytest
from command_line import devherd

from devherd.doctor.redaction import LEFT_OUT, redacted
from devherd.doctor.support_archive import CONTENTS
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode


@pytest.fixture
def host(tmp_path):
    """A simulated node, with directories of a kubelet that is away."""
    SimulatedNode.create(tmp_path / "node", preset("fpga-opae-2"))
    (tmp_path / "kubelet/device-plugins").mkdir(parents=True)
    return tmp_path


def options(host) -> list[str]:
    return [
        f"--host-root={host}/node",
        f"--kubelet-dir={host}/kubelet",
        f"--run-dir={host}/run",
        "--listen=",
    ]


def test_the_report_has_a_line_for_each_check_and_ends_with_the_sum(host):
    """A kubelet that is away is a problem: exit 1."""
    outcome = devherd("doctor", *options(host))

    lines = outcome.stdout.splitlines()
    assert outcome.code == 1
    assert {line.split()[0] for line in lines[:-2]} <= {"ok", "warning", "problem"}
    assert {line.split()[1] for line in lines[:-2]} == {
        "environment", "kubelet", "devices", "runtime", "notifications", "instance",
    }  # fmt: skip
    [away] = [line for line in lines if line.startswith("problem")]
    assert "device-plugins/kubelet.sock does not exist — start the kubelet" in away
    assert lines[-1].startswith("1 problem, ")
    assert not (host / "run").exists()


def test_json_has_level_topic_text_and_cure(host):
    """For programs."""
    said = json.loads(devherd("doctor", "--output", "json", *options(host)).stdout)

    assert {tuple(line) for line in said["lines"]} == {("level", "topic", "what", "cure")}
    assert all(line["cure"] for line in said["lines"] if line["level"] != "ok")


def test_where_all_is_well_it_exits_with_0(host):
    """Warnings do not count."""
    outcome = devherd("doctor", "--registration=plugins_registry", *options(host))
    assert outcome.code == 1
    (host / "kubelet/plugins_registry").mkdir()
    assert devherd("doctor", "--registration=plugins_registry", *options(host)).code == 0


def test_a_bad_configuration_is_a_line_and_the_rest_is_examined(host):
    """It may be why somebody asks."""
    (host / "config.yaml").write_text("scann: {}")
    outcome = devherd("doctor", "--config", host / "config.yaml", *options(host))

    assert (outcome.code, outcome.stderr) == (1, "")
    assert "problem  configuration  bad configuration in" in outcome.stdout
    assert "notifications" in outcome.stdout


def test_the_archive_holds_what_it_says_and_no_secret(host):
    """Its list is complete, and nobody else can read the file."""
    program = "{name: a, match: {vendor: amd}, command: [/bin/check, --token=s3cret, --password, s3cret]}"
    (host / "config.yaml").write_text(f"health: {{external: [{program}]}}")
    (host / "run/logs").mkdir(parents=True)
    (host / "run/logs/scanner.log").write_text("hello\n")
    archive = host / "support.tar.gz"
    outcome = devherd("doctor", "--bundle", archive, "--config", host / "config.yaml", *options(host))

    with tarfile.open(archive) as packed:
        held = {entry.name.partition("/")[2]: packed.extractfile(entry).read().decode() for entry in packed}
    assert f"wrote {archive}" in outcome.stderr
    assert "pods" in outcome.stderr
    assert {name.replace("scanner.log", "") for name in held} == CONTENTS.keys() - {"status.json"}
    assert "status.json: no instance runs in" in held["README.txt"]
    assert all(name in held["README.txt"] for name in CONTENTS)
    assert "s3cret" not in "".join(held.values())
    assert (held["logs/scanner.log"], "/bin/check" in held["config.yaml"]) == ("hello\n", True)
    assert archive.stat().st_mode & 0o777 == 0o600


def test_an_archive_that_cannot_be_written_is_an_error(host):
    """With the report printed all the same."""
    outcome = devherd("doctor", "--bundle", host / "no/such/x.tar.gz", *options(host))

    assert outcome.code == 1
    assert "cannot write" in outcome.error_line
    assert "ok       environment" in outcome.stdout


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"api_key": "x", "a": 1}, {"api_key": LEFT_OUT, "a": 1}),
        (["run", "--token", "x", "y"], ["run", "--token", LEFT_OUT, "y"]),
        (["--auth-token=x", "--plain=x"], [f"--auth-token={LEFT_OUT}", "--plain=x"]),
        ({"deep": [{"passwd": ["x"]}]}, {"deep": [{"passwd": [LEFT_OUT]}]}),
    ],
)
def test_what_looks_like_a_secret_is_left_out(value, shown):
    """By the name of its key or option."""
    assert redacted(value) == shown
