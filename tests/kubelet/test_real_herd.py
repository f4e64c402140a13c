"""The whole of devherd beside the kubelet's own device manager: every kind of resource, as a container gets it."""

import json
import signal
import time
import urllib.request

import pytest
from real_kubelet import pod
from resource_child import eventually

from devherd import spool
from devherd.proto import health_pb2
from devherd_sim.node import faults
from devherd_sim.node.spec import FpgaSpec, NodeSpec
from devherd_sim.testbed import free_port

CRYPTO = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
CODEC = "fpga.intel.com/af-695.f7d.aVKNtusxV3qMNmj5-qCB9vffQFy9es9yIvFEsLk6zRg"
REGION = "fpga.intel.com/region-69528db6eb31577a8c3668f9faa081f6"
QUICK = {"health": {"poll": "100ms", "recover_after": 2}, "scan": {"period": "500ms"}}
GPU = "example.com/gpu"


def node(path, permissions="rw"):
    return {"host_path": path, "container_path": path, "permissions": permissions}


def test_an_fpga_port_is_given_with_its_node_only(herd_node):
    """Mode af: the port of the accelerator function that the name spells."""
    herd_node.start("fpga-opae-2", policy="single-numa-node", numa_nodes=[0, 1])
    herd_node.until_capacity(CRYPTO, 1, 1)
    herd_node.until_capacity(CODEC, 1, 1)
    assert herd_node.kubelet.devices(CODEC) == {"intel-fpga-port.1": [1]}
    main = herd_node.kubelet.admit(pod("a", {CRYPTO: 1})).main
    assert main.devices == [node("/dev/intel-fpga-port.0")]
    assert (main.mounts, main.envs, main.annotations, main.cdi) == ([], {}, {}, [])


def test_an_fpga_region_is_given_with_its_annotation_and_a_cdi_device_that_exists(herd_node):
    """Mode region: the spec of the CDI name is there before the pod is."""
    herd_node.start("fpga-1", {"vendors": {"intel_fpga": {"mode": "region"}}})
    herd_node.until_capacity(REGION, 1, 1)
    main = herd_node.kubelet.admit(pod("a", {REGION: 1})).main
    assert main.devices == [node("/dev/dfl-port.0")]
    assert main.annotations == {"com.intel.fpga.mode": "fpga.intel.com/region"}
    assert main.cdi == ["intel.cdi.k8s.io/fpga=dfl-fme.0"]
    spec = json.loads((herd_node.cdi / "intel.cdi.k8s.io-fpga-dfl-fme.0.yaml").read_text())
    assert (spec["kind"], spec["devices"][0]["name"]) == ("intel.cdi.k8s.io/fpga", "dfl-fme.0")


def test_an_fpga_region_for_development_is_given_with_its_engine(herd_node):
    """Mode regiondevel: ports, then the management engine."""
    herd_node.start("fpga-1", {"vendors": {"intel_fpga": {"mode": "regiondevel"}}})
    herd_node.until_capacity(REGION, 1, 1)
    main = herd_node.kubelet.admit(pod("a", {REGION: 1})).main
    assert main.devices == [node("/dev/dfl-port.0"), node("/dev/dfl-fme.0")]
    assert (main.annotations, main.cdi) == ({}, [])


def test_a_generic_device_is_given_with_its_mount(herd_node):
    """Three of one node: /dev/kvm and a directory of the host's."""
    paths = [{"path": "/dev/kvm"}, {"path": "/dev/net", "type": "Mount", "mountPath": "/net", "readOnly": True}]
    herd_node.start("generic", {"generic": [{"name": "devic.es/kvm", "groups": [{"count": 3, "paths": paths}]}]})
    herd_node.until_capacity("devic.es/kvm", 3, 3)
    main = herd_node.kubelet.admit(pod("a", {"devic.es/kvm": 1})).main
    assert main.devices == [node("/dev/kvm", "mrw")]
    assert main.mounts == [{"host_path": "/dev/net", "container_path": "/net", "read_only": True}]


def test_simulated_devices_are_given_as_names_near_each_other(herd_node):
    """No node, no mount: nothing but an allocation."""
    herd_node.start(
        "generic", {"simulated": [{"name": GPU, "count": 8, "numa_nodes": 2}]}, policy="restricted", numa_nodes=[0, 1]
    )
    herd_node.until_capacity(GPU, 8, 8)
    main = herd_node.kubelet.admit(pod("a", {GPU: 4})).main
    assert main.devices == []
    assert main.device_ids[GPU] in (["gpu-0", "gpu-2", "gpu-4", "gpu-6"], ["gpu-1", "gpu-3", "gpu-5", "gpu-7"])


