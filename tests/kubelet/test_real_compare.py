"""`devherd compare` beside the kubelet's own device manager and other plugins: each difference, and none else."""

import json
import subprocess
import sys

import pytest
from raw_plugin import RawPlugin, register
from real_kubelet import pod
from resource_child import eventually

GPU = "nvidia.com/gpu"
SAMPLE = "example.com/resource"
GONE = "GPU-00000000-0000-0000-0000-000000000000"


@pytest.fixture
def node(herd_node):
    """A host of a preset, a kubelet, and plugins of others; devherd does not run."""
    node = Node(herd_node)
    yield node
    for plugin in node.plugins:
        plugin.stop()


class Node:
    def __init__(self, herd_node):
        self.herd_node, self.plugins, self.devices = herd_node, [], {}

    def start(self, spec, config=None, **kubelet_options):
        """What devherd would offer is `devices`: id → NUMA nodes by resource."""
        self.herd_node.prepare(spec, config)
        (self.herd_node.directory / "herd.log").touch()
        self.herd_node.kubelet.start(numa_nodes=[0, 1], **kubelet_options)
        for resource in json.loads(self.devherd("scan", "--output=json").stdout)["resources"]:
            self.devices[resource["name"]] = {each["id"]: each["numa_nodes"] or [] for each in resource["devices"]}

    def has(self, name, devices):
        """A plugin of somebody else registers these devices: id → NUMA nodes."""
        socket = f"other-{len(self.plugins)}.sock"
        self.plugins.append(RawPlugin(self.herd_node.kubelet.plugins / socket, resource=name))
        assert register(self.herd_node.kubelet.plugins, socket, name) == ""
        self.plugins[-1].send_on_nodes(devices)
        self.herd_node.until_capacity(name, len(devices), len(devices))

    def devherd(self, command, *words):
        place = self.herd_node.directory
        options = [f"--config={place / 'config.yaml'}", f"--host-root={place / 'node'}", f"--kubelet-dir={place / 'k'}"]
        run = [sys.executable, "-m", "devherd", command, *options, *words]
        return subprocess.run(run, capture_output=True, text=True, check=False, timeout=60)

    def compared(self, *words):
        """Its exit code and its JSON."""
        done = self.devherd("compare", "--output=json", *words)
        assert not done.stderr, done.stderr
        return done.returncode, json.loads(done.stdout)

    def differences(self, name):
        """Of a resource that differs: kind → (ids, key)."""
        code, told = self.compared()
        assert (code, told["same"]) == (1, False)
        [resource] = [each for each in told["resources"] if each["name"] == name]
        assert all(each["reason"] for each in resource["differences"])
        return {
            each["kind"]: ([device["id"] for device in each["devices"]], each["key"])
            for each in resource["differences"]
        }


def test_a_plugin_with_the_same_devices_does_not_differ(node):
    """Names, ids and NUMA nodes: exit code 0, and nothing was registered."""
    node.start("nvidia-8")
    node.has(GPU, node.devices[GPU])
    assert node.compared() == (
        0,
        {
            "same": True,
            "resources": [{"name": GPU, "kubelet": 8, "devherd": 8, "containers_compared": False, "differences": []}],
            "findings": [],
            "problems": [],
        },
    )
    said = node.devherd("compare").stdout.splitlines()
    assert said[0] == f"{GPU}: 8 = 8 ids, 0 differences"
    assert said[-2] == "Nothing differs in names, ids and NUMA nodes."
    assert said[-1].startswith("Not compared: the variables, mounts, ")
    assert node.herd_node.kubelet.registrations(GPU) == 1
    assert sorted(each.name for each in node.herd_node.kubelet.plugins.glob("*.sock")) == [
        "kubelet.sock",
        "other-0.sock",
    ]


def test_a_device_that_devherd_itself_keeps_from_pods_is_no_difference(node):
    """Defect: a scan knows of no cordon, and a device that is cordoned was missing at the kubelet."""
    node.start("nvidia-8")
    node.herd_node.start_herd()
    node.herd_node.until_capacity(GPU, 8, 8)
    run_dir = f"--run-dir={node.herd_node.directory / 'run'}"
    command = [sys.executable, "-m", "devherd", "cordon", GPU, next(iter(node.devices[GPU])), run_dir]
    subprocess.run(command, check=True, capture_output=True)
    node.herd_node.until_capacity(GPU, 8, 7)
    code, told = node.compared(run_dir)
    assert (code, told["resources"]) == (
        0,
        [{"name": GPU, "kubelet": 7, "devherd": 7, "containers_compared": False, "differences": []}],
    )
    assert node.devherd("compare", "--output=json").returncode == 1, "without its run directory"


