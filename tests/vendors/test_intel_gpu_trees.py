"""Whole host trees through the scan core: what layouts of Intel GPUs must make (intel.md 1.8, 2.5 to 2.7, 5.4)."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from answering import Answered, AnsweredScan, AnsweringScanner, core_settings, not_examined

from devherd.cdi import container_edits
from devherd.device_plugin.allocation import merge
from devherd.offers.made import message_of
from devherd_sim.node.tree import write_tree

TREES = Path(__file__).parent / "trees"
CARD = "sys/class/drm/card0/device"


def scanner(root: Path, **options: Any) -> AnsweringScanner:
    """For Intel GPUs alone."""
    return AnsweringScanner(str(root), core_settings(root, intel_gpu=options))


def planted(root: Path, name: str, *changes: str) -> Path:
    """The named tree below `root`, with later lines in place of earlier ones."""
    write_tree((TREES / f"{name}.tree").read_text(), root)
    for change in changes:
        write_tree(change, root)
    return root


def plain_card(number: int, driver: str, device: str, *, node: bool = True) -> str:
    """A card like that of the base tree."""
    path = f"sys/class/drm/card{number}/device"
    lines = [
        f"{path}/drm/card{number}/",
        f"{path}/vendor = 0x8086",
        f"{path}/device = {device}",
        f"{path}/driver -> ../../../../bus/pci/drivers/{driver}",
        *([f"dev/dri/card{number} char 226:{number}"] if node else []),
    ]
    return "\n".join(lines)


def healthy(scan: AnsweredScan) -> dict[str, int]:
    """Resource name → ids of healthy devices of it."""
    found: Counter[str] = Counter()
    for device in scan.devices:
        if not device.reasons:
            found[str(device.resource_name).removeprefix("gpu.intel.com/")] += len(device.shares) or 1
    return dict(found)


def nodes(device: Answered) -> list[str]:
    """Names of its nodes below /dev."""
    return [node.host_path.removeprefix("/dev/") for node in device.nodes]


XE = plain_card(1, "xe", "0x9876")
TWO = (plain_card(0, "xe", "0x1234"), plain_card(1, "i915", "0x9876"))
CASES: dict[str, tuple[tuple[str, ...], dict[str, Any], dict[str, int]]] = {
    "the base tree": ((), {}, {"i915": 1}),
    "the driver is xe": ((f"{CARD}/driver -> ../../../../bus/pci/drivers/xe",), {}, {"xe": 1}),
    "any driver names the resource": ((f"{CARD}/driver -> ../../../../bus/pci/drivers/other",), {}, {"other": 1}),
    "two xe cards, split monitoring": (
        (plain_card(0, "xe", "0x1234"), XE),
        {"monitoring": "split"},
        {"xe": 2, "xe_monitoring": 1},
    ),
    "xe and i915, split monitoring": (
        (XE,),
        {"monitoring": "split"},
        {"i915": 1, "xe": 1, "i915_monitoring": 1, "xe_monitoring": 1},
    ),
    "xe and i915, single monitoring": ((XE,), {"monitoring": "single"}, {"i915": 1, "xe": 1, "monitoring": 1}),
    "one id allowed": (
        TWO,
        {"allow_ids": ["0x1234"], "monitoring": "split"},
        {"xe": 1, "xe_monitoring": 1},
    ),
    "two of three ids allowed": (
        (*TWO, plain_card(2, "i915", "0x0101")),
        {"allow_ids": ["0x1234", "0x9876"]},
        {"xe": 1, "i915": 1},
    ),
    "one id denied": (TWO, {"deny_ids": ["0x1234"]}, {"i915": 1}),
    "no virtual function": (
        (f"{CARD}/sriov_numvfs = 0",),
        {"monitoring": "single"},
        {"i915": 1, "monitoring": 1},
    ),
    "no virtual function, in another way": ((f"{CARD}/sriov_numvfs = -1",), {}, {"i915": 1}),
    "two cards, one node": ((plain_card(1, "i915", "0x56c0", node=False),), {}, {"i915": 1}),
    "a physical function and two virtual ones": (
        (f"{CARD}/sriov_numvfs = 2", plain_card(1, "i915", "0x56c0"), plain_card(2, "i915", "0x56c0")),
        {},
        {"i915": 2},
    ),
    "13 shares of two cards": (
        (plain_card(1, "i915", "0x56c0"),),
        {"shared_devices": 13, "monitoring": "single"},
        {"i915": 26, "monitoring": 1},
    ),
    "of another maker": ((f"{CARD}/vendor = 0xbeef",), {"monitoring": "single"}, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_layout_makes_these_resources(case: str, tmp_path: Path) -> None:
    """The cases of intel.md 2.7, by number of healthy devices."""
    changes, options, expected = CASES[case]
    scan = scanner(planted(tmp_path, "intel-gpu-base", *changes), bypath="none", **options).scan()
    assert healthy(scan) == expected
    assert scan.problems == []
    assert scan.unseen == []


def test_a_card_without_a_drm_directory_is_a_problem(tmp_path: Path) -> None:
    """Others D6: Intel's plugin, which ends its scan there, says so."""
    write_tree(f"{CARD}/vendor = 0x8086", tmp_path)
    scan = scanner(tmp_path).scan()
    assert scan.devices == []
    assert [problem.path for problem in scan.problems] == [f"/{CARD}/drm"]


