"""Changes of NVIDIA GPUs and MPS daemons on a simulated node. GPUs are named by PCI address."""

import json
import os
import shutil
import socket
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from devherd.config.resolved import NVML_ANSWER
from devherd_sim.node import nvidia, nvidia_mig
from devherd_sim.node.kernel_events import Uevents
from devherd_sim.node.nvidia_mig import MODELS, GpuModel
from devherd_sim.node.tree import put, rewrite


class NvidiaGpus:
    """The NVIDIA GPUs of the node below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._uevents = Uevents(root)

    def addresses(self) -> list[str]:
        """The PCI addresses of the GPUs that the driver has, sorted."""
        return sorted(path.name for path in (self.root / "proc/driver/nvidia/gpus").glob("*"))

    def unbind(self, address: str) -> None:
        """Unbind the driver from a GPU: its entry in procfs is removed, its device node stays."""
        information = self.root / nvidia.information_path(address)
        with self._uevents.of_changes():
            (self._function(address) / "driver").unlink()
            (self.root / "sys/bus/pci/drivers/nvidia" / address).unlink()
            shutil.rmtree(information.parent)

    def initialise(self, address: str, uuid: str) -> None:
        """Simulate the first open of a GPU: the driver then knows its UUID."""
        information = self.root / nvidia.information_path(address)
        lines = information.read_text().replace("??.??.??.??.??", "96.00.74.00.01").splitlines()
        rewrite(information, "\n".join([*lines[:2], f"GPU UUID: \t {uuid}", *lines[2:], ""]).encode())

    def create_mig_device(self, address: str, profile: str) -> str:
        """Create a MIG device of a profile (`1g.10gb`), also in NVML's answer if there is one. Returns its UUID."""
        minor, model = self._minor(address), self._model(address)
        mig = (self.root / nvidia_mig.instance_path(minor, 0)).parent
        used = [int(path.name.removeprefix("gi")) for path in mig.glob("gi*")]
        facts = self._facts()
        known = [gpu for gpu in facts.get("gpus", []) if gpu["pci_address"] == address]
        placed = [(one["placement_start"], one["placement_size"]) for gpu in known for one in gpu["mig_devices"]]
        used_eighths = [eighth for start, size in placed for eighth in range(start, start + size)]
        (device,) = nvidia_mig.mig_devices(address, model, [profile], used, used_eighths)
        for gpu in known:
            free = {*range(len(gpu["mig_devices"]) + 1)} - {one["index"] for one in gpu["mig_devices"]}
            gpu["mig_devices"].append(device.facts(min(free)))
            gpu["mig_mode"] = True
        self._write_facts(facts)
        for entry in nvidia_mig.instance_entries(minor, device):
            put(entry, self.root)
        return device.uuid

    def destroy_mig_device(self, address: str, gpu_instance: int) -> None:
        """Destroy a GPU instance with its compute instances; device nodes stay, as on a real host."""
        shutil.rmtree(self.root / nvidia_mig.instance_path(self._minor(address), gpu_instance))
        facts = self._facts()
        for gpu in facts.get("gpus", []):
            if gpu["pci_address"] == address:
                left = [known for known in gpu["mig_devices"] if known["gpu_instance"] != gpu_instance]
                gpu["mig_devices"] = left
        self._write_facts(facts)

    def _facts(self) -> dict[str, Any]:
        answer = self.root / NVML_ANSWER
        return dict(json.loads(answer.read_text())["facts"]) if answer.exists() else {}

    def _write_facts(self, facts: dict[str, Any]) -> None:
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
        """The fields of the driver's information file of a GPU."""
        lines = (self.root / nvidia.information_path(address)).read_text().splitlines()
        return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


SOCKETS = ("control", "control_privileged")


class MpsDaemon:
    """An MPS daemon, from `start` to `kill`; its socket files stay, as after a crash."""

    def __init__(self, root: Path, mps_root: str, resource_name: str) -> None:
        self.directory = root / mps_root.lstrip("/") / resource_name
        self._sockets: list[socket.socket] = []

    def start(self) -> Self:
        """Create the directories and listen."""
        pipe = self.directory / "pipe"
        for made in (pipe, self.directory / "log", self.directory.parents[1] / "shm"):
            made.mkdir(parents=True, exist_ok=True)
        opened = os.open(pipe, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in SOCKETS:
                (pipe / name).unlink(missing_ok=True)
                listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                self._sockets.append(listening)
                # A socket's address has 108 bytes at most.
                listening.bind(f"/proc/self/fd/{opened}/{name}")
                listening.listen()
        finally:
            os.close(opened)
        return self

    def kill(self) -> None:
        """Stop listening."""
        while self._sockets:
            self._sockets.pop().close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
