"""`devherd scan --as dra`: objects on stdout, the rest on stderr, nothing written."""

import json
import subprocess
import sys

import pytest
import yaml
from publishing import published, resolved

from devherd.scanner.once import scan_once
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec

AT = "sys/devices/pci0000:41/0000:41:00.0"
UNDER_VFIO = NodeSpec(
    tree=f"""
{AT}/uevent =
    DRIVER=vfio-pci
    PCI_CLASS=30200
    PCI_ID=10DE:2330
{AT}/vendor = 0x10de
{AT}/device = 0x2330
{AT}/class = 0x030200
{AT}/driver -> ../../../bus/pci/drivers/vfio-pci
{AT}/iommu_group -> ../../../kernel/iommu_groups/7
sys/bus/pci/devices/0000:41:00.0 -> ../../../devices/pci0000:41/0000:41:00.0
sys/bus/pci/drivers/vfio-pci/0000:41:00.0 -> ../../../../devices/pci0000:41/0000:41:00.0
dev/vfio/7 char 511:7
dev/vfio/vfio char 10:196
"""
)
POOL = {"name": "rdma/all", "rdma_hca_max": 2, "selectors": {"vendors": ["15b3"]}}
OF_VFIO = {"find": {"bus": "pci", "vendor": "0x10de"}, "vm": True}
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "NODE_NAME": "node-1"}


def scan(*words, environment=ENVIRONMENT):
    """The command on a terminal's behalf."""
    return subprocess.run(
        [sys.executable, "-m", "devherd", "scan", "--as", "dra", *map(str, words)],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
        env=environment,
    )


@pytest.fixture
def gpus(tmp_path):
    """A tree with two Intel GPUs."""
    return SimulatedNode.create(tmp_path / "node", preset("intel-gpu-2")).root


def test_slices_and_classes_are_yaml_documents(gpus):
    """As they would be published; the classes are the vendor's, and one for each name."""
    done = scan("--host-root", gpus)
    assert (done.returncode, done.stderr) == (0, "")
    slices, *classes = yaml.safe_load_all(done.stdout)
    assert slices["kind"] == "ResourceSlice"
    assert slices["spec"]["nodeName"] == slices["spec"]["pool"]["name"] == "node-1"
    assert [device["name"] for device in slices["spec"]["devices"]] == [
        "0000-01-00-0-0x56c0",
        "0000-02-00-0-0xe20b",
    ]
    attributes = 'device.attributes["gpu.intel.com"]'
    of_xe = f'device.driver == "gpu.intel.com" && "driver" in {attributes} && {attributes}.driver == "xe"'
    assert [(each["metadata"]["name"], each["spec"].get("extendedResourceName")) for each in classes] == [
        ("gpu.intel.com", None),
        ("gpu.intel.com-i915", "gpu.intel.com/i915"),
        ("gpu.intel.com-xe", "gpu.intel.com/xe"),
    ]
    assert classes[2]["spec"]["selectors"] == [{"cel": {"expression": of_xe}}]


def test_the_class_of_a_name_is_the_same_on_a_node_with_virtual_functions(gpus, tmp_path):
    """Classes are the cluster's: nodes that differ in their types of devices must not print two of one name."""
    functions = SimulatedNode.create(tmp_path / "functions", preset("intel-gpu-sriov")).root
    of_xe = [
        each
        for root in (gpus, functions)
        for each in yaml.safe_load_all(scan("--host-root", root).stdout)
        if each["metadata"].get("name") == "gpu.intel.com-xe"
    ]
    assert len(of_xe) == 2
    assert of_xe[0] == of_xe[1]


def test_json_is_a_list_of_the_same(gpus):
    """Ready for `kubectl create -f -`."""
    listed = json.loads(scan("--host-root", gpus, "--output", "json").stdout)
    assert (listed["apiVersion"], listed["kind"]) == ("v1", "List")
    assert listed["items"] == list(yaml.safe_load_all(scan("--host-root", gpus).stdout))


