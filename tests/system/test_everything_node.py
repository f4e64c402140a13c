"""devherd whole on the node with everything, beside the embedded kubelet: nobody is in another's way, or notices it."""

import asyncio
import os
import shutil
import signal
from collections import Counter

import pytest
from everything_node import (
    CAMERA,
    CONFIG,
    GPU,
    KVM,
    NODE_OF,
    PARTITION,
    SERIAL,
    Absent,
    answer,
    in_order,
    pid_of_scanner,
    scanned,
)
from outside import get
from prometheus_client.parser import text_string_to_metric_families

from devherd.spool import identity_of
from devherd_sim.kubelet.pod import ContainerSpec, Pod
from devherd_sim.node.presets import preset

EVERYTHING = pytest.mark.on("everything", CONFIG)
RDMA, XE = "rdma/hca", "gpu.intel.com/xe"


async def settled(testbed):
    """What scan says, when the kubelet has all of it."""
    told = scanned(testbed.node.root)
    for name, devices in told.items():
        await testbed.kubelet.until_allocatable(name, len(devices), within=60)
    return told


async def heard(testbed, mark):
    """Of whose lists, registrations and ends the kubelet has heard since a mark, and still two scans later."""
    for _ in range(2):
        before = identity_of(testbed.settings.scan_file)
        await testbed.until(lambda before=before: identity_of(testbed.settings.scan_file) != before, "another scan")
    return {event.resource for event in testbed.kubelet.events.since(mark) if event.resource}


@EVERYTHING
async def test_every_resource_registers_with_the_devices_that_scan_tells(testbed):
    """Ids, NUMA nodes and health, of every vendor; each resource registers once."""
    told = await settled(testbed)
    assert testbed.kubelet.resources() == sorted(told)
    for name, devices in told.items():
        assert testbed.kubelet.devices(name) == dict.fromkeys(devices, "Healthy")
        near = {each: testbed.kubelet.numa_nodes(name, each) for each in devices}
        assert near == {each: device["numa_nodes"] or [] for each, device in devices.items()}
        assert testbed.kubelet.registrations(name) == 1


@EVERYTHING
async def test_a_container_of_each_resource_gets_exactly_what_scan_tells(testbed):
    """Nodes, mounts, environment, annotations and CDI names; and one container with all kinds gets all of it."""
    told = await settled(testbed)
    single = [ContainerSpec(f"c{number}", {name: 1}) for number, name in enumerate(told)]
    held = await testbed.kubelet.admit(Pod("each", tuple(single)))
    assert [one.resource for one in held] == list(told)
    for one in held:
        got = one.answer()
        assert in_order(*got.values()) == answer([told[one.resource][one.device_ids[0]]])

    everything = {name: 1 for name in told if not name.startswith("nvidia.com/mig") and name not in {SERIAL, CAMERA}}
    testbed.kubelet.free("each")
    held = await testbed.kubelet.admit(Pod("all", (ContainerSpec("main", everything),)))
    got = await testbed.kubelet.start_container(pod="all")
    assert in_order(*got.values()) == answer(told[one.resource][one.device_ids[0]] for one in held)


@EVERYTHING
async def test_gpus_below_one_switch_and_partitions_of_one_gpu_are_given_together(testbed):
    """The preference is asked for and obeyed, without any NUMA policy."""
    told = await settled(testbed)
    for pod in "abc":
        gpus = (await testbed.kubelet.allocate(GPU, 2, pod=pod)).device_ids
        first, second = sorted(int(told[GPU][each]["attributes"]["index"]) for each in gpus)
        assert (first % 2, second) == (0, first + 1)
    for pod in "de":
        partitions = (await testbed.kubelet.allocate(PARTITION, 8, pod=pod)).device_ids
        assert len({told[PARTITION][each]["attributes"]["pci_address"] for each in partitions}) == 1


@EVERYTHING
async def test_a_device_of_each_vendor_fails_and_recovers_and_no_other_resource_notices(testbed):
    """One after the other, its node is removed and put back."""
    told = await settled(testbed)
    for name, node in NODE_OF.items():
        mark = testbed.kubelet.events.mark()
        absent = Absent(testbed.node.root, node)
        await testbed.kubelet.until_allocatable(name, len(told[name]) - 1, within=30)
        absent.put_back()
        await testbed.kubelet.until_allocatable(name, len(told[name]), within=30)
        assert await heard(testbed, mark) == {name}
    assert all(testbed.kubelet.registrations(name) == 1 for name in told)
    assert not any(child.restarts for child in testbed.children().values())


@EVERYTHING
async def test_cards_are_plugged_in_and_pulled_out_under_all_others(testbed):
    """An FPGA card and an RDMA card come; an Intel GPU with its virtual functions goes."""
    told = await settled(testbed)
    crypto, mark = next(iter(NODE_OF)), testbed.kubelet.events.mark()
    testbed.node.add_card()
    await testbed.kubelet.until_allocatable(crypto, 2, within=30)

    spec = preset("everything")
    more = spec.model_copy(update={"rdma": [*spec.rdma, spec.rdma[0].model_copy(update={"cards": 1})]})
    testbed.node.change(spec, more)
    await testbed.kubelet.until_allocatable(RDMA, len(told[RDMA]) + 1, within=30)

    physical = told[XE]["card32-0"]["attributes"]["pci_address"].replace(".1", ".0")
    testbed.node.functions.pull_out(physical)
    await testbed.kubelet.until_allocatable(XE, 0, within=30)
    assert await heard(testbed, mark) == {crypto, RDMA, XE}


