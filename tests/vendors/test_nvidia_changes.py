"""NVIDIA GPUs that change while they are looked at: drivers, nodes, MIG devices, what comes late and what goes."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from answering import not_examined
from nvidia_host import by_resource, complaints, node_paths, observer, scanned, scanner, simulated
from remembered import earlier, remembered

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.scanner.observer import Observer
from devherd.scanner.once import scan_once
from devherd_sim.node import faults
from devherd_sim.node.entry import DeviceNode, File
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec
from devherd_sim.node.tree import put

MIG = {"mig_strategy": "mixed"}


def health(watched: Observer, now: float = 0.0) -> dict[str, list[str]]:
    """Card and what is wrong with it, after a scan and the poll that follows it."""
    watched.scan(now)
    watched.poll(periodic=False)
    made = watched.offering.judged(watched.policy.verdicts())
    return {device.card: list(device.reasons) for one in made.offers for device in one.devices}


def test_a_driver_that_loads_late_is_seen(tmp_path: Path):
    """N24: GPUs that the driver shows later on an empty host are served, and those added later still."""
    root = tmp_path / "node"
    SimulatedNode.create(root, NodeSpec())
    (root / "sys/bus/pci/drivers").mkdir(parents=True)
    looking = scanner(root)
    assert (looking.scan().devices, looking.scan().problems) == ([], [])
    SimulatedNode.create(root, NodeSpec(nvidia=NvidiaSpec(gpus=1)))
    assert by_resource(looking.scan()) == {"nvidia.com/gpu": ["0"]}
    SimulatedNode.create(root, NodeSpec(nvidia=NvidiaSpec(gpus=2)))
    assert by_resource(looking.scan()) == {"nvidia.com/gpu": ["0", "1"]}


def test_a_gpu_that_loses_its_driver_is_unhealthy_until_it_has_it_back(tmp_path: Path):
    """N1: `driver-unbound` comes and goes; the other GPU is not touched."""
    node = simulated(tmp_path, gpus=2)
    watched = observer(node.root)
    watched.config = replace(watched.config, health=replace(watched.config.health, recover_after=1))
    lost, other = node.nvidia.addresses()
    assert health(watched) == {lost: [], other: []}
    faults.inject(node, "unbind", lost)
    assert health(watched, 10_000.0) == {lost: ["driver-unbound"], other: []}
    assert health(watched, 20_000.0) == {lost: ["driver-unbound"], other: []}
    faults.clear(node, "unbind", lost)
    watched.reconfigure(watched.config)
    health(watched, 30_000.0)
    for _ in range(3):
        watched.poll(periodic=True)
    assert health(watched, 30_001.0) == {lost: [], other: []}


@pytest.mark.parametrize(
    ("passthrough", "cure"),
    [(False, "bind nvidia to it again"), (True, "bind nvidia to it again, or vfio-pci for virtual machines")],
)
def test_a_gpu_that_loses_its_driver_is_told_of_vfio_pci_where_virtual_machines_are_served(tmp_path, passthrough, cure):
    """By `vendors.nvidia.passthrough`: there nvidia may have been unbound to give the GPU away."""
    node = simulated(tmp_path, gpus=1)
    [lost] = node.nvidia.addresses()
    looking = scanner(node.root, passthrough=passthrough)
    looking.scan()
    faults.inject(node, "unbind", lost)
    [part] = looking.scan().unseen
    assert part.finding.detail == f"no driver is bound to this GPU; {cure}"


def test_a_scanner_that_starts_while_a_driver_is_away_knows_what_it_is_missing(tmp_path: Path):
    """What the spool remembers is `driver-unbound`, not gone."""
    node = simulated(tmp_path, gpus=2)
    before = observer(node.root)
    health(before)
    lost, other = node.nvidia.addresses()
    faults.inject(node, "unbind", lost)
    restarted = Observer(before.config, inventory=remembered(before), earlier=earlier(before))
    assert health(restarted) == {lost: ["driver-unbound"], other: []}


@pytest.mark.parametrize("driver", ["vfio-pci", "nouveau", None])
def test_a_gpu_without_the_driver_is_none_of_ours(driver: str | None, tmp_path: Path):
    """Nobody has known it: no device. What drives it is said beside (test_cards_without_driver.py)."""
    node = simulated(tmp_path, gpus=1)
    (address,) = node.nvidia.addresses()
    faults.inject(node, "unbind", address)
    if driver is not None:
        function = (node.root / "sys/bus/pci/devices" / address).resolve()
        (function / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    watched = observer(node.root)
    assert health(watched) == {}
    assert watched.scan(1.0).problems == []


def test_a_gpu_handed_to_a_virtual_machine_goes(tmp_path: Path):
    """Known before, and bound to vfio-pci now: `gone`, and forgotten in time."""
    node = simulated(tmp_path, gpus=2)
    watched = observer(node.root)
    given, other = node.nvidia.addresses()
    health(watched)
    faults.inject(node, "unbind", given)
    function = (node.root / "sys/bus/pci/devices" / given).resolve()
    (function / "driver").symlink_to("../../../bus/pci/drivers/vfio-pci")
    assert health(watched, 1.0) == {given: ["gone"], other: []}
    assert health(watched, 1e6) == {other: []}


def test_a_gpu_that_is_bound_but_not_listed_is_a_problem(tmp_path: Path):
    """As in a container whose /proc/driver is masked: it is said, and what was known stays."""
    node = simulated(tmp_path, gpus=1)
    watched = observer(node.root)
    (address,) = node.nvidia.addresses()
    health(watched)
    shutil.rmtree(node.root / "proc/driver/nvidia/gpus")
    assert health(watched, 1.0) == {address: []}
    (complaint,) = complaints(watched.scan(2.0))
    assert "not listed in /proc/driver/nvidia/gpus" in complaint


def test_virtual_functions_of_a_vgpu_host_are_no_problem(tmp_path: Path):
    """The driver binds to them and lists none: nobody is missing."""
    node = simulated(tmp_path, gpus=1)
    (node.root / "sys/bus/pci/devices/0000:01:00.4").mkdir()
    function = node.root / "sys/bus/pci/devices/0000:01:00.4"
    for name, text in (("vendor", "0x10de"), ("class", "0x030200")):
        (function / name).write_text(f"{text}\n")
    (function / "driver").symlink_to("../../../bus/pci/drivers/nvidia")
    assert len(complaints(scanned(node.root))) == 1
    (function / "physfn").symlink_to("../0000:01:00.0")
    assert complaints(scanned(node.root)) == []


def test_a_gpu_that_is_pulled_out_is_gone(tmp_path: Path):
    """Its function is no longer on the bus."""
    node = simulated(tmp_path, gpus=2)
    watched = observer(node.root)
    gone, other = node.nvidia.addresses()
    health(watched)
    faults.inject(node, "unbind", gone)
    (node.root / "sys/bus/pci/devices" / gone).unlink()
    assert health(watched, 1.0) == {gone: ["gone"], other: []}


def test_a_gpu_that_has_left_the_bus_is_gone_although_the_driver_lists_it(tmp_path: Path):
    """`remove` takes the function and leaves procfs and node: it was Healthy for ever."""
    node = simulated(tmp_path, gpus=2)
    watched = observer(node.root)
    left, other = node.nvidia.addresses()
    health(watched)
    faults.inject(node, "remove", left)
    assert left in node.nvidia.addresses()
    assert health(watched, 1.0) == {left: ["gone"], other: []}
    [complaint] = complaints(watched.scan(2.0))
    assert complaint.startswith(
        f"/proc/driver/nvidia/gpus/{left}: the driver lists this GPU, but it has left the PCI bus"
    )
    faults.clear(node, "remove", left)
    assert health(watched, 3.0)[other] == []
    assert complaints(watched.scan(4.0)) == []


@pytest.mark.parametrize("restarts", [False, True])
def test_a_mig_device_that_is_destroyed_while_nvml_is_silent_is_gone(restarts: bool, tmp_path: Path):
    """The driver's procfs says so by itself; the other one of the GPU stays as it was, and so do the nodes of both."""
    node = simulated(tmp_path, gpus=1, nvml=True, mig=[["3g.40gb", "1g.10gb"]])
    watched = observer(node.root, **MIG)
    watched.scan(0.0)
    ids = {entry.resource_name: key for key, entry in watched.inventory.entries.items()}
    (node.root / ".devherd-nvml.json").unlink()
    watched.scan(1.0)
    node.nvidia.destroy_mig_device("0000:01:00.0", 7)
    if restarts:
        watched = Observer(watched.config, inventory=remembered(watched), earlier=earlier(watched))
    watched.scan(2.0)
    watched.poll(periodic=True)

    assert watched.policy.verdict(ids["nvidia.com/mig-1g.10gb"]).reasons == ("gone",)
    assert watched.policy.verdict(ids["nvidia.com/mig-3g.40gb"]).reasons == ()


