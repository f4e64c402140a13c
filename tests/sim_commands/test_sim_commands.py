"""`devherd sim node` and `devherd sim kubelet` as a user runs them."""

import asyncio
import inspect
import json
import re
import signal
import subprocess
import sys
import textwrap
import time
from types import SimpleNamespace
from typing import get_args

import jsonschema
import pytest
from small_plugin import RESOURCE, SmallPlugin

from devherd.cli import sim_kubelet, sim_node
from devherd.settings import Settings
from devherd_sim.kubelet.clients import NEWEST, RELEASES
from devherd_sim.node.spec import NodeSpec

COMMAND = [sys.executable, "-m", "devherd", "sim"]


def sim(*words):
    """Run a command to its end."""
    return subprocess.run([*COMMAND, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)


def complaint(done, code):
    """Its one line of error, with the exit code it should have."""
    assert done.returncode == code, done
    assert done.stderr.startswith("devherd: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.fixture
def kubelet_process(kubelet_dir):
    """`devherd sim kubelet` in the foreground, on its directory."""
    process = subprocess.Popen([*COMMAND, "kubelet", "--kubelet-dir", kubelet_dir], stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not (kubelet_dir / "sim-kubelet.sock").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_presets_are_listed():
    """A line each, for people."""
    listed = sim("node", "--list")
    assert listed.returncode == 0
    assert "fpga-8 " in listed.stdout
    assert "fpga-dense " in listed.stdout


def test_a_node_is_written_and_written_again(tmp_path):
    """The directory is new at first and an earlier node then."""
    for spec in ("fpga-8", "fpga-opae-1"):
        assert sim("node", tmp_path / "host", "--spec", spec).returncode == 0
    assert (tmp_path / "host/dev/intel-fpga-port.0").exists()
    assert not (tmp_path / "host/dev/dfl-port.0").exists()


def test_a_node_is_not_replaced_by_a_default(tmp_path):
    """Whoever forgets `--spec` keeps the node that is there; a new one is told from a preset's name."""
    made = sim("node", tmp_path / "host")
    assert (
        made.stdout == f"wrote preset fpga-1 to {tmp_path}/host; now run `devherd scan --host-root {tmp_path}/host`\n"
    )
    (tmp_path / "host/dev/mine").write_text("")
    refused = complaint(sim("node", tmp_path / "host"), 2)
    assert "has a simulated node already — it would be replaced by fpga-1 — give --spec to replace it" in refused
    assert (tmp_path / "host/dev/mine").exists()
    assert sim("node", tmp_path / "host", "--spec", "fpga-1").returncode == 0
    assert not (tmp_path / "host/dev/mine").exists()


def test_every_key_of_a_spec_is_explained(tmp_path):
    """By `--describe` for people, by `--schema` for editors, which takes what the command takes."""
    described = sim("node", "--describe").stdout
    schema = json.loads(sim("node", "--schema").stdout)
    sections = {name: section["properties"] for name, section in schema["$defs"].items()}
    for properties in (schema["properties"], *sections.values()):
        for key, value in properties.items():
            assert value["description"]
            assert re.search(rf"^ *{key}: .", described, re.MULTILINE)
    spec = {"preset": "fpga-8", "fpga": {"cards": 2}, "nvidia": {"gpus": 1, "mig": [["1g.10gb"]]}}
    jsonschema.validate(spec, schema)
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    assert sim("node", tmp_path / "host", "--spec", tmp_path / "spec.yaml").returncode == 0
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"nvidia": {"gpu": 1}}, schema)


def test_what_cannot_be_written_is_told_in_a_line(tmp_path):
    """A bad spec, no directory, a directory of other things, a place that cannot be one."""
    (tmp_path / "thesis.txt").write_text("x")
    assert "did you mean `fpga-8` or `fpga-1`?" in complaint(sim("node", tmp_path / "host", "--spec", "fpga-9"), 2)
    assert "no directory" in complaint(sim("node"), 2)
    assert "not a simulated node" in complaint(sim("node", tmp_path), 2)
    assert "not a directory" in complaint(sim("node", tmp_path / "thesis.txt"), 2)
    assert "cannot write" in complaint(sim("node", tmp_path / "thesis.txt/host"), 2)


def test_all_that_is_wrong_with_a_spec_is_said_a_line_each(tmp_path):
    """As `config check` does with a configuration."""
    spec = tmp_path / "spec.yaml"
    spec.write_text("fpga:\n  crads: 8\nnvidia:\n  gpus: many\n")
    done = sim("node", tmp_path / "host", "--spec", spec)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        f"devherd: bad spec in {spec}:2:3 — fpga.crads: unknown key — did you mean `cards`?",
        f"devherd: bad spec in {spec}:4:9 — nvidia.gpus: `many` is not a whole number — write one, like `4`",
    ]
    assert not (tmp_path / "host").exists()


