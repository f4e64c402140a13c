"""Hosts with NVIDIA GPUs that no preset has: odd drivers, odd orders, boards without procfs."""

import shutil
from pathlib import Path

import pytest
from answering import not_examined
from nvidia_host import UUIDS, by_index, by_resource, card, complaints, node_paths, planted, scanned, scanner

TEGRA = "etc/nv_tegra_release = # R36 (release), REVISION: 4.0\ndev/nvgpu/igpu0/ctrl char 507:1"
WSL = """
usr/lib/wsl/lib/libdxcore.so ==
usr/lib/wsl/lib/libnvidia-ml.so.1 ==
dev/dxg char 10:63
"""


def test_the_index_follows_the_pci_order_and_not_the_minor(tmp_path: Path):
    """The first GPU on the bus is 0, whatever the driver numbered first."""
    planted(
        tmp_path,
        card("0000:03:00.0", 2, uuid=UUIDS[0]),
        card("0000:0a:00.0", 0, uuid=UUIDS[1]),
        card("0001:01:00.0", 1, uuid=UUIDS[2]),
    )
    devices = by_index(scanned(tmp_path, pass_device_specs=True))
    assert {index: (device.id, node_paths(device)[-1]) for index, device in devices.items()} == {
        "0": (UUIDS[0], "/dev/nvidia2"),
        "1": (UUIDS[1], "/dev/nvidia0"),
        "2": (UUIDS[2], "/dev/nvidia1"),
    }


@pytest.mark.parametrize("line", ["GPU Excluded:\t Yes", "Blacklisted:\t Yes"])
def test_an_excluded_gpu_is_neither_served_nor_counted(line: str, tmp_path: Path):
    """By new and old drivers' word; NVML does not count it either."""
    planted(tmp_path, card("0000:03:00.0", 0, line, uuid=UUIDS[0]), card("0000:04:00.0", 1, uuid=UUIDS[1]))
    scan = scanned(tmp_path)
    assert [(device.id, device.attributes["index"]) for device in scan.devices] == [(UUIDS[1], "0")]
    assert scan.problems == []


def test_an_excluded_gpu_is_not_counted_while_it_cannot_be_read(tmp_path: Path):
    """Another's index does not move because the driver is slow to answer."""
    excluded = "proc/driver/nvidia/gpus/0000:03:00.0/information"
    planted(
        tmp_path,
        card("0000:03:00.0", 0, "GPU Excluded: Yes", uuid=UUIDS[0]),
        card("0000:04:00.0", 1, uuid=UUIDS[1]),
    )
    looking = scanner(tmp_path)
    looking.scan()
    (tmp_path / excluded).unlink()
    (tmp_path / excluded).mkdir()
    scan = looking.scan()
    assert [device.attributes["index"] for device in scan.devices] == ["0"]
    assert len(scan.problems) == 1


@pytest.mark.parametrize("model", ["DGX Display", "NVIDIA DGX Display"])
def test_the_display_of_a_dgx_station_is_no_gpu_for_pods(model: str, tmp_path: Path):
    """It is counted, as NVML does, and not advertised."""
    planted(
        tmp_path,
        card("0000:03:00.0", 0, uuid=UUIDS[0], model=model),
        card("0000:04:00.0", 1, uuid=UUIDS[1], model="NVIDIA A100-SXM4-80GB"),
    )
    scan = scanned(tmp_path)
    assert [(device.id, device.attributes["index"]) for device in scan.devices] == [(UUIDS[1], "1")]
    assert scan.problems == []


@pytest.mark.parametrize("uuid", ["GPU-????????-????-????-????-????????????", "", "N/A"])
def test_a_placeholder_is_no_uuid(uuid: str, tmp_path: Path):
    """No device has an invalid id."""
    planted(tmp_path, card("0000:03:00.0", 0, f"GPU UUID: \t {uuid}", "Video BIOS: \t ??.??.??.??.??"))
    scan = scanned(tmp_path)
    assert scan.devices == []
    assert "not been initialised" in complaints(scan)[0]


def test_a_gpu_that_was_never_opened_is_served_where_its_uuid_is_known(tmp_path: Path):
    """A placeholder VBIOS says no more than that."""
    planted(tmp_path, card("0000:03:00.0", 0, "Video BIOS: \t ??.??.??.??.??", uuid=UUIDS[0]))
    (device,) = scanned(tmp_path).devices
    assert (device.id, device.reasons) == (UUIDS[0], [])
    assert "video_bios" not in device.attributes


