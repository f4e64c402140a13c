"""What can happen to the NVIDIA GPUs of a simulated node while something looks at it. GPUs are named by PCI address."""

import json
import shutil
from pathlib import Path
from typing import Any

from devherd.simulated_host import NVML_ANSWER
from devherd_sim.node import nvidia, nvidia_mig
from devherd_sim.node.entry import DeviceNode, File
from devherd_sim.node.link import link, named_link
from devherd_sim.node.nvidia_model import MODELS, GpuModel
from devherd_sim.node.tree import put, rewrite
from devherd_sim.node.uevents import Uevents


class NvidiaGpus:
    """The GPUs below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._uevents = Uevents(root)
        self._unbound: dict[str, bytes] = {}

    def addresses(self) -> list[str]:
        """Of those that the driver has, in PCI order."""
        return sorted(path.name for path in (self.root / "proc/driver/nvidia/gpus").glob("*"))

    def unbind(self, address: str) -> None:
        """Take the driver off a GPU: its entry in procfs goes, its node stays."""
        information = self.root / nvidia.information_path(address)
        self._unbound[address] = information.read_bytes()
        with self._uevents.of_changes():
            (self._function(address) / "driver").unlink()
            (self.root / "sys/bus/pci/drivers/nvidia" / address).unlink()
            shutil.rmtree(information.parent)

    def bind(self, address: str) -> None:
        """Give the driver back to a GPU that lost it."""
        function = self._function(address).relative_to(self.root.resolve()).as_posix()
        with self._uevents.of_changes():
            put(link(f"{function}/driver", "sys/bus/pci/drivers/nvidia"), self.root)
            put(named_link("sys/bus/pci/drivers/nvidia", function), self.root)
            put(File(nvidia.information_path(address), self._unbound.pop(address)), self.root)

    def fall_off_bus(self, address: str) -> None:
        """Nothing answers any more: configuration space is all ones."""
        rewrite(self._function(address) / "config", b"\xff" * 64)

    def return_to_bus(self, address: str) -> None:
        """As after a reset."""
        rewrite(self._function(address) / "config", nvidia.config_space(self._model(address).device))

    def initialise(self, address: str, uuid: str) -> None:
        """Somebody opens a GPU for the first time, and the driver learns its UUID."""
        information = self.root / nvidia.information_path(address)
        lines = information.read_text().replace("??.??.??.??.??", "96.00.74.00.01").splitlines()
        rewrite(information, "\n".join([*lines[:2], f"GPU UUID: \t {uuid}", *lines[2:], ""]).encode())

    def return_node(self, address: str) -> None:
        """Make the node of a GPU again, as nvidia-modprobe does."""
        minor = self._minor(address)
        put(DeviceNode(f"dev/nvidia{minor}", "char", nvidia.MAJOR, minor), self.root)

    def create_mig_device(self, address: str, profile: str) -> str:
        """Make a MIG device of a profile (`1g.10gb`); NVML, where present, lists it. Returns its UUID."""
        minor, model = self._minor(address), self._model(address)
        mig = (self.root / nvidia_mig.instance_path(minor, 0)).parent
        used = [int(path.name.removeprefix("gi")) for path in mig.glob("gi*")]
        (device,) = nvidia_mig.mig_devices(address, model, [profile], used)
        facts = self._facts()
        for gpu in facts.get("gpus", []):
            if gpu["pci_address"] == address:
                free = {*range(len(gpu["mig_devices"]) + 1)} - {known["index"] for known in gpu["mig_devices"]}
                gpu["mig_devices"].append(device.facts(min(free)))
                gpu["mig_mode"] = True
        self._tell(facts)
        for entry in nvidia_mig.instance_entries(minor, device):
            put(entry, self.root)
        return device.uuid

    def destroy_mig_device(self, address: str, gpu_instance: int) -> None:
        """Destroy a GPU instance with all in it; nothing happens to its nodes, as on a real host."""
        shutil.rmtree(self.root / nvidia_mig.instance_path(self._minor(address), gpu_instance))
        facts = self._facts()
        for gpu in facts.get("gpus", []):
            if gpu["pci_address"] == address:
                left = [known for known in gpu["mig_devices"] if known["gpu_instance"] != gpu_instance]
                gpu["mig_devices"] = left
        self._tell(facts)

    def _facts(self) -> dict[str, Any]:
        answer = self.root / NVML_ANSWER
        return dict(json.loads(answer.read_text())["facts"]) if answer.exists() else {}

    def _tell(self, facts: dict[str, Any]) -> None:
        if facts:
            put(nvidia.nvml_answer(facts), self.root)

    def _function(self, address: str) -> Path:
        return (self.root / "sys/bus/pci/devices" / address).resolve()

    def _minor(self, address: str) -> int:
        return int(self.information(address)["Device Minor"])

    def _model(self, address: str) -> GpuModel:
        name = self.information(address)["Model"]
        return next(model for model in MODELS.values() if model.name == name)

    def information(self, address: str) -> dict[str, str]:
        """What the driver says of a GPU in procfs."""
        lines = (self.root / nvidia.information_path(address)).read_text().splitlines()
        return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
