"""A host that has been scanned, for polls of its devices' health."""

from pathlib import Path

from devherd._native import Device, Poller, Scanner


def polled(root: Path, settings: str) -> tuple[Poller, list[Device]]:
    """What polls the devices of a host, and these devices."""
    scanner = Scanner(str(root), settings)
    scan, poller = scanner.scan(), Poller(scanner)
    poller.watch(scan, [])
    return poller, scan.devices
