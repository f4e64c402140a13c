"""Whole host trees through the scan core: what each layout of an Intel FPGA must make in each mode."""

import shutil
from pathlib import Path

import pytest
from answering import AnsweredScan, AnsweringScanner, core_settings
from not_tested import not_tested

from devherd._native import Scanner
from devherd.cdi import container_edits
from devherd_sim.node.tree import write_tree

TREES = Path(__file__).parent / "trees"

IF = "69528db6eb31577a8c3668f9faa081f6"
IF2 = "ce48969398f05f33946d560708be108a"
A1 = "d8424dc4a4a3c413f89e433683f9040b"
FF = "f" * 32
IF_A1 = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
IF_A2 = "fpga.intel.com/af-695.f7d.aVKNtusxV3qMNmj5-qCB9vffQFy9es9yIvFEsLk6zRg"
IF_FF = "fpga.intel.com/af-695.fff.aVKNtusxV3qMNmj5-qCB9v____________________8"
REGION = f"fpga.intel.com/region-{IF}"

CARD = "sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0"
DFL_PORT = f"{CARD}/fpga_region/region0/dfl-port.0"
DFL_FME = f"{CARD}/fpga_region/region0/dfl-fme.0"


def simulated_scanner(root: Path) -> AnsweringScanner:
    """The scan core with the defaults, before a simulated node."""
    return AnsweringScanner(str(root), core_settings(root))


def scanned(root: Path, mode: str = "af") -> AnsweredScan:
    """One scan of the tree for Intel FPGAs."""
    return AnsweringScanner(str(root), core_settings(root, intel_fpga={"mode": mode})).scan()


def nodes_by_resource(scan: AnsweredScan) -> dict[str, dict[str, list[str]]]:
    """Resource name → device id → names of its nodes."""
    resources: dict[str, dict[str, list[str]]] = {}
    for device in scan.devices:
        names = [node.host_path.removeprefix("/dev/") for node in device.nodes]
        resources.setdefault(str(device.resource_name), {})[device.id] = names
    return resources


def planted(root: Path, name: str, *changes: str) -> Path:
    """The named tree below `root`, with later lines in place of earlier ones."""
    write_tree((TREES / f"{name}.tree").read_text(), root)
    for change in changes:
        write_tree(change, root)
    return root


LAYOUTS = {
    ("dfl-two-cards", "af"): {IF_A1: {"dfl-port.0": ["dfl-port.0"]}, IF_A2: {"dfl-port.1": ["dfl-port.1"]}},
    ("dfl-two-cards", "region"): {REGION: {"dfl-fme.0": ["dfl-port.0"], "dfl-fme.1": ["dfl-port.1"]}},
    ("dfl-two-cards", "regiondevel"): {
        REGION: {"dfl-fme.0": ["dfl-port.0", "dfl-fme.0"], "dfl-fme.1": ["dfl-port.1", "dfl-fme.1"]}
    },
    ("dfl-without-links", "af"): {IF_A1: {"dfl-port.0": ["dfl-port.0"]}, IF_A2: {"dfl-port.1": ["dfl-port.1"]}},
    ("dfl-without-links", "region"): {REGION: {"dfl-fme.0": ["dfl-port.0"], "dfl-fme.1": ["dfl-port.1"]}},
    ("dfl-two-ports", "af"): {IF_A1: {"dfl-port.0": ["dfl-port.0"]}, IF_A2: {"dfl-port.1": ["dfl-port.1"]}},
    ("dfl-two-ports", "region"): {REGION: {"dfl-fme.0": ["dfl-port.0", "dfl-port.1"]}},
    ("dfl-two-ports", "regiondevel"): {REGION: {"dfl-fme.0": ["dfl-port.0", "dfl-port.1", "dfl-fme.0"]}},
    ("dfl-two-vfs", "af"): {IF_A1: {"dfl-port.0": ["dfl-port.0"]}, IF_A2: {"dfl-port.1": ["dfl-port.1"]}},
    ("dfl-two-vfs", "region"): {REGION: {"dfl-fme.0": ["dfl-port.0", "dfl-port.1"]}},
    ("dfl-foreign-regions", "af"): {},
    ("dfl-foreign-regions", "region"): {},
    ("opae-two-cards", "af"): {
        IF_A1: {"intel-fpga-port.0": ["intel-fpga-port.0"]},
        IF_A2: {"intel-fpga-port.1": ["intel-fpga-port.1"]},
    },
    ("opae-two-cards", "region"): {
        REGION: {"intel-fpga-fme.0": ["intel-fpga-port.0"], "intel-fpga-fme.1": ["intel-fpga-port.1"]}
    },
    ("opae-two-cards", "regiondevel"): {
        REGION: {
            "intel-fpga-fme.0": ["intel-fpga-port.0", "intel-fpga-fme.0"],
            "intel-fpga-fme.1": ["intel-fpga-port.1", "intel-fpga-fme.1"],
        }
    },
    ("opae-sriov", "af"): {
        IF_A1: {"intel-fpga-port.0": ["intel-fpga-port.0"]},
        IF_A2: {"intel-fpga-port.2": ["intel-fpga-port.2"]},
    },
    ("opae-sriov", "region"): {
        REGION: {"intel-fpga-fme.0": ["intel-fpga-port.0"], "intel-fpga-fme.1": ["intel-fpga-port.2"]}
    },
    ("both-drivers", "af"): {IF_A1: {"dfl-port.0": ["dfl-port.0"], "intel-fpga-port.0": ["intel-fpga-port.0"]}},
    ("both-drivers", "regiondevel"): {
        REGION: {
            "dfl-fme.0": ["dfl-port.0", "dfl-fme.0"],
            "intel-fpga-fme.0": ["intel-fpga-port.0", "intel-fpga-fme.0"],
        }
    },
}