def test_the_cards_are_there_once_however_many_share_them(gpus, tmp_path):
    """The device plugin's ids are shares; its device for monitoring is a claim's with adminAccess."""
    config = tmp_path / "config.yaml"
    config.write_text("vendors: {intel_gpu: {shared_devices: 3, monitoring: single}}")
    made = next(yaml.safe_load_all(scan("--host-root", gpus, "--config", config).stdout))
    assert [device["capacity"]["shares"]["value"] for device in made["spec"]["devices"]] == ["3", "3"]


def test_a_name_of_the_rules_is_a_class_that_says_what_the_rule_matches(tmp_path):
    """What no attribute shows is told; a vendor's class that selects more than its name says so."""
    root = SimulatedNode.create(tmp_path / "node", preset("nvidia-8")).root
    config = tmp_path / "config.yaml"
    config.write_text("""
resources:
  - {match: {index: "0"}, name: example.com/first}
  - {match: {model: "*H100*"}, name: example.com/h100, sharing: {replicas: 4}}
""")
    done = scan("--host-root", root, "--config", config)
    classes = [each for each in yaml.safe_load_all(done.stdout) if each["kind"] == "DeviceClass"]
    expressions = {each["metadata"]["name"]: each["spec"]["selectors"][0]["cel"]["expression"] for each in classes}
    type_is = 'device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "gpu"'
    assert expressions == {
        "gpu.nvidia.com": type_is.replace('"', "'"),
        "example.com-first": f"{type_is} && !device.allowMultipleAllocations",
        "example.com-h100": (
            f"{type_is} && device.allowMultipleAllocations"
            ' && "productName" in device.attributes["gpu.nvidia.com"]'
            ' && device.attributes["gpu.nvidia.com"].productName == "NVIDIA H100 80GB HBM3"'
        ),
    }
    assert done.stderr.splitlines() == [
        (
            "devherd: class gpu.nvidia.com — a pod that asks for nvidia.com/gpu may get 8 devices of"
            " example.com/first, example.com/h100, too"
        ),
        "devherd: class example.com-first — no attribute shows `index` of its rule: it may select more elsewhere",
    ]


def test_devices_that_no_attribute_tells_apart_have_no_class_of_their_names(tmp_path):
    """A pod would get the wrong one."""
    root = SimulatedNode.create(tmp_path / "node", preset("nvidia-8")).root
    config = tmp_path / "config.yaml"
    config.write_text('resources: [{match: {index: "0"}, name: example.com/first}]')
    done = scan("--host-root", root, "--config", config)
    classes = [each for each in yaml.safe_load_all(done.stdout) if each["kind"] == "DeviceClass"]
    assert [each["metadata"]["name"] for each in classes] == ["gpu.nvidia.com"]
    assert (
        "devherd: example.com/first — there is no DeviceClass for it: no attribute tells its devices from those of"
        " nvidia.com/gpu; write one for the claims, or change the rules" in done.stderr.splitlines()
    )


def test_a_sick_device_has_a_taint_and_fails_the_command_where_that_is_asked_for(gpus):
    """By the scan's own look at the tree."""
    (gpus / "dev/dri/renderD129").unlink(missing_ok=True)
    (gpus / "dev/dri/card1").unlink()
    done = scan("--host-root", gpus, "--fail-on-problem")
    devices = next(yaml.safe_load_all(done.stdout))["spec"]["devices"]
    assert ["taints" in device for device in devices] == [False, True]
    assert {taint["effect"] for taint in devices[1]["taints"]} == {"NoSchedule"}
    assert devices[1]["attributes"]["health"] == {"string": "Unhealthy"}
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("spec", "sharing", "told"),
    [
        ("amd-1", "{strategy: mps, replicas: 2}", ["MPS shares NVIDIA's GPUs only: it is advertised unshared"]),
        ("amd-8-cpx", "{replicas: 10000}", []),
    ],
)
def test_a_problem_of_a_rule_is_told_once_and_the_kubelets_limits_are_no_problem(spec, sharing, told, tmp_path):
    """The scan makes the device plugin's offers, too, and has the problems of those."""
    root = SimulatedNode.create(tmp_path / "node", preset(spec)).root
    config = tmp_path / "config.yaml"
    config.write_text(f"""
vendors: {{nvidia: {{mps_root: /run/mps}}}}
resources: [{{match: {{pci_address: '*'}}, sharing: {sharing}}}]
""")
    done = scan("--host-root", root, "--config", config)
    assert [line.partition(" — ")[2] for line in done.stderr.splitlines()] == told