@pytest.mark.parametrize(
    "tree",
    [
        "sys/",
        "sys/class/drm/card0/",
        "sys/class/drm/non_gpu_card/device/vendor = 0x8086\nsys/class/drm/non_gpu_card/device/drm/card0/",
    ],
)
def test_what_is_no_card_is_nothing(tree: str, tmp_path: Path) -> None:
    """No sysfs, no device, another name: no device and no problem (intel.md 2.7)."""
    write_tree(f"{tree}\ndev/dri/card0 char 226:0", tmp_path)
    scan = scanner(tmp_path, monitoring="single").scan()
    assert (scan.devices, scan.problems, scan.unseen) == ([], [], [])


def test_two_real_cards_make_the_whole_answer(tmp_path: Path) -> None:
    """The last case of intel.md 2.7: nodes, links by path, and a CDI device with the same content."""
    first, second = scanner(planted(tmp_path, "intel-gpu-two-cards")).scan().devices
    by_path = ["/dev/dri/by-path/pci-0042:01:02.0-card", "/dev/dri/by-path/pci-0042:01:02.0-render"]
    own = ["/dev/dri/card0", "/dev/dri/renderD128"]
    assert (first.id, first.resource_name, first.card) == ("card0-0", "gpu.intel.com/i915", "0042:01:02.0")
    assert [(node.host_path, node.container_path, node.permissions) for node in first.nodes] == [
        (path, path, "rw") for path in own
    ]
    assert [(mount.host_path, mount.container_path, mount.read_only) for mount in first.mounts] == [
        (path, path, True) for path in by_path
    ]
    assert (first.envs, first.annotations, first.numa_nodes, first.reasons) == ({}, {}, [1], [])
    assert first.cdi_devices == ["intel.cdi.k8s.io/gpu=card0"]
    assert container_edits(first.specs["intel.cdi.k8s.io/gpu=card0"]) == {
        "deviceNodes": [{"path": path, "permissions": "rw"} for path in own],
        "mounts": [
            {"hostPath": path, "containerPath": path, "options": ["rbind", "rprivate", "ro"]} for path in by_path
        ],
    }
    assert first.attributes == {
        "card": "card0",
        "driver": "i915",
        "pcie_root": "pci0042:01",
        "sriov": "false",
        "pci_address": "0042:01:02.0",
        "pci_class": "0x030000",
        "pci_driver": "i915",
        "vendor_id": "0x8086",
        "device_id": "0x9a49",
        "subsystem_vendor_id": "0x8086",
        "subsystem_device_id": "0x0000",
        "numa_node": "1",
    }
    assert first.sources.keys() == first.attributes.keys()
    assert all((tmp_path / path.removeprefix("/")).exists() for path in first.sources.values())
    assert (second.id, second.resource_name, nodes(second)) == (
        "card1-0",
        "gpu.intel.com/xe",
        ["dri/card1", "dri/renderD129"],
    )
    assert second.numa_nodes == []


@pytest.mark.parametrize(
    ("choice", "mounts"),
    [
        ("single", ["/dev/dri/by-path/pci-0042:01:02.0-card", "/dev/dri/by-path/pci-0042:01:02.0-render"]),
        ("all", ["/dev/dri/by-path"]),
        ("none", []),
    ],
)
def test_links_by_path_are_mounted_as_asked(choice: str, mounts: list[str], tmp_path: Path) -> None:
    """Those of the card, the directory, or none."""
    device = scanner(planted(tmp_path, "intel-gpu-two-cards"), bypath=choice).scan().devices[0]
    assert [mount.host_path for mount in device.mounts] == mounts
    assert all(mount.read_only for mount in device.mounts)
    assert [mount.host_path for mount in device.specs[device.cdi_devices[0]].mounts] == mounts