def test_a_gpu_off_the_bus_says_so_until_it_answers(tmp_path: Path):
    """N1, N13: configuration space of all ones is `off-bus`; one that sleeps is not woken to ask."""
    node = simulated(tmp_path, gpus=2)
    fallen, _ = node.nvidia.addresses()
    looking = scanner(node.root)
    faults.inject(node, "off-bus", fallen)
    assert sorted(device.reasons for device in looking.scan().devices) == [[], ["off-bus"]]
    node.write(f"sys/bus/pci/devices/{fallen}/power/runtime_status", "suspended")
    assert [device.reasons for device in looking.scan().devices] == [[], []]
    node.write(f"sys/bus/pci/devices/{fallen}/power/runtime_status", "active")
    faults.clear(node, "off-bus", fallen)
    assert [device.reasons for device in looking.scan().devices] == [[], []]


def test_a_node_that_goes_and_comes_back_is_seen_between_scans(tmp_path: Path):
    """N1: `node-missing` at once, and no longer when nvidia-modprobe has made it again."""
    node = simulated(tmp_path, gpus=2)
    looking = scanner(node.root)
    devices = looking.scan().devices
    assert looking.poll() == []
    (device,) = (device for device in devices if device.attributes["minor"] == "0")
    faults.inject(node, "node", "nvidia0")
    assert looking.poll() == [("nvidia", device.card, device.id, ["node-missing"])]
    faults.clear(node, "node", "nvidia0")
    assert looking.poll() == []


