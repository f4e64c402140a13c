"""`devherd doctor` as a user runs it: its report, its exit code, its archive."""

import json
import shutil
import socket
import tarfile

import pytest
import scratch
from command_line import devherd

from devherd import spool
from devherd.doctor.bundle import CONTENTS, LEFT_OUT, redacted, write
from devherd.proto.spool_pb2 import Instance
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode


@pytest.fixture
def host():
    """A simulated node, with directories of a kubelet that is away. A short path: its sockets are looked at."""
    directory = scratch.directory()
    SimulatedNode.create(directory / "node", preset("fpga-opae-2"))
    (directory / "kubelet/device-plugins").mkdir(parents=True)
    yield directory
    shutil.rmtree(directory)


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


def test_beside_a_running_instance_it_looks_where_the_instance_looks(host):
    """Defect: "no device was found", beside an instance that served them from another host root."""
    run_dir, config = host / "run", host / "config.yaml"
    run_dir.mkdir()
    config.write_text("resources: [{match: {vendor: intel_fpga}, name: example.com/fpga}]\n")
    spool.write(run_dir / "instance.pb", Instance(host_root=f"{host}/node", config=str(config)))
    words = ("doctor", f"--kubelet-dir={host}/kubelet", f"--run-dir={run_dir}", "--listen=")
    with socket.socket(socket.AF_UNIX) as supervisor:
        supervisor.bind(str(run_dir / "supervisor.sock"))
        supervisor.listen(64)
        beside = devherd(*words, "--bundle", host / "bundle.tar.gz").stdout
        (host / "empty").mkdir()
        given = devherd(*words, "--host-root", host / "empty").stdout

    assert "devices        example.com/fpga: 2 devices" in beside
    assert "no device was found" in given
    with tarfile.open(host / "bundle.tar.gz") as archive:
        assert b"example.com/fpga" in archive.extractfile("devherd-support/config.yaml").read()


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


def test_with_a_bad_configuration_the_environment_still_says_where_things_are(host):
    """It would examine another kubelet than the instance's; an option overrules it."""
    (host / "config.yaml").write_text("scann: {}")
    (host / "kubelet/plugins_registry").mkdir()
    environment = {
        "DEVHERD_CONFIG": f"{host}/config.yaml",
        "DEVHERD_HOST_ROOT": f"{host}/node",
        "DEVHERD_KUBELET_DIR": f"{host}/kubelet",
        "DEVHERD_RUN_DIR": f"{host}/run",
        "DEVHERD_REGISTRATION": "plugins_registry",
    }
    said = devherd("doctor", environment=environment).stdout
    assert f"{host}/kubelet/plugins_registry takes sockets" in said
    assert f"{host}/run" in said
    said = devherd("doctor", f"--kubelet-dir={host}/other", environment=environment).stdout
    assert f"{host}/other/plugins_registry cannot be used" in said


def test_the_archive_holds_what_it_says_and_no_secret(host):
    """Its list is complete, and nobody else can read the file."""
    words = "/bin/check, --token=s3cret, --password, s3cret, -H, 'Authorization: Bearer s3cret', -u, 'user:s3cret'"
    program = f"{{name: a, match: {{vendor: amd}}, command: [{words}]}}"
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


def test_an_archive_replaces_a_file_and_nothing_else(host):
    """The file's readers do not get the new one; a link is not followed, and what is no file stays."""
    archive, link = host / "support.tar.gz", host / "link.tar.gz"
    archive.write_bytes(b"before")
    archive.chmod(0o644)
    link.symlink_to(host / "victim")
    with archive.open("rb") as reader:
        assert write(archive, {"versions.txt": lambda: "devherd"}) == []
        assert reader.read() == b"before"
    assert archive.stat().st_mode & 0o777 == 0o600
    for other in (link, host):
        with pytest.raises(FileExistsError, match="it exists and is not a file"):
            write(other, {})
    assert not (host / "victim").exists()


def test_an_archive_that_is_interrupted_leaves_nothing_behind(host):
    """By whatever it was."""

    def interrupted():
        assert next(host.glob(".devherd-support-*")).stat().st_mode & 0o777 == 0o600
        raise KeyboardInterrupt

    before = set(host.iterdir())
    with pytest.raises(KeyboardInterrupt):
        write(host / "support.tar.gz", {"versions.txt": interrupted})
    assert set(host.iterdir()) == before


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
        ({"command": ["/bin/curl", "-u", "user:x"]}, {"command": ["/bin/curl", LEFT_OUT, LEFT_OUT]}),
        ({"command": "/bin/curl -u user:x"}, {"command": ["/bin/curl", LEFT_OUT, LEFT_OUT]}),
        ([{"command": []}, {"command": " "}, {"command": 5}], [{"command": []}, {"command": " "}, {"command": 5}]),
        ({"file": "get https://u:p@h/a@b or //x@h:1"}, {"file": f"get https://{LEFT_OUT}@h/a@b or //{LEFT_OUT}@h:1"}),
        ("see https://h/a@b", "see https://h/a@b"),
    ],
)
def test_what_looks_like_a_secret_is_left_out(value, shown):
    """By the name of its key or option, as a URL's login, and as a program's argument, whatever that is."""
    assert redacted(value) == shown
