"""What devlink says of the firmware of which network cards. Pure: reporters and devices come in, findings come out.

<https://docs.kernel.org/networking/devlink/devlink-health.html>. A driver that can recover takes its word back; one
that cannot stays with an error that it has seen once, `fw` of mlx5: that warns.
"""

from collections.abc import Iterable

from devherd._native import Finding, HealthReporter
from devherd.health.registry import DEVLINK, FIRMWARE, LATCHED
from devherd.health.seen import Seen
from devherd.inventory import Entry

_OF_FIRMWARE = "fw"
"""How reporters of a card's firmware are called: `fw`, `fw_fatal`, `fw_reset`. Others speak of single queues."""
_VENDOR = "rdma"
_BUS = "pci/"


def may_speak_of(entry: Entry) -> bool:
    """Whether the device is a network card."""
    return entry.vendor == _VENDOR


def take_in(seen: Seen, reporters: Iterable[HealthReporter], entries: Iterable[Entry], failed: str = "") -> None:
    """Add what reporters say of a card, also to the virtual ones that it serves. `failed`: why less is known."""
    if failed:
        seen.failed[DEVLINK] = failed
    in_error = [one for one in reporters if one.is_in_error and one.name.startswith(_OF_FIRMWARE)]
    for entry in entries if in_error else ():
        if may_speak_of(entry):
            seen.add(entry.key, [_finding(one) for one in in_error if one.device in _names_of(entry)])


def _names_of(entry: Entry) -> set[str]:
    attributes = entry.device.attributes
    addresses = [*attributes.get("pci_address", "").split(","), attributes.get("physfn", "")]
    return {f"{_BUS}{address}" for address in addresses if address}


def _finding(reporter: HealthReporter) -> Finding:
    return Finding(
        source=DEVLINK,
        reason=FIRMWARE,
        detail=f"the driver reports an error of the card's firmware by its health reporter {reporter.name}",
        file=f"devlink health show {reporter.device} reporter {reporter.name}",
        value="error" if reporter.recovers else LATCHED,
    )
