"""`devherd scan`: the contract's JSON, the same as YAML, a table for people, and why."""

import json
import os
import shutil
import socket
import subprocess
import termios
from pathlib import Path

import jsonschema
import offered
import pytest
import scratch
import yaml
from command_line import COMMAND, devherd

from devherd import spool
from devherd.proto import health_pb2
from devherd.proto.spool_pb2 import Instance, Offer
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode

SCHEMA = json.loads(Path(__file__).with_name("scan.schema.json").read_text())

CONFIG = """
generic:
  - {name: devic.es/null, groups: [{count: 2, paths: [{path: /dev/null, mountPath: /dev/nothing}]}]}
  - {name: devic.es/absent, groups: [{paths: [{path: /dev/absent}]}]}
simulated:
  - {name: example.com/gpu, count: 11, numa_nodes: 2}
resources:
  - match: {id: gpu-10}
    advertise: false
  - match: {id: gpu-9}
    name: example.com/shared
    sharing: {replicas: 2}
"""


@pytest.fixture
def config(tmp_path):
    """Real device nodes, names only, shared, left out, and a problem (nothing to match)."""
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


def test_json_has_the_contracts_form(config):
    """Validated against a schema of it; resources by name, devices in natural order."""
    outcome = devherd("scan", "--output", "json", "--config", config)
    inventory = json.loads(outcome.stdout)

    assert (outcome.code, outcome.stderr) == (0, "")
    jsonschema.validate(inventory, SCHEMA)
    names = [resource["name"] for resource in inventory["resources"]]
    assert names == ["devic.es/null", "example.com/gpu", "example.com/shared"]
    gpus = [device["id"] for device in inventory["resources"][1]["devices"]]
    assert gpus == [f"gpu-{number}" for number in range(9)]
    assert [device["id"] for device in inventory["resources"][2]["devices"]] == ["gpu-9::0", "gpu-9::1"]
    assert [problem["vendor"] for problem in inventory["problems"]] == ["generic"]
    assert list(inventory) == ["devherd", "host", "duration_seconds", "resources", "problems", "notices"]


def test_what_a_device_lists_is_what_it_gives_a_container(config):
    """The node of this machine under the name that the container sees."""
    inventory = json.loads(devherd("scan", "--output", "json", "--config", config).stdout)

    node = {"host_path": "/dev/null", "container_path": "/dev/nothing", "permissions": "mrw"}
    assert [device["nodes"] for device in inventory["resources"][0]["devices"]] == [[node], [node]]


def test_the_table_shows_the_environment_where_it_is_all_that_a_container_gets(tmp_path):
    """NVIDIA's GPUs by default: a variable alone names the device to the runtime."""
    assert devherd("sim", "node", tmp_path / "node", "--spec", "nvidia-1").code == 0

    table = devherd("scan", "--host-root", tmp_path / "node").stdout

    assert "NVIDIA_VISIBLE_DEVICES=GPU-" in table


def test_yaml_says_the_same_as_json(config):
    """Another notation, nothing else."""
    as_json = json.loads(devherd("scan", "--output", "json", "--config", config).stdout)
    as_yaml = yaml.safe_load(devherd("scan", "--output", "yaml", "--config", config).stdout)

    for inventory in (as_json, as_yaml):
        inventory.pop("duration_seconds")
    assert as_yaml == as_json


def test_a_table_in_a_pipe_is_neither_cut_nor_wrapped(config):
    """A row for each device, its shares in the row, the problem, and a line that sums up."""
    outcome = devherd("scan", "--config", config, environment={"COLUMNS": "40"})
    lines = outcome.stdout.splitlines()

    assert outcome.code == 0
    assert lines[0].split() == ["RESOURCE", "DEVICE", "HEALTH", "NUMA", "WHAT", "A", "CONTAINER", "GETS"]
    assert sum("Healthy" in line for line in lines) == 11
    assert sum("(2 shares)" in line for line in lines) == 1
    assert sum("gpu-9 (2 replicas)" in line for line in lines) == 1
    assert sum("/dev/null:/dev/nothing" in line for line in lines) == 1
    assert sum("/dev/absent" in line and "no device matches" in line for line in lines) == 1
    assert lines[-1].startswith("3 resources, 13 devices (0 unhealthy), 1 problem, ")


def test_the_table_fits_a_terminal_of_80_columns(tmp_path):
    """Defect: it was 140 wide, and the terminal wrapped each line. What is left out is said."""
    SimulatedNode.create(tmp_path / "node", preset("nvidia-8"))
    ours, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    command = [*COMMAND, "scan", "--host-root", tmp_path / "node"]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"TERM": "dumb"}
    done = subprocess.run(command, stdout=terminal, env=environment, timeout=60, check=True)
    os.close(terminal)
    lines = os.read(ours, 1 << 16).decode().splitlines()
    os.close(ours)
    assert done.returncode == 0
    assert lines[0].split() == ["RESOURCE", "DEVICE", "HEALTH", "NUMA"]
    assert max(map(len, lines)) <= 80
    assert "… the screen is too narrow for WHAT A CONTAINER GETS" in lines


