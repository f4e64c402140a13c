"""What a driver says of a function that becomes no device stands in the problem: through the scanner and a scan."""

import json
import time
from pathlib import Path

import pytest

from devherd._native import KernelLogEvent
from devherd.config.loader import load, resolve
from devherd.config.resolved import ResolvedConfig
from devherd.health.kernel_log import MOST_LAST_WORDS, LastWords
from devherd.reasons.kernel_log_rules import QUOTED
from devherd.scanner.files import ScannerFiles
from devherd.scanner.once import scan_once
from devherd_sim.node import faults
from devherd_sim.node.amd import AmdSpec
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.presets import PRESETS
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec

# https://github.com/awslabs/amazon-eks-ami/issues/2768
OPEN_MODULES = (
    "NVRM: The NVIDIA GPU {} (PCI ID: 10de:2bb1)\n"
    "NVRM: installed in this system requires use of the NVIDIA open kernel modules."
)
FAILED = "NVRM: GPU {}: RmInitAdapter failed! (0x22:0x56:884)"
FAILED_ALSO = "NVRM: GPU {}: rm_init_adapter failed, device minor number 0"
# https://github.com/NixOS/nixos-hardware/issues/1880
LEGACY = (
    "NVRM: The NVIDIA Tesla P100-PCIE-16GB GPU installed in this system is\nNVRM:  supported through the NVIDIA 580.xx "
    "Legacy drivers. Please\nNVRM:  visit http://www.nvidia.com/object/unix.html for more"
)


class Node:
    """A simulated node, and a scanner of it that may be killed and started again."""

    def __init__(self, directory: Path, spec: NodeSpec) -> None:
        self._directory = directory
        (directory / "run/offers/device-plugin").mkdir(parents=True)
        self.node = SimulatedNode.create(directory / "host", spec)
        self.files: ScannerFiles

    @property
    def config(self) -> ResolvedConfig:
        file = self._directory / "config.yaml"
        file.write_text(json.dumps({"host_root": str(self.node.root)}))
        return resolve(load({"config": str(file), "run_dir": str(self._directory / "run")}, {}))

    def start(self) -> "Node":
        config = self.config
        self.files = ScannerFiles(config, config.settings())
        self.files.observer.scan(time.monotonic())
        return self.hear()

    def hear(self) -> "Node":
        while self.files.observer.read_kernel_log():
            pass
        self.files.publish()
        return self

    def say(self, *texts: str, at: str = "", **more: float) -> None:
        for text in texts:
            self.node.kernel_log.write(text.format(at), **more)

    def problems(self) -> dict[str, str]:
        return {problem.device: problem.error for problem in self.files.observer.scan_problems}


def test_why_the_driver_cannot_start_a_gpu_stands_in_place_of_the_advice_to_open_it(tmp_path: Path) -> None:
    """Defect: `run nvidia-smi once`, which is what has just failed; the driver's own words were dropped."""
    node = Node(tmp_path, NodeSpec(nvidia=NvidiaSpec(gpus=2, uninitialised=[1])))
    _, address = node.node.nvidia.addresses()
    assert node.start().problems()[address].endswith(": start nvidia-persistenced, or run nvidia-smi once")

    node.say(OPEN_MODULES, FAILED, FAILED_ALSO, at=address)
    expected = (
        "the GPU has not been initialised and its UUID is not known yet: the kernel log says "
        f"`NVRM: The NVIDIA GPU {address} (PCI ID: 10de:2bb1) installed in this system requires use of the NVIDIA open "
        f"kernel modules.`, `{FAILED.format(address)}`"
    )
    assert node.hear().problems() == {address: expected}
    assert node.start().problems() == {address: expected}, "after a restart, which reads the log where the other ended"
    assert [problem.error for problem in scan_once(node.config).problems] == [expected], "and in `devherd scan`"


def test_a_device_that_its_driver_cannot_start_has_the_cause_beside_the_finding(tmp_path: Path) -> None:
    """Defect: `RmInitAdapter failed`, and not that it wants the open kernel modules, where the UUID is known."""
    node = Node(tmp_path, NodeSpec(nvidia=NvidiaSpec(gpus=2))).start()
    address, other = node.node.nvidia.addresses()
    node.say(OPEN_MODULES, FAILED, at=address)
    node.say(FAILED, at=other)
    node.hear()
    details = {key[1]: one.finding.detail for key, held in node.files.observer.policy.all_held() for one in held}
    assert details == {
        address: f"{FAILED.format(address)} (NVRM: The NVIDIA GPU {address} (PCI ID: 10de:2bb1) installed in this "
        "system requires use of the NVIDIA open kernel modules.)",
        other: FAILED.format(other),
    }


def test_records_of_an_earlier_try_are_not_quoted(tmp_path: Path) -> None:
    """Whoever has changed the driver since would be told the old cause."""
    node = Node(tmp_path, NodeSpec(nvidia=NvidiaSpec(gpus=1, uninitialised=[0])))
    [address] = node.node.nvidia.addresses()
    node.say(OPEN_MODULES, at=address, monotonic=time.monotonic() - 600)
    node.say(FAILED, at=address)
    assert node.start().problems()[address].endswith(f"the kernel log says `{FAILED.format(address)}`")