def test_an_old_driver_says_less(tmp_path: Path):
    """No capabilities, no power state, no version: what there is is told."""
    planted(tmp_path, card("0000:03:00.0", 0, uuid=UUIDS[0], model="Tesla K80"))
    (device,) = scanned(tmp_path, mig_strategy="mixed").devices
    assert (device.resource_name, device.numa_nodes) == ("nvidia.com/gpu", [0])
    assert device.attributes == {
        "pcie_root": "pci0000:00",
        "pci_address": "0000:03:00.0",
        "pci_driver": "nvidia",
        "pci_class": "0x030200",
        "vendor_id": "0x10de",
        "device_id": "0x27b8",
        "numa_node": "0",
        "model": "Tesla K80",
        "uuid": UUIDS[0],
        "gpu_uuid": UUIDS[0],
        "minor": "0",
        "index": "0",
        "gpu_index": "0",
        "mode": "compute",
    }
    assert device.sources.keys() == device.attributes.keys()
    assert all((tmp_path / source.removeprefix("/")).exists() for source in device.sources.values())


def test_a_numa_node_of_minus_one_is_none(tmp_path: Path):
    """It is left out, as the peer does."""
    function = "sys/devices/pci0000:00/0000:00:01.0/0000:03:00.0"
    planted(tmp_path, card("0000:03:00.0", 0, uuid=UUIDS[0]), f"{function}/numa_node = -1")
    assert scanned(tmp_path).devices[0].numa_nodes == []


def test_what_nvml_told_of_another_gpu_in_the_slot_does_not_count(tmp_path: Path):
    """A card was exchanged since NVML was asked."""
    gpu = '{"pci_address": "0000:03:00.0", "index": 5, "uuid": "GPU-0", "memory_bytes": 1, "minor": 9}'
    told = f'{{"facts": {{"gpus": [{gpu}]}}}}'
    planted(tmp_path, card("0000:03:00.0", 0, uuid=UUIDS[0]), f".devherd-nvml.json = {told}")
    (device,) = scanned(tmp_path).devices
    assert (device.id, device.attributes["index"]) == (UUIDS[0], "0")
    assert "memory_bytes" not in device.attributes


def test_nvml_tells_a_uuid_that_the_driver_does_not(tmp_path: Path):
    """And it is where the attribute says it is from."""
    gpu = f'{{"pci_address": "0000:03:00.0", "index": 0, "uuid": "{UUIDS[3]}"}}'
    told = f'{{"facts": {{"gpus": [{gpu}]}}}}'
    planted(tmp_path, card("0000:03:00.0", 0), f".devherd-nvml.json = {told}")
    (device,) = scanned(tmp_path).devices
    assert (device.id, device.sources["uuid"], device.envs) == (
        UUIDS[3],
        "NVML",
        {"NVIDIA_VISIBLE_DEVICES": UUIDS[3]},
    )
    assert scanned(tmp_path, device_discovery_strategy="procfs").devices == []


def test_a_tegra_board_is_one_device_without_paths(tmp_path: Path):
    """As the vendor's plugin has it: no node, no NUMA node."""
    lists = "etc/nvidia-container-runtime/host-files-for-container.d"
    listed = f"{lists}/devices.csv = dev, /dev/nvgpu/igpu0/ctrl"
    planted(tmp_path, TEGRA, "proc/device-tree/model == NVIDIA Jetson AGX Orin", listed)
    (device,) = scanned(tmp_path).devices
    assert (device.id, device.resource_name, device.numa_nodes, device.nodes) == ("tegra", "nvidia.com/gpu", [], [])
    assert device.envs == {"NVIDIA_VISIBLE_DEVICES": "tegra"}
    assert device.attributes["model"] == "NVIDIA Jetson AGX Orin"
    (by_place,) = scanned(tmp_path, device_id_strategy="index", device_list_strategy=["cdi-cri", "envvar"]).devices
    assert by_place.envs == {"NVIDIA_VISIBLE_DEVICES": "0"}
    assert by_place.cdi_devices == ["k8s.device-plugin.nvidia.com/gpu=0"]


