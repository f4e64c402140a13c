"""A node with devices of every vendor, under a devherd for which hours pass at once, beside a real kubelet."""

import json
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from everything_node import scanned
from resource_child import eventually

from devherd.reasons.registry import EXTERNAL, MEANINGS, Meaning
from devherd_sim.node import faults

HURRIED = __file__.replace("meanings_bed", "hurried_devherd")
GPU, AMD, XE, FPGA, XILINX, RDMA, FILE, SHARED = (
    "nvidia.com/gpu",
    "amd.com/gpu",
    "gpu.intel.com/xe",
    "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs",
    "amd.com/xilinx_u200_xdma_201830_2-1561465320",
    "rdma/hca",
    "example.com/file",
    "nvidia.com/gpu.shared",
)

PATIENCE_SECONDS = 90.0
"""Against hanging alone: where ten programs share two cores a poll takes seconds."""

Step = Callable[["Bed", "Device"], object]
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_LABELS = ("resource_name", "device_id", "source", "reason", "action")
Finding = tuple[str, str, str, str, str]
"""Resource name, device id, source, reason, action."""


@dataclass(frozen=True)
class Device:
    """One device of the node."""

    resource: str
    id: str
    address: str
    """Of its PCI function."""

    @property
    def slot(self) -> str:
        """The address without the function."""
        return self.address.rpartition(".")[0]


@dataclass(frozen=True)
class Row:
    """How a meaning comes about on a device, and how it goes."""

    source: str
    reason: str
    resource: str
    inject: Step
    back: Step | None = None
    """None: time alone."""
    value: str = ""
    """Of the finding, where that has a meaning of its own."""
    stage: int = 1
    """What happens in one stage happens at once."""
    of_all: bool = False
    """It is about every device of the resource, shared or not."""

    @property
    def meaning(self) -> Meaning:
        """By the registry."""
        meaning = MEANINGS[self.source, self.reason]
        return meaning.by_value.get(self.value, meaning)

    def __str__(self) -> str:
        return ":".join(filter(None, (self.source, self.reason, self.value)))


Pairs = Sequence[tuple[Row, Device]]


def fault(name: str, value: str = "", at: str = "{address}") -> Step:
    """A fault of `devherd sim fault`; `{address}`, `{slot}` and `{id}` are the device's."""

    def inject(bed: "Bed", device: Device) -> None:
        faults.inject(bed.node, name, bed.place(at, device), bed.text(value, device))

    return inject


def cleared(name: str, value: str = "", at: str = "{address}") -> Step:
    """The same with `--clear`."""

    def clear(bed: "Bed", device: Device) -> None:
        faults.clear(bed.node, name, bed.place(at, device), bed.text(value, device))

    return clear


def both(*steps: Step) -> Step:
    """One after the other."""

    def do(bed: "Bed", device: Device) -> None:
        for step in steps:
            step(bed, device)

    return do


def command(*words: str) -> Step:
    """A command to the running instance."""

    def run(bed: "Bed", device: Device) -> None:
        bed.command(*(bed.text(word, device) for word in words))

    return run