def test_devherd_itself_does_not_differ_from_what_it_would_offer(node):
    """Every vendor's devices, shares and replicas, as the kubelet has them."""
    node.start("everything", {"resources": [{"match": {"vendor": "amd"}, "sharing": {"replicas": 2}}]})
    node.herd_node.start_herd()
    for name, devices in node.devices.items():
        node.herd_node.until_capacity(name, len(devices), len(devices))
    code, told = node.compared()
    assert (code, told["findings"]) == (0, [])
    assert {each["name"]: each["kubelet"] for each in told["resources"]} == {
        name: len(devices) for name, devices in node.devices.items()
    }


def test_a_device_that_only_one_side_has_is_a_difference(node):
    """That of a pod says so: who would lose it."""
    node.start("nvidia-8")
    [first, *others] = node.devices[GPU]
    node.has(GPU, {each: node.devices[GPU][each] for each in others} | {GONE: []})
    for number in range(8):
        assert node.herd_node.kubelet.admit(pod(f"pod-{number}", {GPU: 1})).admitted
    assert node.differences(GPU) == {"missing": ([GONE], None), "extra": ([first], None)}
    [holder] = [
        uid for uid in map("pod-{}".format, range(8)) if GONE in str(node.herd_node.kubelet.ask("pod_devices", uid=uid))
    ]
    said = node.devherd("compare").stdout.splitlines()
    assert said[:2] == [f"{GPU}: 8 = 8 ids, 2 differences", f"  missing: {GONE}: this scan finds no such device"]
    assert said[2] == f"    held by default/{holder}"


def test_another_numa_node_is_a_difference(node):
    """And none at all, where the topology manager would begin to align pods."""
    node.start("nvidia-8")
    [first, second, *_] = node.devices[GPU]
    [there], [here] = node.devices[GPU][first], node.devices[GPU][second]
    node.has(GPU, node.devices[GPU] | {first: [1 - there], second: []})
    code, told = node.compared()
    [resource] = told["resources"]
    assert (code, {each["kind"] for each in resource["differences"]}) == (1, {"numa"})
    assert {(each["reason"], each["devices"][0]["id"]) for each in resource["differences"]} == {
        (f"NUMA node {1 - there} at the kubelet, NUMA node {there} here", first),
        (f"no NUMA node at the kubelet, NUMA node {here} here", second),
    }


def test_another_name_is_a_difference_with_the_rule_that_gives_it(node):
    """Which then makes it none."""
    node.start("nvidia-8")
    node.has("example.com/h100", node.devices[GPU])
    key = f"resources: [{{match: {{resource_name: {GPU}}}, name: example.com/h100}}]"
    assert node.differences("example.com/h100") == {"other-name": (list(node.devices[GPU]), key)}
    configure(node, key)
    assert node.compared()[0] == 0


def test_replicas_are_a_difference_with_the_rule_that_makes_them(node):
    """By the id of the device; also under another name."""
    node.start("nvidia-8")
    devices = node.devices[GPU]
    shared = {f"{each}::{number}": nodes for each, nodes in devices.items() for number in range(4)}
    node.has(GPU, shared)
    key = "resources: [{match: {vendor: nvidia}, sharing: {replicas: 4}}]"
    assert {kind: (sorted(ids), key) for kind, (ids, key) in node.differences(GPU).items()} == {
        "replicas": (sorted(devices), key)
    }
    configure(node, key)
    assert node.compared()[0] == 0


def test_replicas_under_another_name_have_the_rule_for_both(node):
    """As NVIDIA's plugin renames what it shares."""
    node.start("nvidia-8")
    node.has(
        f"{GPU}.shared", {f"{each}::{number}": nodes for each, nodes in node.devices[GPU].items() for number in (0, 1)}
    )
    [(kind, (_, key))] = node.differences(f"{GPU}.shared").items()
    assert kind == "other-name"
    configure(node, key)
    assert node.compared()[0] == 0


def test_shares_of_intels_cards_are_a_difference_with_the_key_of_its_section(node):
    """Its plugin has them without devherd's `::`."""
    node.start("intel-gpu-2")
    [name] = [each for each in node.devices if each.endswith("i915")]
    [(card, nodes)] = node.devices[name].items()
    node.has(name, {f"{card.rpartition('-')[0]}-{number}": nodes for number in range(3)})
    [(kind, (_, key))] = node.differences(name).items()
    assert (kind, key.startswith("vendors.intel_gpu.shared_devices")) == ("replicas", True)
    assert key.endswith(": 3")


def test_mig_devices_are_missing_by_the_strategy_that_offers_them(node):
    """The GPUs that would be whole are extra, by the same key."""
    node.start("nvidia-mig", {"vendors": {"nvidia": {"mig_strategy": "mixed"}}})
    for name, devices in node.devices.items():
        node.has(name, devices)
    assert node.compared()[0] == 0
    configure(node, "{}")
    strategy = "vendors.nvidia.mig_strategy: mixed"
    assert [key for _, key in node.differences("nvidia.com/mig-1g.10gb").values()] == [strategy]
    assert [(kind, len(ids), key) for kind, (ids, key) in node.differences(GPU).items()] == [("extra", 2, strategy)]