@pytest.mark.parametrize(("tree", "mode"), LAYOUTS, ids=lambda value: value)
def test_a_layout_makes_these_devices_and_no_problem(tree: str, mode: str, tmp_path: Path) -> None:
    """Every layout that exists gives all its devices, Healthy, under the vendor plugin's names."""
    scan = scanned(planted(tmp_path, tree), mode)
    assert nodes_by_resource(scan) == LAYOUTS[tree, mode]
    assert [(device.id, device.reasons) for device in scan.devices if device.reasons] == []
    assert scan.problems == []
    assert scan.unseen == []


def test_a_device_tells_its_facts_and_where_they_were_read(tmp_path: Path) -> None:
    """Attributes are in the vendor's words, and every one names a file of the host."""
    device = scanned(planted(tmp_path, "dfl-two-cards")).devices[0]
    assert device.attributes == {
        "driver": "dfl",
        "pcie_root": "pci0000:80",
        "pci_address": "0000:81:00.0",
        "pci_class": "0x120000",
        "pci_driver": "dfl-pci",
        "vendor_id": "0x8086",
        "device_id": "0x0b30",
        "subsystem_vendor_id": "0x8086",
        "subsystem_device_id": "0x0000",
        "numa_node": "1",
        "port": "dfl-port.0",
        "port_id": "0",
        "afu_id": A1,
        "fme": "dfl-fme.0",
        "bitstream_id": "0x23000110010309",
        "interface_id": IF,
    }
    assert device.sources.keys() == device.attributes.keys()
    assert all((tmp_path / path.removeprefix("/")).exists() for path in device.sources.values())
    assert device.sources["afu_id"] == f"/{DFL_PORT}/afu_id"
    assert device.sources["device_id"] == f"/{CARD}/uevent"
    assert device.numa_nodes == [1]
    assert device.card == "0000:81:00.0"


def test_region_mode_names_its_hook(tmp_path: Path) -> None:
    """Region mode answers with exactly one annotation and a CDI device whose only edit is the vendor's hook."""
    device = scanned(planted(tmp_path, "dfl-two-cards"), "region").devices[0]
    assert device.annotations == {"com.intel.fpga.mode": "fpga.intel.com/region"}
    assert device.cdi_devices == ["intel.cdi.k8s.io/fpga=dfl-fme.0"]
    hook = {"hookName": "createRuntime", "path": "/opt/intel/fpga-sw/intel-fpga-crihook"}
    assert container_edits(device.specs[device.cdi_devices[0]]) == {"hooks": [hook]}


