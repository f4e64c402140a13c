"""AMD GPUs that change while they are served: late drivers, repartitioning, GPUs that lose their driver."""

import itertools
import shutil
from pathlib import Path

import pytest
from amd_host import DRIVER, by_id, function, host, names, scanner
from answering import AnsweredScan, AnsweringScanner, core_settings, not_examined
from remembered import remembered

from devherd._native import UeventSocket
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.health.policy import FINE
from devherd.scanner.observer import Observer
from devherd_sim.node.amd import AmdSpec
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec, entries
from devherd_sim.node.tree import read_tree

# What every kernel has.
KERNEL = "sys/class/mem/\nsys/module/printk/\nsys/devices/platform/pcspkr/\ndev/null char 1:3"
UNDRIVEN = NodeSpec(amd=[AmdSpec(cards=2, driver="none")], tree=KERNEL)
DRIVEN = NodeSpec(amd=[AmdSpec(cards=2)], tree=KERNEL)
FIRST, SECOND = "0000:01:00.0", "0000:02:00.0"
WHOLE = AmdSpec(model="mi300x", cards=2)
SPLIT = WHOLE.model_copy(update={"compute_partition": "CPX", "memory_partition": "NPS4", "first_xcp": 14})


def settled(native: AnsweringScanner) -> AnsweredScan:
    """What a changed topology is believed to be: what two looks agree on."""
    first = native.scan()
    assert (first.look_again, first.devices, not_examined(first)) == (True, [], [(None, None)])
    return native.scan()


def test_a_driver_that_loads_late_is_seen(tmp_path: Path):
    """Number 1: without /sys/class/kfd the vendor's plugin is idle for ever. Here it is seen when it comes."""
    node = SimulatedNode.create(tmp_path, UNDRIVEN)
    native = scanner(tmp_path)
    before = native.scan()
    assert (before.devices, before.problems) == ([], [])
    node.change(UNDRIVEN, DRIVEN)
    after = native.scan()
    assert [(device.id, device.reasons) for device in after.devices] == [(FIRST, []), (SECOND, [])]
    assert after.problems == []


def test_a_driver_that_loads_late_wakes_the_scan(tmp_path: Path):
    """The kernel tells of the module, the driver and each GPU bound; then the directory of their nodes is watched."""
    # One GPU: of more events than the kernel keeps for a socket (net.unix.max_dgram_qlen) the last would be lost.
    undriven, driven = (NodeSpec(amd=[AmdSpec(cards=1, driver=driver)], tree=KERNEL) for driver in ("none", "amdgpu"))
    node = SimulatedNode.create(tmp_path, undriven)
    native = scanner(tmp_path)
    native.scan()
    uevents = UeventSocket(str(tmp_path))
    node.change(undriven, driven)
    told = {(event["ACTION"], event["DEVPATH"]) for event in uevents.drain()[0]}
    uevents.close()
    assert {("add", "/module/amdgpu"), ("add", "/bus/pci/drivers/amdgpu"), ("add", "/class/kfd")} <= told
    native.scan()
    assert str(tmp_path / "dev/dri") in native.watched_directories()


@pytest.mark.parametrize("options", [{"required": True}, {"required": True, "driver_type": "container"}])
def test_a_driver_that_must_be_there_is_awaited_aloud(options: dict[str, object], tmp_path: Path):
    """`enabled: true` says that there are such GPUs: what is missing is told."""
    SimulatedNode.create(tmp_path, UNDRIVEN)
    scan = scanner(tmp_path, **options).scan()
    problems = [(problem.path, problem.error) for problem in scan.problems]
    assert problems == [("/sys/class/kfd", "not present yet: waiting for its driver to load")]


def test_half_a_driver_is_awaited_aloud(tmp_path: Path):
    """Number 2: KFD without /sys/module/amdgpu/drivers ends the vendor's plugin with code 2."""
    root = host(tmp_path, AmdSpec(cards=2))
    native = scanner(root)
    away = root / "sys/module/amdgpu/drivers"
    away.rename(root / "sys/module/drivers")
    scan = native.scan()
    assert ([problem.path for problem in scan.problems], scan.devices) == ([f"/{DRIVER}"], [])
    (root / "sys/module/drivers").rename(away)
    (root / "sys/class/kfd").rename(root / "sys/class/fdk")
    scan = native.scan()
    assert ([problem.path for problem in scan.problems], scan.devices) == (["/sys/class/kfd"], [])


def test_a_repartitioned_gpu_moves_between_resources(tmp_path: Path):
    """Number 16, and number 6: new partitions have new numbers and the card's own nodes, read anew."""
    before, after = NodeSpec(amd=[WHOLE]), NodeSpec(amd=[SPLIT])
    node = SimulatedNode.create(tmp_path, before)
    native = scanner(tmp_path, naming="mixed")
    assert names(native.scan()) == {"amd.com/spx_nps1": 2}
    node.change(before, after)
    scan = settled(native)
    assert names(scan) == {"amd.com/cpx_nps4": 16}
    assert [device.id for device in scan.devices if device.card == FIRST] == [
        FIRST,
        *(f"amdgpu_xcp_{number}" for number in range(14, 21)),
    ]
    assert by_id(scan)["amdgpu_xcp_14"].distances == {FIRST: 30, SECOND: 40}
    node.change(after, before)
    assert names(settled(native)) == {"amd.com/spx_nps1": 2}