def test_a_shared_device_is_given_to_as_many_pods_as_it_has_replicas(herd_node):
    """Each gets the same node; one pod cannot have two."""
    shared = {"replicas": 3, "rename": "fpga.intel.com/shared", "fail_requests_greater_than_one": True}
    rule = {"match": {"vendor": "intel_fpga"}, "sharing": shared}
    herd_node.start("fpga-1", {"resources": [rule]})
    herd_node.until_capacity("fpga.intel.com/shared", 3, 3)
    two = herd_node.kubelet.admit(pod("two", {"fpga.intel.com/shared": 2}))
    assert "code = InvalidArgument" in two.message
    for uid in "abc":
        main = herd_node.kubelet.admit(pod(uid, {"fpga.intel.com/shared": 1})).main
        assert main.devices == [node("/dev/dfl-port.0")]
    assert "Requested: 1, Available: 0" in herd_node.kubelet.admit(pod("d", {"fpga.intel.com/shared": 1})).message


def test_one_container_gets_devices_of_several_vendors(herd_node):
    """Each from its own child."""
    generic = [{"name": "devic.es/kvm", "groups": [{"paths": [{"path": "/dev/dfl-fme.0"}]}]}]
    herd_node.start("fpga-8", {"generic": generic, "simulated": [{"name": GPU, "count": 1}]})
    for name, count in (("devic.es/kvm", 1), (GPU, 1), (CRYPTO, 4)):
        herd_node.until_capacity(name, count, count)
    main = herd_node.kubelet.admit(pod("a", {CRYPTO: 2, "devic.es/kvm": 1, GPU: 1})).main
    assert len(main.devices) == 3
    assert node("/dev/dfl-fme.0", "mrw") in main.devices
    assert len(main.device_ids[CRYPTO]) == 2


def test_a_card_without_a_numa_node_is_told_without_topology(herd_node):
    """Its numa_node in sysfs is -1."""
    herd_node.start(NodeSpec(fpga=[FpgaSpec(numa_nodes=0)]), policy="single-numa-node", numa_nodes=[0, 1])
    herd_node.until_capacity(CRYPTO, 1, 1)
    assert herd_node.kubelet.devices(CRYPTO) == {"dfl-port.0": None}
    assert herd_node.kubelet.admit(pod("a", {CRYPTO: 1})).main.devices == [node("/dev/dfl-port.0")]


def test_a_port_that_fails_is_not_allocatable_until_it_is_well(herd_node):
    """And the pod that holds it is known."""
    herd_node.start("fpga-opae-2", QUICK)
    herd_node.until_capacity(CRYPTO, 1, 1)
    herd_node.kubelet.admit(pod("a", {CRYPTO: 1}))
    faults.inject(herd_node.node, "fpga-errors", "intel-fpga-port.0")
    herd_node.until_capacity(CRYPTO, 1, 0)
    health = {"main": {CRYPTO: {"intel-fpga-port.0": "Unhealthy"}}}
    assert herd_node.kubelet.ask("pod_health", uid="a") == health
    assert herd_node.kubelet.capacity(CODEC) == (1, 1)
    faults.clear(herd_node.node, "fpga-errors", "intel-fpga-port.0")
    herd_node.until_capacity(CRYPTO, 1, 1)


def test_a_device_that_is_gone_stays_unhealthy_for_as_long_as_a_pod_holds_it(herd_node):
    """Defect: it left the list after `forget_after`, and the kubelet then called it Healthy in the pod's status."""
    quick = {"health": {**QUICK["health"], "forget_after": "3s"}, "scan": QUICK["scan"]}
    herd_node.start("fpga-opae-2", quick)
    herd_node.until_capacity(CRYPTO, 1, 1)
    herd_node.kubelet.admit(pod("a", {CRYPTO: 1}))
    first, *_ = sorted(each.name for each in herd_node.directory.glob("node/sys/bus/pci/devices/*"))
    faults.inject(herd_node.node, "remove", first)
    herd_node.until_capacity(CRYPTO, 1, 0)
    time.sleep(5)
    health = {"main": {CRYPTO: {"intel-fpga-port.0": "Unhealthy"}}}
    assert herd_node.kubelet.ask("pod_health", uid="a") == health
    assert herd_node.kubelet.capacity(CRYPTO) == (1, 0)
    [lost] = eventually(lambda: lost_devices(herd_node))
    eventually(lambda: [list(one.pods) for one in lost_devices(herd_node)] == [["default/a"]])
    herd_node.kubelet.ask("free", uid="a")
    herd_node.until_capacity(CRYPTO, 0, 0)
    eventually(lambda: not lost_devices(herd_node)[0].is_listed)
    [still] = lost_devices(herd_node)
    assert (still.device, list(still.pods), still.since_timestamp_seconds) == (
        "intel-fpga-port.0",
        ["default/a"],
        lost.since_timestamp_seconds,
    )


def lost_devices(herd_node):
    """What devherd misses."""
    return list(spool.read_or_empty(herd_node.directory / "run/lost.pb", health_pb2.Lost).devices)