@pytest.mark.parametrize(
    ("change", "name", "first_sight", "reasons"),
    [
        (f"{DFL_PORT}/afu_id = {A1.upper()}", IF_A1, None, []),
        (f"{DFL_PORT}/afu_id = {FF}", None, IF_FF, ["port-error"]),
        (f"{DFL_PORT}/afu_id = {'0' * 32}", None, None, ["unprogrammed"]),
        (f"{DFL_PORT}/afu_id = not an id", None, None, ["port-error"]),
        (f"{DFL_PORT}/afu_id binary 0xff*5000", None, None, ["port-error"]),
        (f"{DFL_PORT}/afu_id fifo", None, None, ["port-error"]),
        (f"{DFL_PORT}/afu_id -> afu_id", None, None, ["port-error"]),
        (f"{DFL_PORT}/driver -> /\n{DFL_PORT}/afu_id -> nowhere", None, None, ["unprogrammed"]),
        ("dev/dfl-port.0 char 1:3", IF_A1, None, ["node-missing"]),
        (f"{DFL_FME}/dfl-fme-region.0/fpga_region/region1/compat_id ==", None, None, ["fme-error"]),
        (f"{DFL_FME}/dfl-fme-region.0/fpga_region/region4/compat_id = {IF2}", IF_A1, None, []),
    ],
)
def test_a_damaged_port_is_unhealthy_and_costs_no_sibling(
    change: str, name: str | None, first_sight: str | None, reasons: list[str], tmp_path: Path
) -> None:
    """One port's trouble is that port's alone; a name is never made up for it."""
    if "char" in change and not _may_make_nodes(tmp_path):
        not_tested("making device nodes is not permitted here")
    scan = scanned(planted(tmp_path / "node", "dfl-two-cards", change))
    damaged, sibling = scan.devices
    assert (damaged.resource_name, damaged.first_sight_resource_name, damaged.reasons) == (name, first_sight, reasons)
    assert (sibling.resource_name, sibling.reasons) == (IF_A2, [])
    assert all(problem.device == "dfl-port.0" for problem in scan.problems)
    assert bool(scan.problems) == (name is None and first_sight is None)


def test_a_missing_interface_id_names_the_modules_to_load(tmp_path: Path) -> None:
    """The DFL modules that show the interface id are named in the problem, and the other card is served."""
    planted(tmp_path, "dfl-two-cards")
    (tmp_path / DFL_FME / "dfl-fme-region.0/fpga_region/region1/compat_id").unlink()
    scan = scanned(tmp_path)
    assert [problem.device for problem in scan.problems] == ["dfl-port.0"]
    assert "dfl_fme_region, dfl_fme_mgr and dfl_fme_br" in scan.problems[0].error
    assert nodes_by_resource(scan)[IF_A2] == {"dfl-port.1": ["dfl-port.1"]}


@pytest.mark.parametrize("mode", ["af", "region", "regiondevel"])
def test_a_port_without_its_own_driver_names_the_module_to_load(tmp_path: Path, mode: str) -> None:
    """Defect: `the port has no accelerator function`, or that its node is missing; `dfl_afu` is not loaded."""
    planted(tmp_path, "dfl-two-cards")
    (tmp_path / DFL_PORT / "afu_id").unlink()
    scan = scanned(tmp_path, mode)
    [problem] = scan.problems
    assert (problem.device, problem.error) == (
        "dfl-port.0",
        "the port has no driver: load the kernel module dfl_afu",
    )
    assert [device.reasons for device in scan.devices] == [["driver-unbound"], []]


def test_an_engine_without_its_own_driver_names_the_module_to_load(tmp_path: Path) -> None:
    """Not those of its regions, which it makes."""
    planted(tmp_path, "dfl-two-cards")
    shutil.rmtree(tmp_path / DFL_FME)
    (tmp_path / DFL_FME).mkdir()
    [problem] = scanned(tmp_path).problems
    assert problem.error == "no interface id: the FME has no driver: load the kernel module dfl_fme"


@pytest.mark.parametrize("mode", ["af", "region", "regiondevel"])
def test_an_engine_without_port_is_told_in_each_mode(tmp_path: Path, mode: str) -> None:
    """Defect: mode `af` was silent. Where virtual functions are on, the ports may be with a virtual machine."""
    planted(tmp_path, "dfl-two-cards")
    shutil.rmtree(tmp_path / DFL_PORT)
    scan = scanned(tmp_path, mode)
    [problem] = scan.problems
    assert (problem.device, problem.path) == ("dfl-fme.0", f"/{DFL_FME}")
    assert problem.error.startswith("no port belongs to this FME, so it has nothing to allocate")
    assert len(scan.devices) == 1
    write_tree(f"{CARD}/sriov_numvfs = 1", tmp_path)
    assert bool(scanned(tmp_path, mode).problems) == (mode != "af")