class Bed:
    """Rows are played on it, each on a device of its own."""

    def __init__(self, herd_node, spec) -> None:
        self.herd = herd_node
        self._places: dict[tuple[str, Device], str] = {}
        self.forward = herd_node.directory / "forward"
        self.forward.write_text("0")
        self.herd.command = (sys.executable, HURRIED, str(self.forward))
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.herd.listen = f"127.0.0.1:{probe.getsockname()[1]}"
        self.herd.prepare(spec)
        self.node = herd_node.node

    def start(self, config) -> None:
        """Kubelet and devherd, until every device is allocatable."""
        by_id = {**config, "exporter": {"device_metrics": "all"}}
        (self.herd.directory / "config.yaml").write_text(json.dumps(by_id))
        self.herd.kubelet.start()
        self.herd.start_herd()
        told = scanned(self.node.root, config)
        self.devices = {
            name: [Device(name, each, facts["attributes"].get("pci_address", "")) for each, facts in devices.items()]
            for name, devices in told.items()
        }
        for name, devices in self.devices.items():
            self.herd.until_capacity(name, len(devices), len(devices))
        # What a count was is known after the first look: an error before it is taken for an old one.
        eventually(lambda: self._polls() >= 1, PATIENCE_SECONDS)
        self.children = self.pids()

    def place(self, at: str, device: Device) -> str:
        """A place of the node; one with `*` is the first that matches below the device's PCI function."""
        if "*" not in at:
            return self.text(at, device)
        if (at, device) not in self._places:  # what a fault has removed is put back there
            function = self.node.functions.path_of(device.address)
            self._places[at, device] = str(min(function.glob(at)).relative_to(self.node.root.resolve()))
        return self._places[at, device]

    def text(self, template: str, device: Device) -> str:
        """With what is the device's own."""
        return template.format(
            address=device.address, slot=device.slot, id=device.id, resource=device.resource, root=self.node.root
        )

    def command(self, *words: str) -> None:
        """`devherd …` beside the running instance."""
        options = ("--run-dir", str(self.herd.directory / "run"))
        subprocess.run([*self.herd.command, *words, *options], check=True, capture_output=True)

    def put_forward(self, seconds: float) -> None:
        """Let time pass for the policy."""
        later = self.forward.with_suffix(".new")
        later.write_text(str(float(self.forward.read_text()) + seconds))
        later.rename(self.forward)

    def assigned(self, rows: list[Row]) -> list[tuple[Row, Device]]:
        """A device of its own for each; rows of the same injection, one after the other, share theirs."""
        left = {name: iter(devices) for name, devices in self.devices.items()}
        pairs: list[tuple[Row, Device]] = []
        for row in rows:
            shares = pairs and pairs[-1][0].inject is row.inject
            device = pairs[-1][1] if shares else next(left[row.resource], None)
            assert device is not None, f"{row}: {row.resource} has too few devices"
            pairs.append((row, device))
        return pairs

    def inject(self, rows: Pairs) -> None:
        """Let all of them happen."""
        for row, device in {device: (row, device) for row, device in rows}.values():
            row.inject(self, device)

    def take_back(self, rows: Pairs) -> None:
        """Let all of them be over that do not end by themselves."""
        for row, device in {device: (row, device) for row, device in rows}.values():
            if row.back:
                row.back(self, device)

    def until(self, standing: Pairs, over: Pairs = (), open_to: Pairs = ()) -> None:
        """The kubelet has exactly the devices of what stands as Unhealthy; each finding is shown, none that is over.

        `open_to`: what may stand by now, on a slow machine.
        """
        unhealthy, either = self._condemned(standing), self._condemned(open_to)
        try:
            eventually(
                lambda: self._unhealthy() - either == unhealthy - either and not self._wrong(standing, over),
                PATIENCE_SECONDS,
            )
        except pytest.fail.Exception:
            found = self._unhealthy()
            pytest.fail(
                f"Unhealthy at the kubelet and should not be: {sorted(found - unhealthy)}\n"
                f"not Unhealthy: {sorted(unhealthy - found)}\nfindings: {self._wrong(standing, over)}\n"
                f"shown: {sorted(self._findings())}\n{self.herd.log[-3000:]}"
            )

    def _condemned(self, pairs: Pairs) -> set[tuple[str, str]]:
        return {of for row, device in pairs if row.meaning.action == "unhealthy" for of in self._of(row, device)}

    def _of(self, row: Row, device: Device) -> list[tuple[str, str]]:
        if row.of_all:
            of = [*self.devices[row.resource], *(self.devices[SHARED] if row.resource == GPU else [])]
        else:
            of = [each for each in self.devices[row.resource] if each == device or _is_share(each, device)]
        return [(each.resource, each.id) for each in of]

    def _wrong(self, standing, over) -> list[str]:
        """Findings that are not shown, and others that still are."""
        shown = self._findings()
        absent = [f"no {row} of {device.id}" for row, device in standing if _finding(row, device) not in shown]
        kept = {(row, device) for row, device in over if (row, device) not in standing}
        return absent + [f"still {row} of {device.id}" for row, device in kept if _finding(row, device) in shown]

    def _unhealthy(self) -> set[tuple[str, str]]:
        healthy = self.herd.kubelet.ask("devices")
        return {
            (name, device.id)
            for name, devices in self.devices.items()
            for device in devices
            if device.id not in healthy.get(name, {})
        }

    def _findings(self) -> set[Finding]:
        shown = (dict(_LABEL.findall(line)) for line in self._metrics("devherd_device_finding{"))
        return {tuple(labels[name] for name in _LABELS) for labels in shown}

    def _polls(self) -> int:
        return sum(int(float(line.split()[-1])) for line in self._metrics("devherd_health_poll_duration_seconds_count"))

    def _metrics(self, beginning: str) -> list[str]:
        try:
            with urllib.request.urlopen(f"http://{self.herd.listen}/metrics", timeout=30) as answer:
                text = answer.read().decode()
        except urllib.error.URLError:  # it does not serve yet
            return []
        return [line for line in text.splitlines() if line.startswith(beginning)]

    def pids(self) -> dict[str, str]:
        """Every child of the supervisor."""
        ctl = [sys.executable, "-m", "devherd", "ctl", "status", "--run-dir", str(self.herd.directory / "run")]
        lines = subprocess.run(ctl, check=False, capture_output=True, text=True).stdout.splitlines()
        return {line.split()[0]: line.split("pid ")[1].split(",")[0] for line in lines if "pid " in line}


def _is_share(one: Device, other: Device) -> bool:
    return one.id.partition("::")[0] == other.id.partition("::")[0]


def _finding(row: Row, device: Device) -> Finding:
    source = "external-report" if row.source == EXTERNAL else row.source
    return device.resource, device.id, source, row.reason, row.meaning.action