@pytest.mark.parametrize("words", [["status"], ["devices"], ["allocate", RESOURCE, "1"], ["free", "pod"], ["restart"]])
def test_without_a_running_kubelet_the_cure_is_told(words, kubelet_dir):
    """Exit code 4 and how to start one."""
    assert "start one with" in complaint(sim("kubelet", *words, "--kubelet-dir", kubelet_dir), 4)


def test_a_second_kubelet_is_refused(kubelet_process, kubelet_dir):
    """Exit code 3."""
    assert "a kubelet listens there" in complaint(sim("kubelet", "--kubelet-dir", kubelet_dir), 3)


@pytest.mark.parametrize("words", [[], ["--kubernetes", "1.36"]])
def test_status_names_the_release_whose_rules_the_kubelet_has(words, kubelet_dir):
    """The newest, if none is given."""
    release = words[-1] if words else NEWEST
    command = [*COMMAND, "kubelet", *words, "--kubelet-dir", kubelet_dir]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout:
                if "may register" in line:
                    break
            assert line.endswith(f"by the rules of Kubernetes {release}\n")
            status = sim("kubelet", "status", "--output", "json", "--kubelet-dir", kubelet_dir)
            assert json.loads(status.stdout)["kubernetes"] == release
            table = sim("kubelet", "status", "--kubelet-dir", kubelet_dir).stdout
            assert table.endswith(f"by the rules of Kubernetes {release}\n")
        finally:
            process.kill()


def test_every_release_that_the_embedded_kubelet_has_can_be_chosen():
    """The command does not import it for its help."""
    assert sim_kubelet.RELEASES == RELEASES


def test_a_plugin_author_sees_registration_list_and_answer(kubelet_process, kubelet_dir):
    """A plugin registers, a pod gets its device, the kubelet restarts, and all of it is printed."""

    async def scenario():
        plugin = SmallPlugin(SimpleNamespace(paths=Settings(kubelet_dir=kubelet_dir)), "a", "b")
        await plugin.serve()
        await plugin.register()
        await asyncio.to_thread(_until, lambda: '"allocatable": 2' in _ask("status", "--output", "json"))
        assert f"{RESOURCE}   2             2" in await asyncio.to_thread(_ask, "status")
        answer = json.loads(await asyncio.to_thread(_ask, "allocate", RESOURCE, "2", "--output", "json"))
        assert answer["device_ids"] == ["a", "b"]
        assert answer["devices"][0] == {"host_path": "/dev/a", "container_path": "/dev/a", "permissions": "rw"}
        await asyncio.to_thread(_ask, "free", "pod")
        table = await asyncio.to_thread(_ask, "allocate", "--pod", "train", RESOURCE, "1")
        assert "/dev/" in table
        assert "train" in await asyncio.to_thread(_ask, "devices", RESOURCE)
        refused = await asyncio.to_thread(sim, "kubelet", "allocate", RESOURCE, "2", "--kubelet-dir", kubelet_dir)
        assert "Requested: 2, Available: 1" in complaint(refused, 1)
        assert "restarted" in await asyncio.to_thread(_ask, "restart")
        await plugin.stop()

    def _ask(*words):
        done = sim("kubelet", "--kubelet-dir", kubelet_dir, *words)
        assert done.returncode == 0, done
        return done.stdout

    def _until(condition):
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    asyncio.run(scenario())
    kubelet_process.send_signal(signal.SIGTERM)
    said, _ = kubelet_process.communicate(timeout=30)
    assert kubelet_process.returncode == 0
    for line in ("registered, socket p.sock", "list of 2 healthy and 0 unhealthy", "pod/main gets a b", "is rejected"):
        assert line in said
    left = sorted(str(path.relative_to(kubelet_dir)) for path in kubelet_dir.rglob("*") if not path.is_dir())
    plugins = ["device-plugins/kubelet.sock", "device-plugins/kubelet_internal_checkpoint"]
    assert left == [*plugins, "pod-resources/kubelet.sock"]  # as a real kubelet leaves them