STALE = "pci-0042:01:02.0-platform-simple-framebuffer.0-card"


def test_a_stale_link_in_by_path_is_left_out_and_told_once(tmp_path: Path) -> None:
    """Defect: containerd finds nothing behind it, makes a directory in its place, and no container starts.

    Seen with Ubuntu 26.04's link of the boot framebuffer: intel-device-plugins-for-kubernetes, issue 2296.
    """
    root = planted(tmp_path, "intel-gpu-two-cards")
    kept = [f"/dev/dri/by-path/pci-0042:01:02.0-{kind}" for kind in ("card", "render")]
    write_tree(f"dev/dri/by-path/{STALE} -> ../card9", root)
    write_tree("dev/dri/by-path/pci-0042:01:02.0-other -> ../card1", root)
    scan = scanner(root).scan()
    first, second = scan.devices
    assert [mount.host_path for mount in first.mounts] == kept
    assert [mount.host_path for mount in first.specs["intel.cdi.k8s.io/gpu=card0"].mounts] == kept
    assert (len(second.mounts), first.reasons, scan.problems) == (2, [], [])
    [note] = scan.not_offered
    assert (note.path, note.device) == ("/dev/dri/by-path", "card0")
    assert note.error == (
        f"the links pci-0042:01:02.0-other -> /dev/dri/card1, {STALE} -> /dev/dri/card9 with the card's address lead to"
        " no node of the card, and no container gets them: remove them"
    )
    (root / "dev/dri/by-path" / STALE).unlink()
    (root / "dev/dri/by-path/pci-0042:01:02.0-other").unlink()
    assert scanner(root).scan().not_offered == []


@pytest.mark.parametrize("choice", ["all", "none"])
def test_a_stale_link_is_not_told_where_no_link_is_given_by_name(choice: str, tmp_path: Path) -> None:
    """The whole directory is there, with whatever is in it."""
    root = planted(tmp_path, "intel-gpu-two-cards", f"dev/dri/by-path/{STALE} -> ../card9")
    assert scanner(root, bypath=choice).scan().not_offered == []


def test_a_link_of_udev_that_comes_after_its_card_is_waited_for(tmp_path: Path) -> None:
    """Defect: nothing told of a link, so a container could be without it until the next regular scan."""
    root = planted(tmp_path, "intel-gpu-two-cards")
    assert str(root / "dev/dri/by-path") in scanner(root).watched_directories()
    assert str(root / "dev/dri/by-path") not in scanner(root, bypath="none").watched_directories()


def test_links_of_another_card_are_not_mounted(tmp_path: Path) -> None:
    """Files of another address are none of the card's, and no problem (intel.md 2.7)."""
    planted(tmp_path, "intel-gpu-two-cards")
    for name in ("card", "render"):
        (tmp_path / f"dev/dri/by-path/pci-0042:01:02.0-{name}").unlink()
    scan = scanner(tmp_path).scan()
    assert ([len(device.mounts) for device in scan.devices], scan.problems) == ([0, 2], [])


@pytest.mark.parametrize(
    "link",
    [
        None,
        "sys/class/drm/card0 -> ../../devices/pci0000:00/0000:0G:00.0/drm/card0",
        "sys/class/drm/card0 -> ../../devices/pci0000:00/0000:00:00.0/gpu/card0",
    ],
)
def test_a_card_without_an_address_is_served_without_links(link: str | None, tmp_path: Path) -> None:
    """A bad address, a link to something else, no link: no mounts, and a problem that says so (intel.md 2.7)."""
    planted(tmp_path, "intel-gpu-base")
    if link is not None:
        target = tmp_path / "sys/devices/pci0000:00" / "/".join(link.split("/")[-3:])
        target.parent.mkdir(parents=True)
        shutil.move(tmp_path / "sys/class/drm/card0", target)
        write_tree(link, tmp_path)
    scan = scanner(tmp_path).scan()
    assert [(device.id, device.card, device.mounts, device.reasons) for device in scan.devices] == [
        ("card0-0", "card0", [], [])
    ]
    assert [problem.device for problem in scan.problems] == ["card0"]
    assert "by-path" in scan.problems[0].error


