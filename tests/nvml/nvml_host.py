"""Hosts of a simulated node and a stub library that tells of its GPUs, and who asks it."""

import time
from pathlib import Path

from nvml_stub import Stub

from devherd.sim.node.simulated_node import SimulatedNode

H100 = 85_520_809_984


class Host:
    """A node with H100 GPUs, whose driver has the stub library; GPUs with MIG devices are in MIG mode."""

    def __init__(self, node: SimulatedNode, stub: Stub) -> None:
        self.node, self.root, self.stub = node, node.root, stub
        self.addresses = node.nvidia.addresses()
        for number, address in enumerate(self.addresses):
            mode = any(self.root.glob(f"proc/driver/nvidia/capabilities/gpu{number}/mig/gi*"))
            place = {"uuid": self.uuid(address), "pci": f"0000{address}", "mig": int(mode)}
            stub.gpu(number, name="NVIDIA H100 80GB HBM3", memory=H100, major=9, **place)
        stub.write().put_below(self.root)

    def uuid(self, address: str) -> str:
        """As the driver tells it in procfs."""
        lines = (self.root / f"proc/driver/nvidia/gpus/{address}/information").read_text().splitlines()
        return next(line.split()[-1] for line in lines if line.startswith("GPU UUID"))

    def mig(self, gpu: int, slot: int, instance: tuple[int, int], slices: int, mebibytes: int, **values: object) -> str:
        """One MIG device as NVML tells of it; its UUID."""
        values |= {"gi": instance[0], "ci": instance[1], "gpu_slices": slices, "memory": mebibytes}
        values = {"compute_slices": slices, "profile": 0, "uuid": f"MIG-{gpu}-{slot}"} | values
        self.stub.say("mig", gpu=gpu, slot=slot, **values).write()
        return str(values["uuid"])


def probes(stub: Stub) -> list[int]:
    """Processes that ask this stub."""
    mark = f"DEVHERD_NVML_STUB={stub.file}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"devherd.nvml_probe" in (process / "cmdline").read_bytes():
                found += [int(process.name)] * (mark in (process / "environ").read_bytes().split(b"\0"))
        except OSError:
            continue
    return found


def until(condition, what, seconds=60.0):
    """Wait for it."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