def test_a_view_whose_pipe_is_closed_ends_as_a_program_in_a_pipe_does(config):
    """Defect: rich ended the program with 1, as if there were a problem: `devherd demo | head`."""
    view = subprocess.Popen([*COMMAND, "scan", "--watch", "--config", config], stdout=subprocess.PIPE)
    assert view.stdout.readline()
    view.stdout.close()
    assert view.wait(60) == 141


def test_brackets_in_a_name_are_shown_as_they_are(tmp_path):
    """Not taken for markup of the table."""
    config = tmp_path / "config.yaml"
    config.write_text(
        "generic: [{name: devic.es/n, groups: [{paths: [{path: /dev/null, mountPath: '/dev/[red]x'}]}]}]\n"
    )

    assert "/dev/null:/dev/[red]x" in devherd("scan", "--config", config).stdout


def test_explain_says_why_each_device_is_where_it_is(config):
    """By a rule, by its vendor's own name, under two ids, or not at all."""
    told = devherd("scan", "--explain", "--config", config).stdout

    assert "simulated gpu-0 → example.com/gpu, by simulated's default name" in told
    assert "simulated gpu-9 → example.com/shared, by resources[1]" in told
    assert "simulated gpu-10 → not advertised, by resources[0]" in told


def test_explain_is_in_the_json_too(config):
    """Two more keys for each device."""
    inventory = json.loads(devherd("scan", "--explain", "--output", "json", "--config", config).stdout)

    shared = inventory["resources"][2]["devices"][0]
    assert (shared["rule"], shared["sources"]) == ("resources[1]", {})


@pytest.fixture
def beside():
    """A node of two GPUs with the files of its instance, which holds an Xid, a cordon and a lost device."""
    directory = scratch.directory()
    node = directory / "node"
    SimulatedNode.create(node, preset("nvidia-8"))
    found = json.loads(devherd("scan", "--output", "json", "--host-root", node, "--run-dir", "/nowhere").stdout)
    first, second = [
        (resource["name"], device["id"], device["attributes"]["pci_address"])
        for resource in found["resources"]
        for device in resource["devices"]
    ][:2]
    for (name, device_id, card), reason in ((first, "xid"), (second, "cordoned")):
        known = offered.offers_in(directory).get(name, Offer(name=name, vendor="nvidia"))
        known.devices.add(id=device_id, vendor="nvidia", card=card, reasons=[reason])
        offered.put(directory, known)
    held = health_pb2.Held(source="kernel-log", reason="xid", detail="fell off the bus", file="/dev/kmsg", value="79")
    verdict = health_pb2.Verdict(vendor="nvidia", card=first[2], device=first[1], held=[held])
    spool.write(directory / "verdicts.pb", health_pb2.Verdicts(verdicts=[verdict]))
    lost = health_pb2.LostDevice(vendor="nvidia", device="GPU-gone", resource_name="nvidia.com/gpu")
    spool.write(directory / "lost.pb", health_pb2.Lost(devices=[lost]))
    spool.write(directory / "instance.pb", Instance(host_root=str(node), run_dir=str(directory)))
    with socket.socket(socket.AF_UNIX) as supervisor:
        supervisor.bind(str(directory / "supervisor.sock"))
        supervisor.listen(64)
        yield directory
    shutil.rmtree(directory)


def test_beside_a_running_instance_a_scan_has_its_verdicts(beside):
    """Defect: `8 of 8 Healthy` where the kubelet was told that two are not."""
    words = ("--run-dir", beside, "--host-root", beside / "node")
    told = devherd("scan", "--unhealthy", "--explain", *words).stdout
    inventory = json.loads(devherd("scan", "--unhealthy", "--output", "json", *words).stdout)

    reasons = sorted(device["reasons"] for resource in inventory["resources"] for device in resource["devices"])
    assert reasons == [["cordoned"], ["xid"]]
    assert [(problem["device"], problem["path"]) for problem in inventory["problems"]] == [
        ("GPU-gone", f"{beside}/lost.pb")
    ]
    assert "unhealthy: xid by kernel-log: fell off the bus /dev/kmsg: 79" in told
    assert "2 devices (2 unhealthy), 1 problem" in told
    assert told.endswith(f"and as the instance in {beside} holds it (`devherd status`)\n")