@pytest.mark.parametrize(
    ("engines", "expected"),
    [
        (("xe.mei-gscfi.1024/mei/mei1",), ["mei1"]),
        (("i915.mei-gsc.768/mei/mei0", "i915.mei-gscfi.768/mei/mei1"), ["mei0", "mei1"]),
    ],
)
def test_monitoring_has_the_nodes_of_the_management_engine(
    engines: tuple[str, ...], expected: list[str], tmp_path: Path
) -> None:
    """One or two MEI nodes a card (intel.md 2.7)."""
    made = [f"{CARD}/{engine}/\ndev/{engine.rpartition('/')[2]} char 238:0" for engine in engines]
    scan = scanner(planted(tmp_path, "intel-gpu-base", *made), monitoring="single", bypath="none").scan()
    monitor = scan.devices[0]
    assert (monitor.id, monitor.resource_name) == ("all", "gpu.intel.com/monitoring")
    assert nodes(monitor) == ["dri/card0", *expected]
    assert (monitor.mounts, monitor.cdi_devices, monitor.numa_nodes) == ([], [], [])


def test_monitoring_lists_only_nodes_that_exist_g14(tmp_path: Path) -> None:
    """Peer defect G14: a node that is not there would keep a monitoring pod from starting; ill cards cost nothing."""
    root = planted(tmp_path, "intel-gpu-base", f"{CARD}/xe.mei-gscfi.1024/mei/mei1/", XE)
    (root / "dev/dri/card1").unlink()
    scan = scanner(root, monitoring="single", bypath="none").scan()
    assert [(device.id, device.reasons) for device in scan.devices] == [
        ("all", []),
        ("card0-0", []),
        ("card1-0", ["node-missing"]),
    ]
    assert nodes(scan.devices[0]) == ["dri/card0"]


def test_any_number_of_changes_is_seen_g1(tmp_path: Path) -> None:
    """Peer defect G1: the second change of the number of cards stops its scan for ever."""
    scans = scanner(planted(tmp_path, "intel-gpu-two-cards"))
    link = tmp_path / "sys/class/drm/card1"
    target = link.readlink()
    for _ in range(5):
        assert len(scans.scan().devices) == 2
        link.unlink()
        assert len(scans.scan().devices) == 1
        link.symlink_to(target)


def test_two_shares_of_a_card_bring_each_node_once_g6(tmp_path: Path) -> None:
    """Peer defect G6: a container with two shares of one card has nodes, mounts and CDI device once."""
    card = scanner(planted(tmp_path, "intel-gpu-two-cards"), shared_devices=2).scan().devices[0]
    assert card.shares == ["card0-0", "card0-1"]
    one, both = (merge([message_of(card.edits)] * number) for number in (1, 2))
    assert both == one
    assert len(both.devices) == 2
    assert len(both.cdi_devices) == 1


def test_the_cdi_device_follows_the_host_g7(tmp_path: Path) -> None:
    """Peer defect G7: edits are those of today's nodes, links and options, not of the first scan."""
    scans = scanner(planted(tmp_path, "intel-gpu-two-cards"))
    before = scans.scan().devices[0].specs
    (tmp_path / "dev/dri/by-path/pci-0042:01:02.0-render").unlink()
    after = scans.scan()
    assert after.changed
    assert len(after.devices[0].specs["intel.cdi.k8s.io/gpu=card0"].mounts) == 1
    assert after.devices[0].specs != before


def test_links_by_path_that_come_late_are_seen_g8(tmp_path: Path) -> None:
    """Peer defect G8: whether there is such a directory is asked in every scan."""
    root = planted(tmp_path, "intel-gpu-two-cards")
    scans = scanner(root)
    shutil.move(root / "dev/dri/by-path", root / "away")
    assert [len(device.mounts) for device in scans.scan().devices] == [0, 0]
    shutil.move(root / "away", root / "dev/dri/by-path")
    assert [len(device.mounts) for device in scans.scan().devices] == [2, 2]


def test_ids_are_compared_whole_g11(tmp_path: Path) -> None:
    """Peer defect G11: `0x56c01` in a list is not `0x56c0`, and `0x56c` is no part of it."""
    root = planted(tmp_path, "intel-gpu-base")
    for listed in ("0x56c01", "0x56c", "56c0"):
        assert healthy(scanner(root, bypath="none", deny_ids=[listed]).scan()) == {"i915": 1}
        assert healthy(scanner(root, bypath="none", allow_ids=[listed]).scan()) == {}


