"""What AMD's own plugin does wrong on a host as it stands, done right: each test names the row of amd.md 6."""

import re
import shutil
from pathlib import Path

import pytest
from amd_host import DRIVER, TOPOLOGY, by_id, function, host, names, scanned, scanner
from answering import not_examined
from remembered import remembered

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.scanner.observer import Observer
from devherd_sim.node.amd import AmdSpec
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec
from devherd_sim.node.tree import write_tree

CPX = AmdSpec(model="mi300x", cards=2, compute_partition="CPX")
PAIR = AmdSpec(cards=2)
FIRST, SECOND = "0000:01:00.0", "0000:02:00.0"


def test_a_domain_of_more_than_four_digits_is_served(tmp_path: Path):
    """Number 3: behind VMD domains start at 10000, which the vendor's glob does not match."""
    scan = scanned(host(tmp_path, AmdSpec(addresses=["10000:05:00.0", "10000:06:00.0"])))
    assert [(device.id, device.card) for device in scan.devices] == [
        ("10000:05:00.0", "10000:05:00.0"),
        ("10000:06:00.0", "10000:06:00.0"),
    ]
    assert scan.devices[0].distances == {"10000:05:00.0": 30, "10000:06:00.0": 40}


def test_other_entries_of_drm_are_passed_over(tmp_path: Path):
    """Number 4: a name that is shorter than expected ends the vendor's plugin."""
    root = host(tmp_path, PAIR)
    before = scanned(root).devices
    for name in ("x", "by", "card0-DP-1", "controlD64", "renderDX", "version"):
        (function(root, FIRST) / "drm" / name).mkdir()
    assert scanned(root).devices == before


def test_both_spellings_of_partitions_are_served(tmp_path: Path):
    """Number 5: of amdgpu_xcp.N the vendor's plugin sees none, so 63 devices become 8."""
    scan = scanned(host(tmp_path, CPX.model_copy(update={"xcp_name": "amdgpu_xcp."})))
    assert [device.id for device in scan.devices] == [FIRST, SECOND, *(f"amdgpu_xcp.{number}" for number in range(14))]
    assert scan.problems == []


def test_a_gpu_without_nodes_takes_over_none_of_another(tmp_path: Path):
    """Number 7: in the vendor's loops the numbers of the GPU before stay in force."""
    root = host(tmp_path, PAIR)
    for path in (function(root, SECOND) / "drm").iterdir():
        path.rename(tmp_path / path.name)
    scan = scanned(root)
    good, bad = scan.devices
    assert ([node.host_path for node in bad.nodes], bad.reasons) == (["/dev/kfd"], ["node-missing"])
    assert "card_minor" not in bad.attributes
    assert good.reasons == []
    assert [problem.device for problem in scan.problems] == [SECOND]


def test_gpus_of_an_old_kernel_are_told_apart(tmp_path: Path):
    """Number 8: without `domain` all GPUs count as the same one."""
    root = host(tmp_path, AmdSpec(model="vega10", cards=2))
    assert "domain" not in (root / TOPOLOGY / "nodes/1/properties").read_text()
    assert [device.card for device in scanned(root).devices] == [FIRST, SECOND]


def test_partitions_are_served_where_no_numa_node_is_known(tmp_path: Path):
    """Number 9: with -1 the vendor's plugin drops all further partitions, and sends -1 for the rest."""
    scan = scanned(host(tmp_path, CPX.model_copy(update={"numa_nodes": 0})))
    assert len(scan.devices) == 16
    assert all(device.numa_nodes == [] and not device.reasons for device in scan.devices)
    assert scan.problems == []


@pytest.mark.parametrize("damage", ["numa_node = none", "numa_node ==", "numa_node fifo", "numa_node -> numa_node"])
def test_a_numa_node_that_cannot_be_told_costs_no_device(damage: str, tmp_path: Path):
    """Number 10: the vendor's plugin skips the GPU."""
    root = host(tmp_path, AmdSpec(cards=2, numa_nodes=1))
    (function(root, FIRST) / "numa_node").unlink()
    write_tree(f"{function(root, FIRST).relative_to(root)}/{damage}", root)
    assert [(device.numa_nodes, device.reasons) for device in scanned(root).devices] == [([], []), ([0], [])]