def test_a_device_that_a_rule_keeps_back_names_the_rule(node):
    """Not a device that nobody finds."""
    node.start("nvidia-8")
    node.has(GPU, node.devices[GPU])
    configure(node, 'resources: [{match: {pci_address: "0000:83:00.0"}, advertise: false}]')
    [(kind, (ids, key))] = node.differences(GPU).items()
    assert (kind, len(ids), key) == ("missing", 1, "resources[0].advertise: true")
    assert node.devherd("compare").stdout.splitlines()[1].endswith("finds it and does not offer it: resources[0]")


def test_a_resource_of_one_side_alone_is_a_difference(node):
    """With the names that devherd knows how to give."""
    node.start("nvidia-8")
    node.has("gpu.intel.com/monitoring", {"all": []})
    assert node.differences("gpu.intel.com/monitoring") == {
        "missing-resource": (["all"], "vendors.intel_gpu.monitoring: true")
    }
    key = f"resources: [{{match: {{resource_name: {GPU}}}, advertise: false}}]"
    assert {kind: key for kind, (_, key) in node.differences(GPU).items()} == {"extra-resource": key}
    assert node.compared(f"--resource={SAMPLE}")[0] == 0


def test_what_the_old_plugin_does_not_see_is_a_finding_and_a_difference(node):
    """A GPU at fault that the kubelet gives to pods; one that both call Unhealthy does not differ."""
    node.start("intel-gpu-2")
    [name] = [each for each in node.devices if each.endswith("xe")]
    for each, devices in node.devices.items():
        node.has(each, devices)
    assert node.compared()[0] == 0
    place = node.herd_node.directory / "node"
    [card] = (place / "sys/bus/pci/drivers/xe").glob("0000:*")
    subprocess.run([sys.executable, "-m", "devherd", "sim", "fault", place, "gpu-health", card.name], check=True)
    [device] = node.devices[name]
    _, told = node.compared()
    [found] = told["findings"]
    assert (found["resource"], found["device"], found["action"]) == (name, device, "unhealthy")
    assert found["file"]
    [(kind, (ids, key))] = node.differences(name).items()
    assert (kind, ids) == ("unhealthy", [device])
    assert key == f"health: {{rules: [{{reason: [{found['reason']}], action: warn}}]}}"
    assert "Found by devherd on devices that the kubelet calls Healthy:" in node.devherd("compare").stdout
    node.plugins[list(node.devices).index(name)].send()
    node.herd_node.until_capacity(name, 0, 0)
    assert node.compared()[0] == 0


def test_kubernetes_own_sample_plugin_has_ids_of_its_own(node, sample_plugin):
    """A published plugin, as it is: devherd's simulated devices would have its name, and no id of it."""
    node.start("nvidia-8", {"simulated": [{"name": SAMPLE, "count": 2}]})
    inside = ["exec", "--timeout=0", "--end-with-parent", f"--kubelet-dir={node.herd_node.kubelet.directory}", "--"]
    log = (node.herd_node.directory / "sample.log").open("w")
    with (
        log,
        subprocess.Popen(
            [sys.executable, "-m", "devherd", "sim", "kubelet", *inside, sample_plugin], stderr=log
        ) as process,
    ):
        try:
            node.herd_node.until_capacity(SAMPLE, 2, 2)
            assert node.differences(SAMPLE) == {"other-ids": (["Dev-1", "Dev-2"], "simulated[].count")}
            configure(node, "{}")
            assert node.differences(SAMPLE) == {"missing-resource": (["Dev-1", "Dev-2"], None)}
        finally:
            process.terminate()


def test_without_a_kubelet_it_ends_with_four(node):
    """No socket, and one at which nobody listens any more."""
    node.start("nvidia-8")
    node.herd_node.kubelet.kill()
    done = node.devherd("compare")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("devherd: cannot ask the kubelet at ")
    assert node.devherd("compare", "--kubelet-dir=/nowhere").returncode == 4


def test_it_stays_and_prints_what_changes(node):
    """Until a signal ends it well: the kubelet that is away is one line, not the end."""
    node.start("nvidia-8")
    place = node.herd_node.directory
    options = [f"--config={place / 'config.yaml'}", f"--host-root={place / 'node'}", f"--kubelet-dir={place / 'k'}"]
    run = [sys.executable, "-m", "devherd", "compare", *options, "--every=1"]
    with (place / "said").open("w") as said, subprocess.Popen(run, stdout=said) as process:
        eventually(lambda: "extra-resource" in (place / "said").read_text())
        node.has(GPU, node.devices[GPU])
        eventually(lambda: "0 differences" in (place / "said").read_text())
        node.herd_node.kubelet.kill()
        eventually(lambda: "cannot ask the kubelet" in (place / "said").read_text())
        process.terminate()
        assert process.wait(20) == 0
    assert (place / "said").read_text().count("0 differences") == 1


def configure(node, text):
    """Another configuration; YAML, of which JSON is a part."""
    (node.herd_node.directory / "config.yaml").write_text(text)