def test_regions_with_different_ids_are_named_and_none_is_chosen(tmp_path: Path) -> None:
    """Two interface ids under one FME are a problem that names both files."""
    second = f"{DFL_FME}/dfl-fme-region.1/fpga_region/region2/compat_id"
    scan = scanned(planted(tmp_path, "dfl-two-ports", f"{second} = {IF2}"), "region")
    assert nodes_by_resource(scan) == {"None": {"dfl-fme.0": ["dfl-port.0", "dfl-port.1"]}}
    assert scan.devices[0].reasons == ["fme-error"]
    assert f"{IF2} in /{second}" in scan.problems[0].error
    assert "region1/compat_id" in scan.problems[0].error


def test_a_function_of_another_class_is_a_problem_and_the_rest_is_served(tmp_path: Path) -> None:
    """The PCI class is the one filter, and it costs only the card that fails it."""
    scan = scanned(planted(tmp_path, "dfl-two-cards", f"{CARD}/uevent = PCI_CLASS=30000"))
    assert nodes_by_resource(scan) == {IF_A2: {"dfl-port.1": ["dfl-port.1"]}}
    assert [problem.path for problem in scan.problems] == [f"/{CARD}/uevent"]
    assert "0x030000" in scan.problems[0].error


def test_a_driver_that_loads_late_is_seen_by_the_same_scanner(tmp_path: Path) -> None:
    """A scanner that found nothing finds the cards once they are there, and says when nothing has changed."""
    write_tree("sys/class/", tmp_path)
    scanner = simulated_scanner(tmp_path)
    first, again = scanner.scan(), scanner.scan()
    assert (first.devices, first.problems, first.changed, again.changed) == ([], [], True, False)
    planted(tmp_path, "opae-two-cards")
    assert [device.id for device in scanner.scan().devices] == ["intel-fpga-port.0", "intel-fpga-port.1"]


def test_a_reprogrammed_port_changes_its_name_and_no_other(tmp_path: Path) -> None:
    """Loading another function moves the port and leaves its sibling as it was."""
    scanner = simulated_scanner(planted(tmp_path, "dfl-two-ports"))
    before = scanner.scan()
    write_tree(f"{DFL_PORT}/afu_id = f7df405cbd7acf7222f144b0b93acd18", tmp_path)
    after = scanner.scan()
    assert after.changed
    assert [device.resource_name for device in before.devices] == [IF_A1, IF_A2]
    assert [device.resource_name for device in after.devices] == [IF_A2, IF_A2]
    assert before.devices[1] == after.devices[1]


def test_health_polling_sees_what_the_card_says_and_takes_it_back(tmp_path: Path) -> None:
    """Port and FME errors, heat and a missing node are told by name, and only while they last."""
    scanner = simulated_scanner(planted(tmp_path, "dfl-two-cards"))
    scanner.scan()
    assert scanner.poll() == []
    for change, reason in [
        (f"{DFL_PORT}/errors/errors = 0x20", "port-error"),
        (f"{DFL_FME}/errors/catfatal_errors = 0x1", "fme-error"),
        (f"{DFL_FME}/hwmon/hwmon0/temp1_input = 100000", "temperature"),
        (f"{DFL_FME}/hwmon/hwmon0/temp1_crit_alarm = 1", "temperature"),
    ]:
        place = tmp_path / change.split(" = ")[0]
        good = place.read_text()
        write_tree(change, tmp_path)
        assert scanner.poll() == [("intel-fpga", "0000:81:00.0", "dfl-port.0", [reason])]
        write_tree(f"{place.relative_to(tmp_path)} = {good.strip()}", tmp_path)
        assert scanner.poll() == []
    (tmp_path / "dev/dfl-port.1").unlink()
    assert scanner.poll() == [("intel-fpga", "0000:42:00.0", "dfl-port.1", ["node-missing"])]


@pytest.mark.parametrize(
    "settings", ["", "{", '"af"', '{"probe_timeout": -1}', '{"vendors": {"intel_fpga": {"mode": "x"}}}']
)
def test_settings_that_do_not_fit_are_refused(settings: str) -> None:
    """The scan core says what it cannot use."""
    with pytest.raises(ValueError, match=r"\w"):
        Scanner("/", settings)


def _may_make_nodes(directory: Path) -> bool:
    write_tree("probe char 1:3", directory / "may")
    return (directory / "may/probe").is_char_device()