BY_EVENTS = {**CONFIG, "scan": {"period": "1h"}}
BY_ID = {**CONFIG, "exporter": {"device_metrics": "all"}}
BY_RESCANS = {**CONFIG, "scan": {"period": "300ms", "events": False}}


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param("events", marks=pytest.mark.on("generic", BY_EVENTS)),
        pytest.param("rescans", marks=pytest.mark.on("generic", BY_RESCANS)),
    ],
)
async def test_all_vendors_come_to_a_node_that_had_none_and_go(testbed, seen):
    """Cards and drivers come and go under a running herd: seen by inotify as by looking again, without any restart."""
    await testbed.kubelet.until_allocatable(KVM, 10, within=60)
    testbed.node.change(preset("generic"), preset("everything"))
    told = await settled(testbed)

    testbed.node.change(preset("everything"), preset("generic"))
    for name in told.keys() - {KVM, SERIAL, CAMERA}:
        await testbed.kubelet.until_allocatable(name, 0, within=60)

    assert testbed.kubelet.registrations(KVM) == 1
    assert testbed.children()["scanner"].restarts == {}, seen


def unload(node, driver):
    """As rmmod does: every function is let go of, then driver and module are gone."""
    for function in sorted((node.root / "sys/bus/pci/drivers" / driver).iterdir()):
        node.functions.unbind(function.name)
    shutil.rmtree(node.root / "sys/bus/pci/drivers" / driver)
    for left in (f"sys/module/{driver}", f"proc/driver/{driver}"):
        shutil.rmtree(node.root / left, ignore_errors=True)


@EVERYTHING
@pytest.mark.parametrize(
    ("driver", "prefixes"),
    [
        ("nvidia", ("nvidia.com/",)),
        ("amdgpu", ("amd.com/gpu", "amd.com/cpx_")),
        ("xe", (XE,)),
        ("xocl", ("amd.com/xilinx_",)),
        ("mlx5_core", (RDMA,)),
    ],
)
async def test_a_driver_that_unloads_costs_its_own_devices_and_nobody_elses(testbed, driver, prefixes):
    """None of them is allocatable any more; the kubelet hears of nothing else."""
    told = await settled(testbed)
    own = {name for name in told if name.startswith(prefixes)}
    mark = testbed.kubelet.events.mark()

    unload(testbed.node, driver)

    for name in own:
        await testbed.kubelet.until_allocatable(name, 0, within=30)
    assert await heard(testbed, mark) == own
    assert testbed.children()["scanner"].restarts == {}


@EVERYTHING
async def test_a_scanner_that_is_killed_is_noticed_by_nobody(testbed):
    """The new one knows all vendors' devices before it says anything."""
    await settled(testbed)
    await testbed.until(lambda: pid_of_scanner(testbed), "the supervisor tells of its scanner")
    killed, mark = pid_of_scanner(testbed), testbed.kubelet.events.mark()
    os.kill(killed, signal.SIGKILL)
    await testbed.until(lambda: pid_of_scanner(testbed) not in {0, killed}, "another scanner")
    assert await heard(testbed, mark) == set()


@EVERYTHING
async def test_a_reload_that_renames_one_vendors_devices_leaves_the_others_alone(testbed):
    """AMD's naming and NVIDIA's MIG strategy change under pods; the other resources hear nothing."""
    told = await settled(testbed)
    single = {**CONFIG, "vendors": {}}
    changed = {name for name in told if name.startswith(("nvidia.com/", "amd.com/gpu", "amd.com/cpx_"))}
    mark = testbed.kubelet.events.mark()
    testbed.configure(single)
    testbed.herd.send_signal(signal.SIGHUP)
    for name, count in ((GPU, 8), ("amd.com/gpu", 22), (PARTITION, 0), ("nvidia.com/mig-3g.40gb", 0)):
        await testbed.kubelet.until_allocatable(name, count, within=30)
    assert await heard(testbed, mark) == changed
    assert set(scanned(testbed.node.root, single)) == {name for name in told if testbed.kubelet.allocatable(name)}


async def served(testbed, devices):
    """The page of metrics, when it has so many devices."""
    for _ in range(600):
        _, page = await get(testbed, "/metrics")
        if page.count("devherd_device_info{") == devices:
            return page
        await asyncio.sleep(0.05)
    pytest.fail(f"no page with {devices} devices: {page[-2000:]}")


@pytest.mark.on("everything", BY_ID)
async def test_the_metrics_name_vendor_model_and_place_of_every_device(testbed):
    """`devherd_device_info` has a series for each id on demand, `devherd_devices` a sum for each resource."""
    told = await settled(testbed)
    page = await served(testbed, sum(map(len, told.values())))
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    info = {
        (s.labels["resource_name"], s.labels["device_id"]): s.labels for s in samples if s.name == "devherd_device_info"
    }
    for name, devices in told.items():
        for device_id, device in devices.items():
            assert info[name, device_id]["pci_address"] == device["attributes"].get("pci_address", "")
    models = {(labels["vendor"], labels["model"]) for labels in info.values()}
    assert models == {
        ("nvidia", "NVIDIA H100 80GB HBM3"),
        ("amd", "AMD Instinct MI210"),
        ("amd", "AMD Instinct MI300X OAM"),
        ("intel-gpu", "B580"),
        ("intel-gpu", "Flex 170"),
        ("xilinx-fpga", "xilinx_u200_xdma_201830_2"),
        ("rdma", "MT4123"),
        ("rdma", "MT4124"),
        ("intel-fpga", "d8424dc4a4a3c413f89e433683f9040b"),
        ("intel-fpga", "f7df405cbd7acf7222f144b0b93acd18"),
        ("generic", "1a86:7523,1a86:7523"),
        ("generic", ""),
    }
    sums = Counter({s.labels["resource_name"]: s.value for s in samples if s.name == "devherd_devices" and s.value})
    assert sums == {name: len(devices) for name, devices in told.items()}