@pytest.mark.parametrize("naming", ["single", "mixed"])
def test_partitions_are_served_without_partition_files(naming: str, tmp_path: Path):
    """Number 11: what kind they are is unknown, and no reason to drop them."""
    root = host(tmp_path, CPX)
    for address in (FIRST, SECOND):
        (function(root, address) / "current_compute_partition").unlink()
    scan = scanned(root, naming=naming)
    assert names(scan) == {"amd.com/gpu": 16}
    assert scan.problems == []


def test_values_of_64_bits_are_read(tmp_path: Path):
    """Numbers 12 and 13: `unique_id` is above 2**63; `cpu_simd_count` comes before `simd_count` and is none."""
    root = host(tmp_path, AmdSpec())
    properties = root / TOPOLOGY / "nodes/1/properties"
    properties.write_text("cpu_simd_count 7\n" + properties.read_text() + "old_domain 9\ndomain_x 3\n")
    (device,) = scanned(root).devices
    assert (device.card, device.attributes["simd_count"]) == (FIRST, "416")
    assert device.attributes["unique_id"] == "0xf0a1000000000000"


def test_gpus_of_different_kinds_under_one_name_are_served_and_told(tmp_path: Path):
    """Number 14: the vendor's plugin ends with code 1; here one problem names both kinds and the cure."""
    root = host(tmp_path, CPX, AmdSpec(model="mi300x"))
    scan = scanned(root, naming="single")
    assert names(scan) == {"amd.com/gpu": 17}
    (problem,) = scan.problems
    assert problem.path == f"/{DRIVER}"
    assert f"cpx_nps1 ({FIRST}, {SECOND}), spx_nps1 (0000:03:00.0)" in problem.error
    assert "`vendors.amd.naming: mixed`" in problem.error
    assert scanned(root, naming="mixed").problems == []


def test_a_gpu_that_cannot_be_partitioned_is_in_a_resource(tmp_path: Path):
    """Number 15: beside partitioned ones the vendor's plugin has it in none."""
    scan = scanned(host(tmp_path, CPX, AmdSpec()), naming="mixed")
    assert names(scan) == {"amd.com/cpx_nps1": 16, "amd.com/gpu": 1}
    assert by_id(scan)["0000:03:00.0"].resource_name == "amd.com/gpu"


def test_spare_partitions_are_no_devices_and_no_problem(tmp_path: Path):
    """The driver makes seven platform devices for each GPU, whatever it is split into."""
    scan = scanned(host(tmp_path, CPX.model_copy(update={"compute_partition": "QPX"})))
    assert [device.id for device in scan.devices] == [
        *(FIRST, SECOND),
        *(f"amdgpu_xcp_{number}" for number in (0, 1, 2, 7, 8, 9)),
    ]
    assert scan.problems == []


def test_a_kernel_that_tells_no_target_version_has_healthy_gpus(tmp_path: Path):
    """Number 31: the vendor's plugin holds all of them for Unhealthy."""
    root = host(tmp_path, AmdSpec(model="vega10", cards=2))
    assert [device.reasons for device in scanned(root).devices] == [[], []]


def test_a_missing_node_is_one_devices_trouble(tmp_path: Path):
    """Number 30: health is each device's own, partitions included."""
    root = host(tmp_path, CPX)
    native = scanner(root)
    native.scan()
    assert native.poll() == []
    (root / "dev/dri/renderD130").unlink()
    assert native.poll() == [("amd", FIRST, "amdgpu_xcp_1", ["node-missing"])]
    assert {device.id for device in native.scan().devices if device.reasons} == {"amdgpu_xcp_1"}


