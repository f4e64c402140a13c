"""The scan core, with what a container gets for each device, and what is wrong with it, beside the device."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devherd._native import Device, Edits, Finding, Poller, Scan, Scanner
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.inventory import DEVICE_PLUGIN
from devherd.reasons.registry import MEANINGS
from devherd.scanner.core import native_scanner, settled_looks


def core_settings(host_root: Path | str, **sections: Mapping[str, Any]) -> str:
    """The settings of the scan core by the default configuration, with these options of vendors as it has them."""
    settings = json.loads(Config(host_root=Path(host_root)).native_json())
    for section, options in sections.items():
        settings["vendors"][section] |= options
    return json.dumps(settings)


PARTS = {"envs", "annotations", "nodes", "mounts", "hooks", "cdi_devices", "specs"}


@dataclass(frozen=True)
class Answered:
    """A device, and what a container gets for it by the kubelet's device plugin API, under its vendor's name for it."""

    device: Device
    edits: Edits
    reasons: list[str]
    """Why it is Unhealthy, as of the scan and the poll that follows it."""

    def __getattr__(self, name: str) -> Any:
        """Facts of the device and parts of the edits alike."""
        return getattr(self.edits if name in PARTS else self.device, name)


class AnsweredScan:
    """A scan whose devices are answered; `left_out` are those that the device plugin does not offer, with why."""

    def __init__(self, scanner: Scanner, poller: Poller, scan: Scan) -> None:
        self.scan = scan
        poller.watch(scan, [])
        polled = {(look.card, look.id): look.findings for look in settled_looks(poller)}
        self.left_out = {
            device.id: left_out[0]
            for device in scan.devices
            if (left_out := scanner.left_out(device, DEVICE_PLUGIN)) is not None
        }
        self.devices = [
            Answered(
                device,
                edits_of(scanner, scan, device),
                reasons_in([*device.findings, *polled.get((device.card, device.id), ())]),
            )
            for device in scan.devices
            if device.id not in self.left_out
        ]

    def __getattr__(self, name: str) -> Any:
        """Whatever else the scan says."""
        return getattr(self.scan, name)


class AnsweringScanner:
    """The scan core with these settings, whose scans are answered."""

    def __init__(self, host_root: str, settings: str) -> None:
        self.native = Scanner(host_root, settings)
        self.poller = Poller(self.native)

    def scan(self) -> AnsweredScan:
        """Look at the host, and answer for what is there."""
        return AnsweredScan(self.native, self.poller, self.native.scan())

    def poll(self) -> list[tuple[str, str, str, list[str]]]:
        """Look again at what is there; vendor, card, id and reasons of the devices that are Unhealthy."""
        looks = settled_looks(self.poller)
        found = [(look.vendor, look.card, look.id, reasons_in(look.findings)) for look in looks]
        return [look for look in found if look[3]]

    def __getattr__(self, name: str) -> Any:
        """Whatever else the scan core does."""
        return getattr(self.native, name)


def not_examined(scan: Scan | AnsweredScan) -> list[tuple[str | None, str | None]]:
    """The cards that a scan could not look at, None for all, each with the reason that its devices have for that."""
    return [(part.card, part.finding.reason if part.finding else None) for part in scan.unseen]


def reasons_in(findings: list[Finding]) -> list[str]:
    """The reasons that make a device Unhealthy, sorted, each once."""
    found = {finding.reason for finding in findings if MEANINGS[finding.source, finding.reason].action == "unhealthy"}
    return sorted(found)


def edits_of(scanner: Scanner, scan: Scan, device: Device, way: str = DEVICE_PLUGIN) -> Edits:
    """What a container gets for a device of this scan."""
    name = device.resource_name or device.first_sight_resource_name or ""
    edits = scanner.edits(device, scan.platforms.get(device.vendor), way, name)
    assert edits is not None
    return edits


def scanner_of(root: Path, **settings: Any) -> tuple[Scanner, Scan]:
    """The scan core as a configuration makes it, and its first scan of a host."""
    scanner = native_scanner(resolve(Config.model_validate({"host_root": root, **settings})))
    return scanner, scanner.scan()


def poller_of(scanner: Scanner, scan: Scan) -> Poller:
    """A poller of the devices of this scan."""
    poller = Poller(scanner)
    poller.watch(scan, [])
    return poller