def test_a_gpu_that_the_loaded_driver_ignores_is_not_told_to_load_it(tmp_path: Path) -> None:
    """Defect: `has no driver: load nvidia`, while it is loaded. Its reason names the model, and no address."""
    node = Node(tmp_path, NodeSpec(nvidia=NvidiaSpec(gpus=2)))
    ignored, other = node.node.nvidia.addresses()
    faults.inject(node.node, "unbind", ignored)
    version = node.node.root / "sys/module/nvidia/version"
    version.parent.mkdir(parents=True, exist_ok=True)
    version.write_text("595.71.05\n")
    assert node.start().problems()[ignored] == (
        "`nvidia` 595.71.05 is loaded and has not taken the PCI function (10de:2330): "
        f"`dmesg | grep {ignored}` says why; `echo {ignored} > /sys/bus/pci/drivers/nvidia/bind` tries again"
    )
    node.say(LEGACY, "NVRM: ignoring the legacy GPU {}", at=ignored)
    node.say("nvidia {0}: probe with driver nvidia failed with error -1", at=ignored)
    assert node.hear().problems() == {
        ignored: "`nvidia` 595.71.05 is loaded and has not taken the PCI function (10de:2330): the kernel log says "
        "`NVRM: The NVIDIA Tesla P100-PCIE-16GB GPU installed in this system is supported through the NVIDIA 580.xx "
        "Legacy drivers. Please visit http://www.nvidia.com/object/unix.html for more`, "
        f"`NVRM: ignoring the legacy GPU {ignored}`"
    }
    node.say(FAILED, at=other)
    assert other not in node.hear().problems(), "a device has findings"


def test_a_gpu_that_is_bound_and_not_listed_says_what_its_driver_says(tmp_path: Path) -> None:
    """The legacy GPU beside it has nothing to do with it; what is left in its memory has."""
    node = Node(tmp_path, NodeSpec(nvidia=NvidiaSpec(gpus=1)))
    [address] = node.node.nvidia.addresses()
    (node.node.root / f"proc/driver/nvidia/gpus/{address}/information").unlink()
    (node.node.root / f"proc/driver/nvidia/gpus/{address}").rmdir()
    node.say(LEGACY, "NVRM: _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting gsp")
    assert node.start().problems()[address] == (
        "bound to the driver nvidia, but not listed in /proc/driver/nvidia/gpus: the kernel log says "
        "`NVRM: _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting gsp`"
    )


DRIVERS = {
    "amd-1": ("amdgpu", "amdgpu"),
    "nvidia-1": ("nvidia", "nvidia"),
    "rdma-2": ("mlx5_core", "mlx5_core"),
    "fpga-1": ("dfl-pci", "dfl-pci"),
    "xilinx-2": ("xocl", "`xocl` and `xclmgmt`"),
    "intel-gpu-2": ("xe", "`i915` and `xe`"),
}


@pytest.mark.parametrize("preset", DRIVERS)
def test_a_card_that_its_loaded_driver_refuses_is_told_with_the_kernel_s_record(tmp_path: Path, preset: str) -> None:
    """Defect: `load amdgpu`, which is loaded and has refused the card. On a node that has never seen it as a device."""
    driver, named = DRIVERS[preset]
    node = Node(tmp_path, PRESETS[preset].spec)
    address = min(place.name for place in (node.node.root / "sys/bus/pci/drivers" / driver).glob("*:*"))
    faults.inject(node.node, "probe-failed", address)
    problem = node.start().problems()[address]
    assert problem.startswith(named if named.startswith("`") else f"`{named}`")
    assert " not taken the PCI function (" in problem
    assert problem.endswith(
        f": the kernel log says `{driver} {address}: probe with driver {driver} failed with error -22`"
    )
    faults.clear(node.node, "probe-failed", address)
    node.files.observer.scan(time.monotonic())
    assert address not in node.hear().problems()


def test_what_was_said_of_a_card_that_was_taken_out_is_not_said_of_the_next_one(tmp_path: Path) -> None:
    """The kernel adds the function anew."""
    node = Node(tmp_path, NodeSpec(amd=[AmdSpec(cards=2)]))
    address = min(place.name for place in (node.node.root / "sys/bus/pci/drivers/amdgpu").glob("*:*"))
    faults.inject(node.node, "probe-failed", address)
    assert "failed with error -22" in node.start().problems()[address]
    node.say("pci {}: [1002:740f] type 00 class 0x038000 PCIe Endpoint", at=address)
    assert node.hear().problems()[address].endswith("tries again")


def test_last_words_are_bounded() -> None:
    """Whatever the kernel prints: the oldest go."""
    words = LastWords()
    rule = QUOTED["driver-probe-failed"]
    for number in range(MOST_LAST_WORDS + 10):
        event = KernelLogEvent(
            rule=rule.name,
            pci_address=f"{number:04x}:01:00.0",
            uuid="",
            gpu_instance=None,
            compute_instance=None,
            link=None,
            xid="",
            value="",
            text="refused",
            monotonic=float(number),
            times=1,
        )
        words.take_in([event], QUOTED)
    assert len(words.events) == MOST_LAST_WORDS
    assert words.about("amd", "0000:01:00.0", is_bound=False) == []
    assert words.about("amd", f"{MOST_LAST_WORDS:04x}:01:00.0", is_bound=False) == ["refused"]