def test_one_gpu_can_be_repartitioned_beside_the_others(tmp_path: Path):
    """The other's devices are the same, to the last attribute but its number in the topology."""
    one, other = AmdSpec(model="mi300x"), AmdSpec(model="mi300x", compute_partition="DPX")
    before, after = NodeSpec(amd=[one, one]), NodeSpec(amd=[one, other])
    node = SimulatedNode.create(tmp_path, before)
    native = scanner(tmp_path, naming="mixed")
    first = by_id(native.scan())[FIRST]
    node.change(before, after)
    scan = settled(native)
    assert by_id(scan)[FIRST] == first
    assert names(scan) == {"amd.com/spx_nps1": 1, "amd.com/dpx_nps1": 2}


def health(observer: Observer) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Device id → resource and reasons, of every device on offer."""
    verdicts = observer.policy.verdicts()
    return {
        entry.device.id: (entry.resource_name, verdicts.get(key, FINE).reasons)
        for key, entry in observer.inventory.entries.items()
    }


def test_while_kfd_builds_its_topology_anew_every_device_stays_as_it_was(tmp_path: Path):
    """For each partition of one GPU that goes or comes the kernel removes the nodes of all: a half is no news.

    Partitions that the GPU has no more are gone from the moment on at which its mode is another one.
    """
    split = WHOLE.model_copy(update={"compute_partition": "CPX", "cards": 1})
    before = NodeSpec(amd=[split, split])
    after = NodeSpec(amd=[split, split.model_copy(update={"compute_partition": "SPX"})])
    node = SimulatedNode.create(tmp_path, before)
    observer = Observer(
        resolve(Config.model_validate({"host_root": tmp_path, "vendors": {"amd": {"naming": "mixed"}}}))
    )
    observer.scan(0.0)
    observer.poll(periodic=True)
    first, looks = health(observer), []

    def look() -> None:
        assert observer.scan(1.0 + len(looks)).look_again
        observer.poll(periodic=True)
        looks.append(health(observer))

    node.change(before, after, look)
    assert len(looks) > 9 * 8
    lost = {f"amdgpu_xcp_{number}": ("amd.com/cpx_nps1", ("gone",)) for number in range(7, 14)}
    assert [first, first | lost] == [seen for seen, _ in itertools.groupby(looks)]
    observer.scan(100.0)
    observer.poll(periodic=True)
    gone = [device for device, (_, reasons) in health(observer).items() if reasons]
    assert gone == [*lost]


def test_what_goes_while_kfd_builds_its_topology_anew_is_gone_at_once(tmp_path: Path):
    """No topology is believed meanwhile; a function that has left the bus is gone all the same."""
    before, after = NodeSpec(amd=[AmdSpec(cards=2)]), NodeSpec(amd=[AmdSpec()])
    node = SimulatedNode.create(tmp_path, before)
    observer = Observer(resolve(Config(host_root=tmp_path)))
    observer.scan(0.0)
    node.change(before, after)
    observer.scan(1.0)
    observer.poll(periodic=True)
    assert health(observer) == {FIRST: ("amd.com/gpu", ()), SECOND: ("amd.com/gpu", ("gone",))}


def test_links_are_read_again_when_the_topology_changes(tmp_path: Path):
    """Between changes they are not: there are thousands."""
    root = host(tmp_path, AmdSpec(cards=2))
    native = scanner(root)
    assert by_id(native.scan())[FIRST].distances == {FIRST: 30, SECOND: 40}
    topology = root / "sys/class/kfd/kfd/topology"
    for links in topology.glob("nodes/*/io_links"):
        shutil.rmtree(links)
    assert by_id(native.scan())[FIRST].distances == {FIRST: 30, SECOND: 40}
    (topology / "generation_id").write_text("99\n")
    assert by_id(settled(native))[FIRST].distances == {FIRST: 30}


def test_a_gpu_that_loses_its_driver_stays_and_says_so(tmp_path: Path):
    """driver-unbound, until it is bound again; no restart, and the other GPU notices nothing."""
    root = host(tmp_path, AmdSpec(cards=2))
    native = scanner(root)
    assert len(native.scan().devices) == 2
    links = [function(root, FIRST) / "driver", root / "sys/bus/pci/drivers/amdgpu" / FIRST]
    targets = [link.readlink() for link in links]
    for link in links:
        link.unlink()
    for _ in range(2):
        scan = native.scan()
        assert [(device.id, device.reasons) for device in scan.devices] == [(SECOND, [])]
        assert not_examined(scan) == [(FIRST, "driver-unbound")]
        assert [problem.device for problem in scan.problems] == [FIRST]
    for link, target in zip(links, targets, strict=True):
        link.symlink_to(target)
    scan = native.scan()
    assert ([device.id for device in scan.devices], scan.unseen, scan.problems) == ([FIRST, SECOND], [], [])


def test_a_gpu_that_loses_its_driver_while_the_scanner_restarts_stays_and_says_so(tmp_path: Path):
    """A new scanner has never seen it bound; what the spool knows of it is kept, and it is not called gone."""
    node = SimulatedNode.create(tmp_path, DRIVEN)
    config = resolve(Config(host_root=tmp_path))
    before = Observer(config)
    before.scan(0.0)
    node.change(DRIVEN, UNDRIVEN)
    after = Observer(config, inventory=remembered(before))
    scan = after.scan(1.0)
    [resource] = after.offering.judged(after.policy.verdicts()).offers
    assert [(device.id, list(device.reasons)) for device in resource.devices] == [
        (FIRST, ["driver-unbound"]),
        (SECOND, ["driver-unbound"]),
    ]
    assert scan.problems == []


def test_what_was_wrong_with_a_gpu_is_not_taken_back_while_it_cannot_be_examined(tmp_path: Path):
    """No source looks at a GPU without its driver: that its node was missing is neither confirmed nor over."""
    node = SimulatedNode.create(tmp_path, DRIVEN)
    observer = Observer(resolve(Config(host_root=tmp_path)))
    observer.scan(0.0)
    missing = next((tmp_path / "dev/dri").glob("renderD*"))
    missing.unlink()
    observer.poll(periodic=True)
    missing.touch()
    node.change(DRIVEN, UNDRIVEN)
    observer.scan(1.0)
    for _ in range(10):
        observer.poll(periodic=True)
    reasons = sorted(verdict.reasons for verdict in observer.policy.verdicts().values())
    assert reasons == [("driver-unbound",), ("driver-unbound", "node-missing")]


def test_a_driver_that_is_unloaded_leaves_every_gpu_unbound(tmp_path: Path):
    """And not one gone: they are on the bus, and come back with the driver."""
    node = SimulatedNode.create(tmp_path, DRIVEN)
    native = scanner(tmp_path)
    native.scan()
    node.change(DRIVEN, UNDRIVEN)
    assert not_examined(native.scan()) == [
        (FIRST, "driver-unbound"),
        (SECOND, "driver-unbound"),
    ]
    node.change(UNDRIVEN, DRIVEN)
    scan = native.scan()
    assert (len(scan.devices), scan.unseen) == (2, [])


@pytest.mark.parametrize(
    ("settings", "told"), [({"intel_gpu": {"shared_devices": 3}}, [FIRST, SECOND]), ({"amd": {"naming": "mixed"}}, [])]
)
def test_what_a_vendor_has_seen_outlives_other_settings_of_other_vendors(tmp_path: Path, settings, told):
    """A reload that concerns another vendor forgets no GPU that was bound; one that changes AMD's own begins anew."""
    node = SimulatedNode.create(tmp_path, DRIVEN)
    native = scanner(tmp_path)
    native.scan()
    node.change(DRIVEN, UNDRIVEN)
    native.reconfigure(core_settings(tmp_path, **settings))
    assert [problem.device for problem in native.scan().problems] == told