def test_beside_a_running_instance_its_verdicts_are_taints(beside):
    """A cordon and an Xid, as the instance holds them; what it has lost is a problem."""
    told = devherd(
        "scan", "--as", "dra", "--run-dir", beside, "--host-root", beside / "node", environment={"NODE_NAME": "node-1"}
    )
    devices = next(yaml.safe_load_all(told.stdout))["spec"]["devices"]
    taints = [[taint["key"] for taint in device.get("taints", [])] for device in devices]
    assert sorted(taints) == [*([[]] * 6), ["devherd.io/cordoned"], ["devherd.io/xid"]]
    assert any(line.startswith("devherd: nvidia GPU-gone — ") for line in told.stderr.splitlines())


def test_the_exit_code_of_a_scan_follows_the_verdicts_of_the_instance(beside):
    """A cordon is wanted, and fails nothing."""
    words = ("scan", "--fail-on-problem", "--run-dir", beside, "--host-root", beside / "node")
    (beside / "lost.pb").unlink()
    assert devherd(*words).code == 1
    [offer] = offered.offers_in(beside).values()
    del offer.devices[0].reasons[:]
    offered.put(beside, offer)
    assert devherd(*words).code == 0


def test_who_may_not_read_the_verdicts_is_told_so(monkeypatch, tmp_path):
    """The run directory is root's: "8 of 8 Healthy" would be a guess."""
    from devherd.cli import instance, scan
    from devherd.config.model import Config
    from devherd.errors import UnreachableError
    from devherd.scanner.once import ScanReport

    def refuse(_settings):
        raise UnreachableError("cannot reach it", "no", "use sudo") from PermissionError(13, "Permission denied")

    monkeypatch.setattr(instance, "require_running", refuse)
    report = ScanReport(offers=[], problems=[], duration_seconds=0.0)
    own = scan.with_verdicts(report, Config(run_dir=tmp_path))
    other = scan.with_verdicts(report, Config(run_dir=tmp_path, host_root=tmp_path))

    assert [(note.path, note.error.partition(";")[0]) for note in own.notices] == [
        (str(tmp_path), "an instance may run there")
    ]
    assert other == report


def test_a_scan_of_another_tree_has_nothing_of_the_instance(beside, tmp_path):
    """The instance does not know it."""
    SimulatedNode.create(tmp_path / "node", preset("nvidia-8"))
    words = ("scan", "--fail-on-problem", "--run-dir", beside, "--host-root", tmp_path / "node")
    assert devherd(*words).code == 0
    assert " (0 unhealthy), 0 problems" in devherd(*words).stdout


def test_a_problem_fails_the_scan_only_when_asked(config):
    """For scripts: exit 1, and everything is printed all the same."""
    assert devherd("scan", "--config", config).code == 0

    outcome = devherd("scan", "--config", config, "--fail-on-problem", "--output", "json")
    assert outcome.code == 1
    assert len(json.loads(outcome.stdout)["resources"]) == 3

    config.write_text("simulated: [{name: example.com/gpu, count: 1}]\n")
    assert devherd("scan", "--config", config, "--fail-on-problem").code == 0


@pytest.mark.parametrize("command", [["scan"], ["config", "check"]])
def test_a_generic_resource_of_which_nothing_is_there_is_shown_as_a_problem(tmp_path, command):
    """With its name and what nothing matches; it would be missing without a word otherwise."""
    path = tmp_path / "config.yaml"
    path.write_text("generic: [{name: devic.es/serial, groups: [{paths: [{path: '/dev/no-tty*'}]}]}]")

    outcome = devherd(*command, "--config", path)

    assert outcome.code == 0
    (row,) = [line for line in outcome.stdout.splitlines() if "/dev/no-tty*" in line]
    assert " ".join(row.split()) == "generic /dev/no-tty* no device matches; devic.es/serial is not advertised"
    assert devherd("scan", "--fail-on-problem", "--config", path).code == 1


def test_a_host_without_devices_is_told_so(tmp_path):
    """An empty tree: no table, no error."""
    outcome = devherd("scan", "--host-root", tmp_path)

    assert (outcome.code, outcome.stderr) == (0, "")
    assert "\n0 resources, 0 devices (0 unhealthy), " in outcome.stdout


def test_an_unhealthy_device_is_listed_with_its_reasons():
    """The table's own words, without a device that really is out of order."""
    from devherd.cli import tables
    from devherd.proto.spool_pb2 import Device

    text = tables.health(Device(id="0", reasons=["fme-error", "port-error"]))

    assert text.plain == "Unhealthy: fme-error, port-error"


def test_a_host_without_devices_is_told_where_was_looked(tmp_path):
    """Not an empty table: which vendors, and where each would be found."""
    config = tmp_path / "config.yaml"
    config.write_text("vendors: {amd: {enabled: false}}\n")
    host = tmp_path / "host"
    host.mkdir()

    outcome = devherd("scan", "--host-root", host, "--config", config)

    assert outcome.code == 0
    assert "No device was found. Looked for:\n" in outcome.stdout
    assert "    NVIDIA GPUs in /proc/driver/nvidia/gpus\n" in outcome.stdout
    assert "    AMD GPUs: switched off\n" in outcome.stdout
    assert "0 resources, 0 devices (0 unhealthy), 0 problems" in outcome.stdout