def test_an_unreadable_class_directory_keeps_what_was_known_g12(tmp_path: Path) -> None:
    """Peer defect G12: it is a problem, and no statement about any card."""
    write_tree("sys/class/drm = not a directory", tmp_path)
    scan = scanner(tmp_path).scan()
    assert [(part.vendor, part.card) for part in scan.unseen] == [("intel-gpu", None)]
    assert [problem.path for problem in scan.problems] == ["/sys/class/drm"]


def test_a_card_whose_driver_cannot_be_told_is_called_nothing_g13(tmp_path: Path) -> None:
    """Peer defect G13: it is not guessed to be i915; the other card is served."""
    root = planted(tmp_path, "intel-gpu-base", XE)
    (root / f"{CARD}/driver").unlink()
    scan = scanner(root, bypath="none").scan()
    assert [(device.id, device.resource_name, device.reasons) for device in scan.devices] == [
        ("card0-0", None, ["driver-unbound"]),
        ("card1-0", "gpu.intel.com/xe", []),
    ]
    assert [problem.device for problem in scan.problems] == ["card0"]


def warned(scans: AnsweringScanner) -> list[tuple[str, str, str]]:
    """Device, source and reason of what is seen."""
    return [(look.id, one.source, one.reason) for look in scans.poller.poll() for one in look.findings]


def test_health_needs_no_sidecar_g15(tmp_path: Path) -> None:
    """Peer defect G15: heat, PCI errors and missing nodes are read from the kernel, and taken back when they pass.

    Heat is a warning: a GPU lowers its clocks then, and goes on.
    """
    function = "sys/devices/pci0042:01/0042:01:02.0"
    hwmon = f"{function}/hwmon/hwmon3"
    sensors = f"{hwmon}/temp2_input = 47000\n{hwmon}/temp2_crit = 100000\n{hwmon}/temp1_input = 999000"
    errors = f"{function}/aer_dev_fatal = TOTAL_ERR_FATAL 0\n{function}/aer_dev_nonfatal = TOTAL_ERR_NONFATAL 0"
    scans = scanner(planted(tmp_path, "intel-gpu-two-cards", sensors, errors))
    scans.scan()
    assert scans.poll() == []
    write_tree(f"{hwmon}/temp2_input = 100000", tmp_path)
    assert warned(scans) == [("card0-0", "gpu-temperature", "temperature")]
    write_tree(f"{hwmon}/temp2_input = 95000", tmp_path)
    assert warned(scans) == [("card0-0", "gpu-temperature", "temperature")]
    write_tree(f"{hwmon}/temp2_input = 94999", tmp_path)
    assert scans.poll() == []
    (tmp_path / "dev/dri/renderD129").unlink()
    assert scans.poll() == [("intel-gpu", "0042:01:05.0", "card1-0", ["node-missing"])]
    write_tree(f"{function}/aer_dev_fatal = TOTAL_ERR_FATAL 1", tmp_path)
    assert scans.poll()[0] == ("intel-gpu", "0042:01:02.0", "card0-0", ["pci-aer"])


def test_an_idle_link_is_no_fault(tmp_path: Path) -> None:
    """A GPU slows its link down when it has nothing to do."""
    function = "sys/devices/pci0042:01/0042:01:02.0"
    speeds = f"{function}/max_link_speed = 16.0 GT/s PCIe\n{function}/current_link_speed = 2.5 GT/s PCIe"
    widths = f"{function}/max_link_width = 16\n{function}/current_link_width = 16"
    scans = scanner(planted(tmp_path, "intel-gpu-two-cards", speeds, widths))
    scans.scan()
    assert scans.poll() == []


@pytest.mark.parametrize(
    "change", ["uevent fifo", "uevent =", "uevent binary 0xff*5000", "sriov_numvfs = many", "drm -> drm"]
)
def test_a_card_that_cannot_be_read_costs_no_other(change: str, tmp_path: Path) -> None:
    """One bad file: a problem, what was known of that card stays, the other card is served."""
    function = "sys/devices/pci0042:01/0042:01:02.0"
    root = planted(tmp_path, "intel-gpu-two-cards")
    if change.startswith("drm"):
        shutil.rmtree(root / function / "drm")
    write_tree(f"{function}/{change}", root)
    scan = scanner(root).scan()
    assert [device.id for device in scan.devices] == ["card1-0"]
    assert not_examined(scan) == [("0042:01:02.0", None)]
    assert len(scan.problems) == 1