def test_a_list_too_long_for_the_kubelet_is_cut_and_that_is_said(herd_node):
    """Over 4 MiB the kubelet would end the stream and have no device at all."""
    name = f"example.com/{'long-' * 12}id"
    herd_node.start("generic", {"simulated": [{"name": name, "count": 45_000}]})
    kept = eventually(lambda: herd_node.kubelet.capacity(name), 60)
    assert 30_000 < kept[0] < 45_000
    assert kept[0] == kept[1]
    words = f"45000 devices do not fit into one message to the kubelet; the first {kept[0]} are advertised"
    eventually(lambda: words in herd_node.log, 60)
    assert len(herd_node.kubelet.admit(pod("a", {name: 100})).main.device_ids[name]) == 100


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_devherd_ended_and_started_again_loses_no_pod_and_no_device(herd_node, number):
    """An upgrade, or a crash, under running pods."""
    herd_node.start("fpga-8")
    for name in (CRYPTO, CODEC):
        herd_node.until_capacity(name, 4, 4)
    held = {name: herd_node.kubelet.admit(pod(name, {name: 1})).main for name in (CRYPTO, CODEC)}
    herd_node.stop_herd(number)
    for name in held:
        herd_node.until_capacity(name, 4, 0)
    herd_node.start_herd()
    for name, main in held.items():
        herd_node.until_capacity(name, 4, 4)
        rest = herd_node.kubelet.admit(pod(f"rest of {name}", {name: 3})).main
        assert not set(rest.device_ids[name]) & set(main.device_ids[name])


def test_every_resource_is_back_after_a_restart_of_the_kubelet(herd_node):
    """All children register anew."""
    herd_node.start("fpga-8", {"simulated": [{"name": GPU, "count": 2}]})
    counts = {CRYPTO: 4, CODEC: 4, GPU: 2}
    for name, count in counts.items():
        herd_node.until_capacity(name, count, count)
    for _ in range(5):
        herd_node.kubelet.restart()
        for name, count in counts.items():
            herd_node.until_capacity(name, count, count)


def test_a_herd_that_waits_to_be_found_serves_and_survives_a_restart_of_the_kubelet(herd_node):
    """`registration: plugins_registry`, with two resources: no call of Register, and the pod keeps its device."""
    herd_node.start("fpga-opae-2", {"registration": "plugins_registry"}, plugins_registry=True)
    for _ in range(2):
        for name in (CRYPTO, CODEC):
            herd_node.until_capacity(name, 1, 1)
            assert herd_node.kubelet.registrations(name) == 0
        assert herd_node.kubelet.admit(pod("a", {CRYPTO: 1})).main.paths == ["/dev/intel-fpga-port.0"]
        running = [{"pod_uid": "a", "name": "main", "id": "a/main", "running": True}]
        herd_node.kubelet.restart(sources_ready=False, containers=running)
    assert herd_node.stop_herd() == 0
    assert list((herd_node.kubelet.directory / "plugins_registry").iterdir()) == []


def test_the_exporter_shows_who_holds_which_device_by_the_kubelets_own_word(herd_node):
    """Read from the kubelet's PodResources: both devices of a container, none of a pod that is over."""
    herd_node.listen = f"127.0.0.1:{free_port()}"
    herd_node.start("generic", {"simulated": [{"name": GPU, "count": 3, "numa_nodes": 2}]}, numa_nodes=[0, 1])
    herd_node.until_capacity(GPU, 3, 3)

    def shown():
        try:
            page = urllib.request.urlopen(f"http://{herd_node.listen}/metrics", timeout=10).read().decode()
        except OSError:
            return None
        return sorted(line.split("{")[1].split("}")[0] for line in page.splitlines() if "device_allocated{" in line)

    held = herd_node.kubelet.admit(pod("train", {GPU: 2})).main.device_ids[GPU]
    whose = f'container="main",device_id="{{}}",namespace="default",pod="train",resource_name="{GPU}"'
    eventually(lambda: shown() == [whose.format(device_id) for device_id in held])
    herd_node.kubelet.ask("free", uid="train")
    eventually(lambda: shown() == [])


def test_a_pool_without_devices_is_registered_and_fills_when_a_card_comes(herd_node):
    """Others D8: the shared RDMA plugin registers it; operators wait for the resource, at 0 as well."""
    pools = [
        {"name": "rdma/none", "rdma_hca_max": 5, "selectors": {"vendors": ["1dd8"]}},
        {"name": "rdma/mlx5", "rdma_hca_max": 5, "selectors": {"vendors": ["15b3"]}},
    ]
    herd_node.prepare("rdma-2", QUICK | {"vendors": {"rdma": {"mode": "shared", "pools": pools}}})
    sysfs, away = herd_node.directory / "node/sys/class/infiniband", herd_node.directory / "infiniband"
    sysfs.rename(away)
    verbs = sysfs.with_name("infiniband_verbs")
    verbs.rename(herd_node.directory / "verbs")
    herd_node.kubelet.start()
    herd_node.start_herd()
    herd_node.until_capacity("rdma/none", 0, 0)
    herd_node.until_capacity("rdma/mlx5", 0, 0)

    (herd_node.directory / "verbs").rename(verbs)
    away.rename(sysfs)

    herd_node.until_capacity("rdma/mlx5", 5, 5)
    assert herd_node.kubelet.capacity("rdma/none") == (0, 0)