def test_devices_that_dra_does_not_offer_are_told_with_the_reason_once_for_all_that_have_it(tmp_path):
    """Else a node with nothing but these would say nothing."""
    root = SimulatedNode.create(tmp_path / "node", preset("amd-pf-passthrough")).root
    done = scan("--host-root", root)
    why = "it is for virtual machines, which are given devices by the device plugin alone"
    assert (done.stdout, done.stderr) == ("", f"devherd: amd 0 and 3 more — not published: {why}\n")


@pytest.mark.parametrize(
    ("spec", "config", "left"),
    [
        (preset("amd-pf-passthrough"), {}, "iommu_group"),
        (preset("amd-vf-passthrough"), {}, "iommu_group"),
        (UNDER_VFIO, {"vendors": {"nvidia": {"passthrough": True}}}, "iommu_group"),
        (preset("nvidia-mig"), {"vendors": {"nvidia": {"mig_strategy": "mixed"}}}, "mig_devices"),
        (preset("intel-gpu-2"), {"vendors": {"intel_gpu": {"monitoring": True}}}, "nodes of all cards"),
        (preset("rdma-2"), {"vendors": {"rdma": {"mode": "shared", "pools": [POOL]}}}, "pool"),
        (UNDER_VFIO, {"classes": {"define": {"own": OF_VFIO}}}, "iommu_group"),
    ],
)
def test_what_dra_does_not_offer_is_in_no_pool_though_a_rule_names_it(spec, config, left, tmp_path):
    """The scan core has left it out before the tables, which take every device that they are given."""
    root = SimulatedNode.create(tmp_path / "node", spec).root
    config = config | {"resources": [{"match": {"id": "*"}, "name": "example.com/any"}]}
    entries = scan_once(resolved(root, config)).inventory.entries.values()

    def is_left(entry):
        marks = {"nodes of all cards": entry.device.id == "all", "pool": entry.device.card == POOL["name"]}
        return marks.get(left, left in entry.device.attributes)

    pools, _, _ = published(root, config)
    out = {entry.key for entry in entries if is_left(entry)}
    assert out
    assert out <= {entry.key for entry in entries if "cdi" in entry.left_out}
    assert out.isdisjoint(each.key for devices in pools.devices.values() for each in devices)
    assert out.isdisjoint(pools.withheld)


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        (["--output", "table"], "use `--output yaml` or `json`"),
        (["--watch"], "leave one out"),
        (["--explain"], "leave one out"),
        (["--vendor", "amd"], "leave one out"),
        (["--resource", "*"], "leave one out"),
        (["--unhealthy"], "leave one out"),
    ],
)
def test_a_table_and_what_chooses_its_rows_are_refused_with_the_cure(words, cure, gpus):
    """A pool is published whole."""
    done = scan("--host-root", gpus, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("devherd: `--as dra` ")
    assert done.stderr.endswith(f" — {cure}\n")


def test_a_host_name_that_is_no_name_of_a_node_is_refused_with_the_cure(gpus):
    """The kubelet could not register under it either."""
    done = scan("--host-root", gpus, environment=ENVIRONMENT | {"NODE_NAME": "no_node"})
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "devherd: `no_node` is no name of a node — it is no DNS name — set NODE_NAME to the node's name\n"
    )


def test_a_host_without_devices_prints_nothing(tmp_path):
    """And JSON an empty list."""
    root = SimulatedNode.create(tmp_path / "node", preset("generic")).root
    assert scan("--host-root", root).stdout == ""
    assert json.loads(scan("--host-root", root, "--output", "json").stdout)["items"] == []