def test_a_gpu_is_served_once_its_uuid_is_known(tmp_path: Path):
    """It waits, and says so; its index counts from the beginning."""
    node = simulated(tmp_path, gpus=2, uninitialised=[0])
    looking = scanner(node.root)
    first = looking.scan()
    assert by_resource(first) == {"nvidia.com/gpu": ["1"]}
    assert "UUID is not known yet" in first.problems[0].error
    node.nvidia.initialise("0000:01:00.0", "GPU-11111111-2222-3333-4444-555555555555")
    second = looking.scan()
    assert by_resource(second) == {"nvidia.com/gpu": ["0", "1"]}
    assert second.problems == []


def test_a_gpu_whose_uuid_is_forgotten_stays_as_it_was(tmp_path: Path):
    """The driver was loaded again and nobody has opened the GPU yet: pods still find it under its id."""
    node = SimulatedNode.create(tmp_path / "node", preset("nvidia-1"))
    watched = observer(node.root)
    before = health(watched)
    information = node.root / "proc/driver/nvidia/gpus/0000:01:00.0/information"
    lines = [line for line in information.read_text().splitlines() if "UUID" not in line]
    information.write_text("\n".join(lines))
    assert health(watched, 1e6) == before


def test_mig_devices_come_and_go_without_a_restart(tmp_path: Path):
    """N25: the capability directories are read in every scan, and what is destroyed goes from its resource."""
    node = simulated(tmp_path, gpus=2, nvml=True, mig=[["3g.40gb"], None])
    looking = scanner(node.root, **MIG)
    assert by_resource(looking.scan()) == {"nvidia.com/gpu": ["1"], "nvidia.com/mig-3g.40gb": ["0:0"]}
    first, second = node.nvidia.addresses()
    made = node.nvidia.create_mig_device(first, "1g.10gb")
    scan = looking.scan()
    assert by_resource(scan)["nvidia.com/mig-1g.10gb"] == ["0:1"]
    assert made in {device.id for device in scan.devices}
    node.nvidia.create_mig_device(second, "7g.80gb")
    node.nvidia.destroy_mig_device(first, 1)
    assert by_resource(looking.scan()) == {"nvidia.com/mig-1g.10gb": ["0:1"], "nvidia.com/mig-7g.80gb": ["1:0"]}