def test_without_kfd_no_device_can_compute(tmp_path: Path):
    """Every container needs /dev/kfd."""
    root = host(tmp_path, PAIR)
    (root / "dev/kfd").unlink()
    assert [device.reasons for device in scanned(root).devices] == [["node-missing"], ["node-missing"]]


BROKEN = (
    *("current_compute_partition fifo", "current_compute_partition binary 0xff*5000"),
    *("current_memory_partition -> current_memory_partition", "product_name fifo", "uevent fifo", "class = x"),
    *("drm -> drm", "config binary 0xff"),
)


@pytest.mark.parametrize("damage", BROKEN)
@pytest.mark.parametrize("naming", ["single", "mixed"])
def test_one_bad_gpu_never_costs_the_others(damage: str, naming: str, tmp_path: Path):
    """Whatever of it is broken, the other GPU and its partitions are as they were, and nothing of it is lost."""
    root = host(tmp_path, CPX)
    before = {device.id: device for device in scanned(root, naming=naming).devices if device.card == SECOND}
    place = function(root, FIRST)
    target = place / damage.split(maxsplit=1)[0]
    if target.is_dir():
        target.rename(tmp_path / "away")
    target.unlink(missing_ok=True)
    write_tree(f"{place.relative_to(root)}/{damage}", root)
    scan = scanned(root, naming=naming)
    assert {device.id: device for device in scan.devices if device.card == SECOND} == before
    assert len(scan.devices) == 16
    assert all(problem.device in {None, FIRST} for problem in scan.problems)


def test_a_kind_that_cannot_be_read_is_not_made_up(tmp_path: Path):
    """Its partitions stay in the resource they were in; never seen before, they are plain GPUs."""
    root = host(tmp_path, CPX)
    write_tree(f"{function(root, FIRST).relative_to(root)}/current_compute_partition binary 0x41*5000", root)
    scan = scanned(root, naming="mixed")
    unknown = [device for device in scan.devices if device.card == FIRST]
    assert {(device.resource_name, device.first_sight_resource_name) for device in unknown} == {(None, "amd.com/gpu")}
    assert names(scan) == {"None": 8, "amd.com/cpx_nps1": 8}
    assert len(scan.problems) == 1


def test_a_node_of_kfd_that_cannot_be_read_costs_no_device(tmp_path: Path):
    """Its partition may be there all the same, as may any that has no node; the others are served."""
    root = host(tmp_path, CPX)
    write_tree(f"{TOPOLOGY}/nodes/3/properties binary 0x41*5000", root)
    scan = scanned(root)
    assert len(scan.devices) == 15
    [lost] = {f"amdgpu_xcp_{number}" for number in range(14)} - {device.id for device in scan.devices}
    assert not_examined(scan) == [(lost, None)]
    assert [problem.path for problem in scan.problems] == [f"/{TOPOLOGY}/nodes/3/properties"]


def test_partitions_are_the_same_where_the_driver_numbers_them_in_the_topmost_bits(tmp_path: Path):
    """Of `location_id`, where other drivers have the number of the function: every partition was the first."""
    root = host(tmp_path, CPX)
    before = by_id(scanned(root))
    assert {device.attributes["partition"] for device in before.values()} == set("01234567")
    for properties in (root / TOPOLOGY / "nodes").glob("*/properties"):
        moved = re.sub(
            r"location_id (\d+)", lambda found: f"location_id {in_the_top(int(found[1]))}", properties.read_text()
        )
        properties.write_text(moved)
    assert by_id(scanned(root)) == before


def in_the_top(location: int) -> int:
    return location & ~7 | (location & 7) << 28


def refuse(root: Path, nodes: str) -> None:
    """Let nodes of KFD be unreadable: a directory where a file is expected, in place of the kernel's EPERM."""
    for properties in (root / TOPOLOGY / "nodes").glob(f"{nodes}/properties"):
        if "drm_render_minor 0" not in properties.read_text():
            properties.unlink()
            properties.mkdir()