def test_devices_of_which_none_is_advertised_are_not_passed_over(tmp_path):
    """`0 resources, 0 devices` was all, as if nothing were there."""
    config = tmp_path / "config.yaml"
    config.write_text("simulated: [{name: a.example/b, count: 3}]\nresources: [{match: {}, advertise: false}]\n")
    (tmp_path / "host").mkdir()
    outcome = devherd("scan", "--host-root", tmp_path / "host", "--config", config)
    assert outcome.stdout.startswith(
        "Found 3 devices, none of which is advertised: `devherd scan --explain` says why.\n\n0 resources, 0 devices"
    )


@pytest.mark.parametrize("strategy", ["none", "mixed"])
def test_mig_devices_that_the_strategy_leaves_out_are_noted_with_the_cure(tmp_path, strategy):
    """Whole GPUs were shown of a node in MIG mode, and not a word of its MIG devices; it is no problem all the same."""
    node, config = tmp_path / "node", tmp_path / "config.yaml"
    devherd("sim", "node", node, "--spec", "nvidia-mig")
    config.write_text(f"vendors: {{nvidia: {{mig_strategy: {strategy}}}}}\n")
    words = ("scan", "--host-root", node, "--config", config)

    outcome = devherd(*words, "--fail-on-problem")
    [*notices] = json.loads(devherd(*words, "--output", "json").stdout)["notices"]
    said = (
        "6 MIG devices of 2 GPUs left out, because `vendors.nvidia.mig_strategy` is `none`: set it to `mixed` or"
        " `single` to advertise MIG devices, or turn MIG mode off (`nvidia-smi -mig 0`)"
    )
    place = "/proc/driver/nvidia/capabilities"
    noted = [{"vendor": "nvidia", "path": place, "error": said, "device": None}] if strategy == "none" else []
    assert (outcome.code, notices) == (0, noted)
    assert (f"\nnote: {place}: {said}\n" in outcome.stdout) is (strategy == "none")
    assert ("note: " in devherd(*words, "--vendor", "amd").stdout) is False


@pytest.mark.parametrize(
    ("words", "names", "devices"),
    [
        (("--resource", "example.com/*"), ["example.com/gpu", "example.com/shared"], 10),
        (("--resource", "devic.es/null", "--resource", "example.com/gpu"), ["devic.es/null", "example.com/gpu"], 10),
        (("--vendor", "generic"), ["devic.es/null"], 1),
        (("--unhealthy",), [], 0),
    ],
)
def test_what_is_scanned_can_be_chosen(config, words, names, devices):
    """In the table, in the JSON, and in what is explained."""
    inventory = json.loads(devherd("scan", "--output", "json", *words, "--config", config).stdout)
    told = devherd("scan", "--explain", *words, "--config", config).stdout

    assert [resource["name"] for resource in inventory["resources"]] == names
    assert sum(" → " in line for line in told.splitlines()) == devices
    assert ("No device is unhealthy or has a warning." in told) == (not names)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--resource", "example.com/gpux"), "did you mean `example.com/gpu`?"),
        (("--vendor", "nvdia"), "did you mean `nvidia`?"),
    ],
)
def test_a_name_that_there_is_not_is_an_error_with_those_that_there_are(config, words, complaint):
    """An empty table would look like a host without devices."""
    outcome = devherd("scan", *words, "--config", config)

    assert (outcome.code, outcome.stdout) == (2, "")
    assert complaint in outcome.error_line


def test_a_vendor_without_a_device_is_no_error(config):
    """Perhaps its driver is missing: a problem says so."""
    outcome = devherd("scan", "--vendor", "intel_fpga", "--config", config)

    assert outcome.code == 0
    assert outcome.stdout.startswith("No device of these resources and vendors.\n")


def test_a_watch_goes_on_when_its_resource_goes_and_says_so(tmp_path):
    """It ended with an error."""
    path, config = tmp_path / "x", tmp_path / "config.yaml"
    path.touch()
    config.write_text(f"generic: [{{name: devic.es/x, groups: [{{paths: [{{path: {path}, type: Mount}}]}}]}}]\n")
    command = [*COMMAND, "scan", "--watch", "--resource", "devic.es/x", "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert any("1 device (0 unhealthy)" in line for line in watching.stdout)
        path.unlink()
        assert any(line == "devic.es/x: not there at present\n" for line in watching.stdout)
        path.touch()
        assert any("1 device (0 unhealthy)" in line for line in watching.stdout)
        watching.terminate()