def test_a_tegra_board_is_unhealthy_without_its_nodes(tmp_path: Path):
    """N36: the peer has no health there at all."""
    looking = scanner(planted(tmp_path, TEGRA))
    assert looking.scan().devices[0].reasons == []
    (tmp_path / "dev/nvgpu/igpu0/ctrl").unlink()
    assert looking.poll() == [("nvidia", "tegra", "tegra", ["node-missing"])]
    assert looking.scan().devices[0].reasons == ["node-missing"]


def test_a_card_in_a_tegra_board_counts_for_more(tmp_path: Path):
    """Only where the GPU in the chip is all there is, the board is one device; `tegra` insists."""
    planted(tmp_path, TEGRA, card("0000:03:00.0", 0, uuid=UUIDS[0]))
    assert [device.id for device in scanned(tmp_path).devices] == [UUIDS[0]]
    assert [device.id for device in scanned(tmp_path, device_discovery_strategy="tegra").devices] == ["tegra"]
    assert [device.id for device in scanned(tmp_path, device_discovery_strategy="nvml").devices] == [UUIDS[0]]


def test_a_tegra_family_will_do_and_the_gpu_in_the_chip_may_be_listed(tmp_path: Path):
    """Thor's driver lists its GPU as it would a card."""
    thor = card("0000:03:00.0", 0, uuid=UUIDS[0], model="NVIDIA Thor")
    planted(tmp_path, "sys/devices/soc0/family = Tegra", thor)
    assert [device.id for device in scanned(tmp_path).devices] == ["tegra"]


def test_mig_devices_of_a_gpu_within_the_chip_are_told_and_not_passed_over(tmp_path: Path):
    """Defect: they were passed over in silence. NVIDIA's plugin has none either: k8s-device-plugin issue 1975."""
    thor = card("0000:03:00.0", 0, uuid=UUIDS[0], model="NVIDIA Thor")
    mig = "proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access = DeviceFileMinor: 12"
    planted(tmp_path, "sys/devices/soc0/family = Tegra", thor, mig)
    scan = scanned(tmp_path, mig_strategy="mixed")
    assert [device.id for device in scan.devices] == ["tegra"]
    [problem] = scan.problems
    assert (problem.device, problem.path) == ("0000:03:00.0", "/proc/driver/nvidia/gpus/0000:03:00.0/information")
    assert problem.error.startswith("the MIG devices of a GPU within the chip are not advertised")
    assert scanned(tmp_path, mig_strategy="none").problems == []


def test_windows_has_one_device_for_all_its_gpus(tmp_path: Path):
    """WSL: `all`, behind /dev/dxg, which is also its health (N36)."""
    looking = scanner(planted(tmp_path, WSL), pass_device_specs=True)
    (device,) = looking.scan().devices
    assert (device.id, device.resource_name, node_paths(device)) == ("all", "nvidia.com/gpu", ["/dev/dxg"])
    assert (device.envs, device.reasons) == ({"NVIDIA_VISIBLE_DEVICES": "all"}, [])
    (tmp_path / "dev/dxg").unlink()
    assert looking.poll() == [("nvidia", "wsl", "all", ["node-missing"])]


def test_windows_without_a_driver_of_nvidia_has_none(tmp_path: Path):
    """Any vendor's GPU has /dev/dxg."""
    planted(tmp_path, WSL)
    (tmp_path / "usr/lib/wsl/lib/libnvidia-ml.so.1").unlink()
    assert scanned(tmp_path).devices == []


def test_a_host_without_the_driver_has_nothing(tmp_path: Path):
    """No device, no problem."""
    scan = scanned(planted(tmp_path, "sys/bus/pci/devices/"))
    assert (by_resource(scan), scan.problems, scan.unseen) == ({}, [], [])


def test_a_directory_that_cannot_be_listed_keeps_what_was_known(tmp_path: Path):
    """It is a problem, and no GPU is taken for removed."""
    planted(tmp_path, card("0000:03:00.0", 0, uuid=UUIDS[0]))
    looking = scanner(tmp_path)
    looking.scan()
    shutil.rmtree(tmp_path / "proc/driver/nvidia/gpus")
    (tmp_path / "proc/driver/nvidia/gpus").symlink_to("gpus")
    scan = looking.scan()
    assert not_examined(scan) == [(None, None)]
    assert len(complaints(scan)) == 1