@pytest.mark.parametrize("nodes", ["*", "2"])
def test_a_gpu_pulled_out_is_gone_whatever_kfd_refuses(nodes: str, tmp_path: Path):
    """Spare partitions are in no node of KFD; that one cannot be read makes no GPU one that may be there."""
    before = NodeSpec(amd=[AmdSpec(model="mi300x", cards=3)])
    node = SimulatedNode.create(tmp_path, before)
    refuse(tmp_path, nodes)
    observer = Observer(resolve(Config(host_root=tmp_path)))
    observer.scan(0.0)
    observer.poll(periodic=True)
    node.functions.pull_out(FIRST)
    for moment in range(1, 8):
        observer.scan(float(moment))
        observer.poll(periodic=True)
    assert {key[2]: verdict.reasons for key, verdict in observer.policy.verdicts().items()} == {FIRST: ("gone",)}


def test_partitions_known_from_before_kfd_was_refused_are_polled_and_never_recover(tmp_path: Path):
    """A privileged container made an unprivileged one: what nobody can look at can only get worse."""
    root = host(tmp_path, CPX)
    config = resolve(Config(host_root=root))
    before = Observer(config)
    before.scan(0.0)
    refuse(root, "*")
    after = Observer(config, inventory=remembered(before))
    after.scan(1.0)
    after.poll(periodic=True)
    assert (len(after.inventory.entries), after.policy.verdicts()) == (16, {})
    render = root / "dev/dri" / next((root / "sys/devices/platform/amdgpu_xcp_3/drm").glob("renderD*")).name
    render.unlink()
    after.poll(periodic=False)
    render.touch()
    shutil.rmtree(root / "sys/devices/platform/amdgpu_xcp_5")
    for moment in range(2, 9):
        after.scan(float(moment))
        after.poll(periodic=True)
    reasons = {key[2]: verdict.reasons for key, verdict in after.policy.verdicts().items()}
    assert reasons == {"amdgpu_xcp_3": ("node-missing",), "amdgpu_xcp_5": ("gone",)}


def test_a_gpu_that_reads_as_all_ones_is_off_the_bus(tmp_path: Path):
    """Its partitions with it, and no other GPU's."""
    root = host(tmp_path, CPX)
    config = f"{function(root, FIRST).relative_to(root)}/config"
    write_tree(f"{config} binary 0x02*4096", root)
    assert not [device.id for device in scanned(root).devices if device.reasons]
    write_tree(f"{config} binary 0xff*4096", root)
    assert {device.card for device in scanned(root).devices if device.reasons == ["off-bus"]} == {FIRST}
    assert sum(device.reasons == ["off-bus"] for device in scanned(root).devices) == 8


@pytest.mark.parametrize("damage", ["removed", "fifo", "directory", "loop", "binary 0x41*5000"])
def test_whatever_of_a_gpu_is_broken_the_other_is_served(damage: str, tmp_path: Path):
    """Every file and link of its function, of a partition and of both their nodes of KFD, one after another."""
    root = host(tmp_path / "host", CPX)
    places = [function(root, FIRST), root / "sys/devices/platform/amdgpu_xcp_0"]
    places += [(root / TOPOLOGY / "nodes" / number).resolve() for number in "12"]
    paths = [path for place in places for path in place.rglob("*") if path.is_symlink() or path.is_file()]
    before = seen_of_second(root)
    assert (len(before), len(paths) > 80) == (8, True)
    for path in paths:
        aside = tmp_path / "aside"
        path.rename(aside)
        if damage == "directory":
            path.mkdir()
        elif damage != "removed":
            write_tree(f"{path.relative_to(root)} {damage.replace('loop', f'-> {path.name}')}", root)
        assert seen_of_second(root) == before, path
        if damage == "directory":
            path.rmdir()
        aside.replace(path)
    assert seen_of_second(root) == before


def seen_of_second(root: Path) -> dict[str, tuple[object, ...]]:
    """Of the second GPU what has nothing to do with the first."""
    return {
        device.id: (device.resource_name, device.reasons, device.numa_nodes, device.attributes)
        for device in scanned(root, naming="mixed").devices
        if device.card == SECOND
    }
