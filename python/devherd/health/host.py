"""Findings from reports of the host itself: MPS daemons, driver dumps, devlink, uevents."""

import errno
import os
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from devherd._native import Evidence, Finding, HealthReporter
from devherd.health.held import Seen
from devherd.inventory import DeviceKey, Entry
from devherd.proto import spool_pb2
from devherd.reasons.registry import (
    DEVLINK,
    FIRMWARE,
    HANGING,
    KERNEL_LOG,
    LATCHED,
    MPS,
    MPS_DAEMON,
    PCI_AER,
    PCI_AER_FATAL,
    PCI_RECOVERY,
    WEDGED,
)

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR})
_LISTENS = frozenset({0, errno.EPROTOTYPE})


class DaemonNotSeenError(Exception):
    """The state of the daemon is unknown: its socket cannot be examined."""


def take_in_mps(
    seen: Seen, shared: Mapping[str, Sequence[DeviceKey]], host_root: Path, mps_root: str
) -> list[spool_pb2.Problem]:
    """Examine the MPS daemons of these resources, by name, and add findings to their devices.

    Returns a problem for each daemon that cannot be examined.
    """
    problems = []
    for resource_name, keys in shared.items():
        try:
            finding = look_at_mps(host_root, mps_root, resource_name)
        except DaemonNotSeenError as error:
            for key in keys:
                seen.not_looked.setdefault(key, {})[MPS] = str(error)
            problems.append(spool_pb2.Problem(vendor="nvidia", path=resource_name, error=str(error)))
        else:
            for key in keys:
                seen.add(key, [finding] if finding else [])
    return problems


def look_at_mps(host_root: Path, mps_root: str, resource_name: str) -> Finding | None:
    """The finding about the MPS daemon of a resource; None if it runs.

    Raises DaemonNotSeenError.
    """
    pipe = Path(mps_root) / resource_name / "pipe"
    error = _connect(host_root / pipe.relative_to("/"))
    if error in _LISTENS:
        return None
    if error in _ABSENT:
        value, what = "absent", "there is no socket of NVIDIA's MPS control daemon"
    elif error == errno.ECONNREFUSED:
        value, what = "nobody listens", "NVIDIA's MPS control daemon is dead"
    else:
        raise DaemonNotSeenError(f"{pipe / 'control'}: {os.strerror(error)}")
    return Finding(
        source=MPS,
        reason=MPS_DAEMON,
        detail=f"{what} for {resource_name}: start it; where devherd is a pod, mount `mps_root` in it",
        file=str(pipe / "control"),
        value=value,
    )


def _connect(directory: Path) -> int:
    """The kernel's error for a test connection, of a type that the daemon does not accept: this does not disturb it.

    The kernel checks whether the socket is alive before it compares the types: unix(7), `EPROTOTYPE`.
    """
    try:
        opened = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as failed:
        return failed.errno or errno.EIO
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as probe:
            # A socket's address is limited to 108 bytes; a directory's path may be longer.
            return probe.connect_ex(f"/proc/self/fd/{opened}/control")
    finally:
        os.close(opened)


def take_in_device_dumps(seen: Seen, entries: Iterable[Entry], dumps: Sequence[tuple[str, Finding]]) -> None:
    """Add a finding to each device whose driver has made a dump of its PCI function, or of a part of the function."""
    for entry in entries:
        of_entry = [finding for device, finding in dumps if _is_at_or_below(device, _places(entry))]
        if of_entry:
            seen.add(entry.key, of_entry)


def _places(entry: Entry) -> list[str]:
    """The directories of the PCI functions of a device, without the host root."""
    return [function.path for function in entry.device.functions]


def _is_at_or_below(place: str, functions: Iterable[str]) -> bool:
    return any(f"{place}/".startswith(f"{function}/") for function in functions)


def bus_addresses(entry: Entry) -> set[str]:
    """The PCI functions that answer on the bus for a device: for a virtual function the physical one."""
    attribute = entry.device.attribute
    physical = attribute("physfn") or attribute("physical_function")
    return {physical} if physical else {*filter(None, (entry.pci_address or "").split(","))}


_SHOWS_A_START = {"nvidia": "video_bios"}
"""By vendor: the fact that its driver tells of a started device only.

Source: rm_get_vbios_version in osapi.c of NVIDIA/open-gpu-kernel-modules asks the started GPU (RmUnixRmApiPrologue);
of any other procfs has `??.??.??.??.??`.
"""


def is_started(entry: Entry) -> bool:
    """Whether the last scan shows that the driver has started the device; False if it does not tell."""
    fact = _SHOWS_A_START.get(entry.vendor)
    return fact is not None and entry.is_found and bool(entry.device.attribute(fact))


_OF_FIRMWARE = "fw"
"""Prefix of the firmware's reporters: `fw`, `fw_fatal`, `fw_reset`. Others are about single queues."""
_VENDOR = "rdma"
_BUS = "pci/"


def is_network_card(entry: Entry) -> bool:
    """True if the device is a network card."""
    return entry.vendor == _VENDOR