def test_a_whole_pod_is_admitted_from_its_manifest(kubelet_process, kubelet_dir, tmp_path):
    """What each container gets; a bad file and a refused pod are errors of one line."""
    limits = f"resources: {{limits: {{{RESOURCE}: 1}}}}"
    spec = f"{{initContainers: [{{name: load, {limits}}}], containers: [{{name: main, {limits}}}]}}"
    (tmp_path / "pod.yaml").write_text(f"kind: Pod\nmetadata: {{name: train, namespace: lab}}\nspec: {spec}\n")
    (tmp_path / "bad.yaml").write_text("kind: Job\n")

    def admit(name, *words):
        return sim("kubelet", "admit", tmp_path / name, "--kubelet-dir", kubelet_dir, *words)

    async def scenario():
        plugin = SmallPlugin(SimpleNamespace(paths=Settings(kubelet_dir=kubelet_dir)), "a")
        await plugin.serve()
        await plugin.register()
        await asyncio.sleep(0.2)
        told_of = json.loads((await asyncio.to_thread(admit, "pod.yaml", "--output", "json")).stdout)
        assert [(each["container"], each["device_ids"]) for each in told_of] == [("load", ["a"]), ("main", ["a"])]
        assert "container main" in (await asyncio.to_thread(admit, "pod.yaml")).stdout
        freed = await asyncio.to_thread(sim, "kubelet", "free", "lab/train", "--kubelet-dir", kubelet_dir)
        assert freed.stdout == "free again: a a\n"
        await plugin.stop()

    asyncio.run(scenario())
    assert "its kind is Job" in complaint(admit("bad.yaml"), 2)
    assert "no healthy devices present" in complaint(admit("pod.yaml"), 1)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--numa-nodes", "0"], "a machine has one or more"),
        (["--numa-nodes", "9", "--topology-policy", "restricted"], "a kubelet refuses more than 8"),
        (["--grace-period", "-1"], "it must not be negative"),
        (["--topology-policy", "strict"], "is not one of"),
    ],
)
def test_a_node_that_cannot_be_is_refused(words, why, kubelet_dir):
    """Exit code 2."""
    assert why in complaint(sim("kubelet", "--kubelet-dir", kubelet_dir, *words), 2)


def test_a_killed_kubelet_can_be_started_again(kubelet_process, kubelet_dir):
    """What it leaves behind is no hindrance."""
    kubelet_process.kill()
    kubelet_process.wait()
    again = subprocess.Popen([*COMMAND, "kubelet", "--kubelet-dir", kubelet_dir], stdout=subprocess.PIPE, text=True)
    try:
        assert "takes registrations" in again.stdout.readline()
        assert list(kubelet_dir.glob(".sim-kubelet-*")) == []
    finally:
        again.terminate()
        again.communicate(timeout=30)
    assert again.returncode == 0


def test_the_help_of_sim_node_shows_every_key_of_a_spec_in_a_spec_that_is_right(tmp_path):
    """The example is a file that the command takes, and it has every key that a file may have."""
    shown = re.search(r"\n\n(  preset: .*?)\n\n", inspect.getdoc(sim_node.run_node), re.DOTALL)[1]
    example = tmp_path / "spec.yaml"
    example.write_text(textwrap.dedent(re.sub(r"[a-z_]+: \[?\.\.\.\]?(, )?|, \.\.\.", "", shown)))
    written = sim("node", tmp_path / "host", "--spec", example)
    assert (written.returncode, written.stderr) == (0, "")
    sections = {name: field.annotation for name, field in NodeSpec.model_fields.items()}
    models = [
        inner for kind in sections.values() for inner in (kind, *get_args(kind)) if hasattr(inner, "model_fields")
    ]
    keys = {"preset", *sections, *(key for model in models for key in model.model_fields)}
    assert {key for key in keys if not re.search(rf"\b{key}:", shown)} == set()