def test_a_mig_device_has_the_nodes_that_the_driver_says(tmp_path: Path):
    """M13: another table than today's drivers have; computed numbers would be those of another instance."""
    node = simulated(tmp_path, gpus=1, nvml=True, mig=[["3g.40gb", "1g.10gb"]])
    instance = node.root / "proc/driver/nvidia/capabilities/gpu0/mig/gi7"
    for file, number in ((instance / "access", 501), (instance / "ci0/access", 502)):
        file.write_text(f"DeviceFileMinor: {number}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
        put(DeviceNode(f"dev/nvidia-caps/nvidia-cap{number}", "char", 506, number), node.root)

    devices = {device.resource_name: device for device in scanned(node.root, **MIG, pass_device_specs=True).devices}

    nodes = node_paths(devices["nvidia.com/mig-1g.10gb"])
    assert [path for path in nodes if "cap" in path] == [
        f"/dev/nvidia-caps/nvidia-cap{number}" for number in (501, 502)
    ]


def test_a_mig_device_whose_nodes_the_driver_does_not_say_is_reported(tmp_path: Path):
    """M13: neither beside the instance nor in its table; the other one is served, by the table."""
    node = simulated(tmp_path, gpus=1, nvml=True, mig=[["3g.40gb", "1g.10gb"]])
    for file in (node.root / "proc/driver/nvidia/capabilities/gpu0/mig").glob("gi*/access"):
        file.unlink()
    put(File.line("proc/driver/nvidia-caps/mig-minors", "gpu0/gi7/access 66\ngpu0/gi7/ci0/access 67"), node.root)

    scan = scanned(node.root, **MIG)

    assert list(by_resource(scan)) == ["nvidia.com/mig-1g.10gb"]
    [complaint] = complaints(scan)
    assert "MIG devices gi1/ci0 are not advertised: the driver does not say the numbers of their nodes" in complaint


def test_a_gpu_that_the_kernel_module_cannot_name_has_nvmls_name(tmp_path: Path):
    """S1: procfs says `Unknown` of a board that is younger than the module; rules go by the model."""
    node = simulated(tmp_path, gpus=1, nvml=True)
    information = node.root / "proc/driver/nvidia/gpus/0000:01:00.0/information"
    information.write_text(information.read_text().replace("NVIDIA H100 80GB HBM3", "Unknown"))

    [device] = scanned(node.root).devices

    assert device.attributes["model"] == "NVIDIA H100 80GB HBM3"


def test_a_mig_device_that_nvml_has_not_told_of_waits(tmp_path: Path):
    """N18, N26: what is known is served, the rest is told; and one that is gone is gone, whatever NVML said before."""
    node = simulated(tmp_path, gpus=1, nvml=True, mig=[["3g.40gb", "1g.10gb"]])
    answer = (node.root / ".devherd-nvml.json").read_text()
    node.nvidia.create_mig_device("0000:01:00.0", "2g.20gb")
    node.nvidia.destroy_mig_device("0000:01:00.0", 7)
    (node.root / ".devherd-nvml.json").write_text(answer)
    scan = scanned(node.root, **MIG)
    assert by_resource(scan) == {"nvidia.com/mig-3g.40gb": ["0:0"]}
    (complaint,) = complaints(scan)
    where, _, what = complaint.partition(": ")
    assert where == "/proc/driver/nvidia/capabilities/gpu0/mig"
    assert what.startswith("MIG devices gi3/ci0 are not advertised: NVML does not list them; in a container it lists")
    assert what.endswith("the component nvidia-mig)")


@pytest.mark.parametrize(
    ("options", "cure"),
    [
        ({"mig_strategy": "mixed"}, "libnvidia-ml.so.1 can be loaded"),
        ({"mig_strategy": "single"}, "device_discovery_strategy: procfs"),
        ({"mig_strategy": "mixed", "device_discovery_strategy": "procfs"}, "device_discovery_strategy: auto"),
    ],
)
def test_without_nvml_mig_devices_are_told_and_no_name_is_made_up(options: dict[str, str], cure: str, tmp_path: Path):
    """Their profiles and UUIDs are NVML's to tell; whole GPUs beside them are served."""
    node = simulated(tmp_path, gpus=2, mig=[["3g.40gb", "1g.10gb"], None])
    scan = scanned(node.root, **options)
    assert by_resource(scan) == {"nvidia.com/gpu": ["1"]}
    (complaint,) = complaints(scan)
    assert "MIG devices gi1/ci0, gi7/ci0 are not advertised" in complaint
    assert cure in complaint


def test_mig_devices_stay_as_they_were_while_nvml_is_silent(tmp_path: Path):
    """A scanner that starts before NVML answers forgets none."""
    node = simulated(tmp_path, gpus=1, nvml=True, mig=[["3g.40gb", "1g.10gb"]])
    before = observer(node.root, **MIG)
    before.scan(0.0)
    known, kept = before.offering.judged(before.policy.verdicts()).offers, remembered(before)
    (node.root / ".devherd-nvml.json").unlink()
    restarted = Observer(before.config, inventory=kept)
    restarted.scan(1e6)
    assert restarted.offering.judged(restarted.policy.verdicts()).offers == known


@pytest.mark.parametrize(
    ("mig", "served", "said"),
    [
        ([[], ["3g.40gb"]], {"nvidia.com/gpu": ["1:0"]}, "in MIG mode and has no MIG devices"),
        ([None, ["3g.40gb"]], {"nvidia.com/gpu": ["0", "1:0"]}, "3g.40gb, whole GPUs"),
        ([["3g.40gb"], ["1g.10gb"]], {"nvidia.com/gpu": ["0:0", "1:0"]}, "1g.10gb, 3g.40gb"),
        ([None, None], {"nvidia.com/gpu": ["0", "1"]}, None),
    ],
)
def test_single_serves_what_is_there_and_reports_the_rest(
    mig: list[Any], served: dict[str, list[str]], said: str | None, tmp_path: Path
):
    """N26: the peer refuses to start on each of these but the last."""
    scan = scanned(simulated(tmp_path, gpus=2, nvml=True, mig=mig).root, mig_strategy="single")
    assert by_resource(scan) == served
    assert [said in complaint for complaint in complaints(scan)] == ([True] if said else [])


def test_mixed_serves_a_compute_slice_under_its_own_name(tmp_path: Path):
    """N26: the peer refuses `1c.3g.40gb`."""
    node = simulated(tmp_path, gpus=1, nvml=True, mig=[["3g.40gb"]])
    answer = node.root / ".devherd-nvml.json"
    answer.write_text(answer.read_text().replace('"compute_slices": 3', '"compute_slices": 1'))
    scan = scanned(node.root, **MIG)
    assert by_resource(scan) == {"nvidia.com/mig-1c.3g.40gb": ["0:0"]}
    assert scan.problems == []


def test_an_empty_mig_gpu_under_mixed_is_told(tmp_path: Path):
    """And the other is served."""
    scan = scanned(simulated(tmp_path, gpus=2, nvml=True, mig=[[], None]).root, **MIG)
    assert by_resource(scan) == {"nvidia.com/gpu": ["1"]}
    assert "nvidia-smi mig -cgi" in complaints(scan)[0]


def test_one_bad_gpu_costs_no_other(tmp_path: Path):
    """N18: an unreadable entry is a problem of that GPU, which keeps its place in the count."""
    node = simulated(tmp_path, gpus=3)
    information = node.root / "proc/driver/nvidia/gpus/0000:01:00.0/information"
    information.unlink()
    information.mkdir()
    scan = scanned(node.root)
    assert by_resource(scan) == {"nvidia.com/gpu": ["1", "2"]}
    assert [(problem.device, problem.path) for problem in scan.problems] == [
        ("0000:01:00.0", "/proc/driver/nvidia/gpus/0000:01:00.0/information")
    ]
    assert not_examined(scan) == [("0000:01:00.0", None)]


def test_gpus_are_left_out_by_rule(tmp_path: Path):
    """N29: a rule for one GPU that is not to be advertised."""
    node = simulated(tmp_path, gpus=3)
    rules = [
        {"match": {"vendor": "nvidia", "pci_address": "0000:02:00.0"}, "advertise": False},
        {"match": {"vendor": "nvidia", "model": "*H100*", "exclude": [{"index": "0"}]}, "name": "nvidia.com/h100"},
    ]
    report = scan_once(resolve(Config.model_validate({"host_root": node.root, "resources": rules})))
    made = {one.name: [device.attributes["index"] for device in one.devices] for one in report.offers}
    assert made == {"nvidia.com/gpu": ["0"], "nvidia.com/h100": ["2"]}


def test_preferred_answers_do_not_depend_on_a_lost_gpu(tmp_path: Path):
    """N2: the GPU that is left tells the same distances, whether the other has its driver or not."""
    node = simulated(tmp_path, gpus=3)
    lost = node.nvidia.addresses()[0]
    before = {device.id: dict(device.distances) for device in scanned(node.root).devices if device.card != lost}
    faults.inject(node, "unbind", lost)
    after = {device.id: dict(device.distances) for device in scanned(node.root).devices}
    assert after.keys() == before.keys()
    for device, distances in after.items():
        assert distances == {card: distance for card, distance in before[device].items() if card != lost}


def without_nodes(tmp_path: Path, **spec: Any) -> SimulatedNode:
    """A host that was just booted: the driver is loaded, and nobody has made a node of any GPU."""
    node = simulated(tmp_path, gpus=2, **spec)
    for path in (node.root / "dev").glob("nvidia*"):
        path.unlink()
    return node


@pytest.mark.parametrize("strategies", [["envvar"], ["cdi-cri"], ["envvar", "volume-mounts"]])
def test_a_host_where_no_gpu_has_its_node_has_one_problem_with_the_cure(strategies: list[str], tmp_path: Path):
    """Where the runtime makes the nodes they have a warning only, so that it gets to do so, as under NVIDIA's plugin.

    NVIDIA/libnvidia-container, src/nvc.c: where it loads the kernel modules, it makes the node of each GPU.
    """
    node = without_nodes(tmp_path)
    watched = observer(node.root, device_list_strategy=strategies, cdi_hook_path="/usr/bin/nvidia-ctk")
    expected = [] if strategies == ["envvar"] else ["node-missing"]
    assert list(health(watched).values()) == [expected, expected]
    [complaint] = [one for one in complaints(watched.scan(1.0)) if "node" in one]
    assert complaint.startswith("/dev: no GPU has its device node")
    assert "`nvidia-modprobe -c0 -u`" in complaint
    warnings = [verdict.warnings for verdict in watched.policy.verdicts().values()]
    assert warnings == [("node-missing",) if strategies == ["envvar"] else ()] * 2

    put(DeviceNode("dev/nvidia0", "char", 195, 0), node.root)
    health(watched, 2.0)
    for _ in range(watched.config.health.recover_after):
        watched.poll(periodic=True)
    assert sorted(health(watched, 2.5).values()) == [[], ["node-missing"]]
    assert complaints(watched.scan(3.0)) == []


def test_gpus_without_nodes_that_nobody_has_opened_are_one_problem(tmp_path: Path):
    """What makes the nodes also initialises the GPUs: that their UUIDs are unknown is not said of each besides."""
    [complaint] = complaints(scanned(without_nodes(tmp_path, uninitialised=[0, 1]).root))
    assert complaint.startswith("/dev: no GPU has its device node")


def test_nodes_that_are_passed_on_must_be_there(tmp_path: Path):
    """`pass_device_specs`: the kubelet refuses a container whose node is missing."""
    looking = scanner(without_nodes(tmp_path).root, pass_device_specs=True)
    assert [device.reasons for device in looking.scan().devices] == [["node-missing"]] * 2
