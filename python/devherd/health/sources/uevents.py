"""What device events of the kernel say of which devices. Pure: what comes out is what the policy takes in.

`ERROR_EVENT`, as the kernel sends it while it recovers a PCI function from an error:
https://docs.kernel.org/PCI/pci-error-recovery.html. A function whose driver takes no part is told of by nothing but the
failure of the port above it. `WEDGED`: https://docs.kernel.org/gpu/drm-uapi.html, device wedging. `ERROR`, of i915
alone, which sends no `WEDGED` before Linux 6.15: I915_ERROR_UEVENT of include/uapi/drm/i915_drm.h, 1 for a hang, 0 for
the reset that has helped.
"""

from collections.abc import Collection, Iterable, Mapping

from devherd._native import Finding
from devherd.health.clears import Evidence
from devherd.health.registry import HANGING, PCI_AER, PCI_AER_FATAL, PCI_RECOVERY, WEDGED
from devherd.health.seen import Seen
from devherd.inventory import DeviceKey, Entry

_APART_SECONDS = 1e-6
_EVIDENCE = {"bind": Evidence.REBOUND, "add": Evidence.READDED}
_RECOVERY = {
    "BEGIN_RECOVERY": "the kernel recovers the PCI function from an error",
    "FAILED_RECOVERY": "the kernel could not recover the PCI function from an error; reset the card or reboot",
}


def told(events: Iterable[Mapping[str, str]], entries: Collection[Entry], monotonic: float) -> Seen:
    """What events that came by this second say; those that somebody asked for in a `uevent` file say nothing.

    Each has a moment of its own, in their order: of a recovery that begins and ends between two looks the end counts.
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
            seen.cleared(key, WEDGED, WEDGED, monotonic)
        else:
            seen.happened(key, finding, monotonic)


def _at(place: str, entries: Iterable[Entry]) -> list[DeviceKey]:
    return [entry.key for entry in entries if place in entry.device.functions]


def _at_or_below(place: str, entries: Iterable[Entry]) -> list[DeviceKey]:
    return [
        entry.key
        for entry in entries
        if any(f"{function}/".startswith(f"{place}/") for function in entry.device.functions)
    ]


def _above(place: str, entries: Iterable[Entry]) -> list[DeviceKey]:
    """The devices whose function this is a part of."""
    return [entry.key for entry in entries if any(place.startswith(f"{one}/") for one in entry.device.functions)]