def test_a_gpu_given_to_another_driver_is_gone(tmp_path: Path):
    """It is there on purpose: for a virtual machine, say."""
    before, after = NodeSpec(amd=[AmdSpec(cards=2)]), NodeSpec(amd=[AmdSpec(), AmdSpec(driver="vfio-pci")])
    node = SimulatedNode.create(tmp_path, before)
    native = scanner(tmp_path)
    native.scan()
    node.change(before, after)
    scan = settled(native)
    assert ([device.id for device in scan.devices], scan.unseen, scan.problems) == ([FIRST], [], [])


def test_a_gpu_pulled_out_is_gone(tmp_path: Path):
    """Nothing of it is on the bus."""
    before, after = NodeSpec(amd=[AmdSpec(cards=2)]), NodeSpec(amd=[AmdSpec()])
    node = SimulatedNode.create(tmp_path, before)
    native = scanner(tmp_path)
    native.scan()
    node.change(before, after)
    scan = settled(native)
    assert ([device.id for device in scan.devices], scan.unseen, scan.problems) == ([FIRST], [], [])


@pytest.mark.parametrize(("before", "after"), [(UNDRIVEN, DRIVEN), (DRIVEN, UNDRIVEN)])
def test_a_changed_node_is_as_if_it_had_been_written_so(before: NodeSpec, after: NodeSpec, tmp_path: Path):
    """Nothing of the node before is left, not even an empty directory; the host's log and devlink go on."""
    node = SimulatedNode.create(tmp_path, before)
    node.change(before, after)
    of_the_host = {"dev/kmsg", ".devherd-devlink"}
    assert {entry.path for entry in read_tree(tmp_path)} == {*of_the_host, *(entry.path for entry in entries(after))}