def test_a_driver_that_loads_late_is_seen(tmp_path: Path) -> None:
    """A scanner that found nothing finds the cards once they are there."""
    write_tree("sys/class/", tmp_path)
    scans = scanner(tmp_path)
    assert scans.scan().devices == []
    planted(tmp_path, "intel-gpu-two-cards")
    assert len(scans.scan().devices) == 2


FAKE = """
sys/class/drm/card0/lmem_total_bytes = 4294967296
sys/class/drm/card0/device/drm/card0/
sys/class/drm/card0/device/drm/renderD128/
sys/class/drm/card0/device/vendor = 0x8086
sys/class/drm/card0/device/numa_node = 1
sys/class/drm/card0/gt/gt0/
dev/dri/card0 char 1:3
dev/dri/renderD128 char 1:3
"""


def test_the_trees_of_intels_own_tool_are_served_as_its_plugin_does_w7(tmp_path: Path) -> None:
    """A card with neither device id nor driver, as gpu_fakedev makes them: the plugin takes it for one of i915."""
    write_tree(FAKE, tmp_path)
    scan = scanner(tmp_path, monitoring="split").scan()
    assert (scan.problems, scan.unseen) == ([], [])
    assert healthy(scan) == {"i915": 1, "i915_monitoring": 1}
    [device] = [device for device in scan.devices if device.id == "card0-0"]
    assert (nodes(device), device.numa_nodes) == (["dri/card0", "dri/renderD128"], [1])


def test_a_list_of_ids_cannot_be_applied_to_a_card_without_one_and_says_so_w7(tmp_path: Path) -> None:
    """The plugin skips such a card with a warning."""
    write_tree(FAKE, tmp_path)
    scan = scanner(tmp_path, allow_ids=["0x4905"]).scan()
    assert scan.devices == []
    assert [(problem.path, "device id is unknown" in problem.error) for problem in scan.problems] == [
        ("/sys/class/drm/card0/device/device", True)
    ]


def test_a_class_entry_that_links_to_itself_is_a_problem_w7(tmp_path: Path) -> None:
    """It is in the class, so somebody meant a card."""
    write_tree("sys/class/drm/card0 -> card0\n", tmp_path)
    scan = scanner(tmp_path).scan()
    assert scan.devices == []
    assert [problem.path for problem in scan.problems] == ["/sys/class/drm/card0/device/vendor"]


def test_a_file_in_place_of_the_directory_of_nodes_is_a_problem_w7(tmp_path: Path) -> None:
    """It is no card without nodes, which is left out without a word."""
    write_tree(f"{CARD}/vendor = 0x8086\n{CARD}/drm = x\n", tmp_path)
    scan = scanner(tmp_path).scan()
    assert scan.devices == []
    assert [problem.path for problem in scan.problems] == [f"/{CARD}/drm"]


def test_xe_as_the_kernel_lays_it_out_is_two_gpus_with_the_sensors_of_one(tmp_path: Path) -> None:
    """Tiles, engines and connectors below a card are none; what is no GPU is passed over."""
    root = planted(tmp_path, "intel-gpu-xe")

    scans = scanner(root, monitoring="single")
    scan = scans.scan()

    assert scan.problems == []
    assert healthy(scan) == {"xe": 2, "monitoring": 1}
    gpus = {device.card: nodes(device) for device in scan.devices if device.resource_name == "gpu.intel.com/xe"}
    assert gpus == {"0000:00:02.0": ["dri/card0", "dri/renderD128"], "0000:03:00.0": ["dri/card1", "dri/renderD129"]}
    [monitor] = [device for device in scan.devices if device.resource_name == "gpu.intel.com/monitoring"]
    assert sorted(nodes(monitor)) == ["dri/card0", "dri/card1", "dri/renderD128", "dri/renderD129", "mei1"]
    assert scans.poll() == []


def test_a_sensor_of_such_a_card_beyond_its_limit_is_that_cards_alone(tmp_path: Path) -> None:
    """The vram of the Arc, whose limit is lower than its package's."""
    root = planted(tmp_path, "intel-gpu-xe")
    scans = scanner(root)
    scans.scan()
    [sensor] = (root / "sys/devices").rglob("temp3_input")

    sensor.write_text("106000\n")

    [look] = scans.poller.poll()
    assert (look.card, [finding.reason for finding in look.findings]) == ("0000:03:00.0", ["temperature"])