def take_in_devlink(
    seen: Seen, reporters: Iterable[HealthReporter], entries: Iterable[Entry], failed: str = ""
) -> None:
    """Add the findings of a card's reporters to it and to its virtual functions.

    `failed`: why reporters could not be read.
    """
    if failed:
        seen.failed[DEVLINK] = failed
    in_error = [one for one in reporters if one.is_in_error and one.name.startswith(_OF_FIRMWARE)]
    for entry in entries if in_error else ():
        if is_network_card(entry):
            seen.add(entry.key, [_firmware_finding(one) for one in in_error if one.device in _names_of(entry)])


def _names_of(entry: Entry) -> set[str]:
    attributes = entry.device.attributes
    addresses = [*attributes.get("pci_address", "").split(","), attributes.get("physfn", "")]
    return {f"{_BUS}{address}" for address in addresses if address}


def _firmware_finding(reporter: HealthReporter) -> Finding:
    return Finding(
        source=DEVLINK,
        reason=FIRMWARE,
        detail=f"the driver reports an error of the card's firmware by its health reporter {reporter.name}",
        file=f"devlink health show {reporter.device} reporter {reporter.name}",
        value="error" if reporter.recovers else LATCHED,
    )


_APART_SECONDS = 1e-6
_EVIDENCE = {"bind": Evidence.REBOUND, "add": Evidence.READDED}
_RECOVERY = {
    "BEGIN_RECOVERY": "the kernel recovers the PCI function from an error",
    "FAILED_RECOVERY": "the kernel could not recover the PCI function from an error; reset the card or reboot",
}


def seen_in_uevents(events: Iterable[Mapping[str, str]], entries: Collection[Entry], monotonic: float) -> Seen:
    """The findings of uevents received by this CLOCK_MONOTONIC second; events triggered by a `uevent` file are ignored.

    Each event gets its own moment, in their order: if a recovery begins and ends between two looks, its end counts.
    """
    seen = Seen()
    in_order = list(events)
    for before_the_last, event in zip(range(len(in_order) - 1, -1, -1), in_order, strict=True):
        moment = monotonic - before_the_last * _APART_SECONDS
        if "SYNTH_UUID" in event:
            continue
        if event.get("SUBSYSTEM") == "pci":
            _take_in_function(seen, event, entries, moment)
        elif event.get("SUBSYSTEM") == "drm" and "WEDGED" in event:
            _take_in_wedged(seen, event, entries, moment)
        elif event.get("SUBSYSTEM") == "drm" and "ERROR" in event:
            _take_in_hang(seen, event, entries, moment)
    return seen


def _take_in_function(seen: Seen, event: Mapping[str, str], entries: Collection[Entry], monotonic: float) -> None:
    place = f"/sys{event['DEVPATH']}"
    if evidence := _EVIDENCE.get(event["ACTION"]):
        for key in _at(place, entries):
            seen.evident(key, evidence, monotonic)
    recovery = event.get("ERROR_EVENT", "")
    if recovery in _RECOVERY:
        finding = Finding(
            source=PCI_RECOVERY, reason=PCI_RECOVERY, detail=_RECOVERY[recovery], file=place, value=recovery
        )
        for key in _at_or_below(place, entries):
            seen.happened(key, finding, monotonic)
    elif recovery == "SUCCESSFUL_RECOVERY":
        for key in _at_or_below(place, entries):
            seen.cleared(key, PCI_RECOVERY, PCI_RECOVERY, monotonic)
            seen.cleared(key, PCI_AER_FATAL, PCI_AER, monotonic)


def _take_in_wedged(seen: Seen, event: Mapping[str, str], entries: Collection[Entry], monotonic: float) -> None:
    place, way = f"/sys{event['DEVPATH']}", event["WEDGED"]
    detail = "it hung, and a reset has helped" if way == "none" else f"it hangs; its driver says what may help: {way}"
    finding = Finding(source=WEDGED, reason=WEDGED, detail=detail, file=place, value=way)
    for key in _above(place, entries):
        seen.happened(key, finding, monotonic)


def _take_in_hang(seen: Seen, event: Mapping[str, str], entries: Collection[Entry], monotonic: float) -> None:
    place = f"/sys{event['DEVPATH']}"
    detail = "it hangs, and no reset has helped yet"
    finding = Finding(source=WEDGED, reason=WEDGED, detail=detail, file=place, value=HANGING)
    for key in _above(place, entries):
        if event["ERROR"] == "0":
            # i915 sends it only if the GPU is not wedged any more (intel_gt_reset_global in gt/intel_reset.c)
            seen.cleared(key, WEDGED, WEDGED, monotonic)
            for reason in (WEDGED, FIRMWARE):
                seen.cleared(key, KERNEL_LOG, reason, monotonic)
        else:
            seen.happened(key, finding, monotonic)


def _at(place: str, entries: Iterable[Entry]) -> list[DeviceKey]:
    return [entry.key for entry in entries if place in _places(entry)]


def _at_or_below(place: str, entries: Iterable[Entry]) -> list[DeviceKey]:
    return [
        entry.key for entry in entries if any(f"{function}/".startswith(f"{place}/") for function in _places(entry))
    ]


def _above(place: str, entries: Iterable[Entry]) -> list[DeviceKey]:
    """The devices whose function contains this place."""
    return [entry.key for entry in entries if any(place.startswith(f"{one}/") for one in _places(entry))]
