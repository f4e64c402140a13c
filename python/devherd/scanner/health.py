"""Health as a set of reasons: Unhealthy at once, Healthy when the set is empty, after a run of good polls.

Pure: what is wrong now comes in, what is held against each device comes out. Every source of reasons can take them
back.
"""

from collections.abc import Collection, Iterable, Mapping

from devherd.scanner.inventory import DeviceKey

Faults = Mapping[DeviceKey, Collection[str]]
"""What is wrong right now, for the devices that are not in order."""


class Health:
    """The reasons held against each device, and for how many good polls yet."""

    def __init__(self, recover_after: int) -> None:
        self.recover_after = recover_after
        self._held: dict[DeviceKey, dict[str, int]] = {}

    def note(self, faults: Faults) -> None:
        """Hold these against their devices from now on; nothing recovers by it (an event came between two polls)."""
        for key, reasons in faults.items():
            if reasons:
                self._held.setdefault(key, {}).update(dict.fromkeys(reasons, self.recover_after))

    def observe(self, faults: Faults) -> None:
        """Take in a periodic poll: what it still finds is held afresh, what it does not find recovers by one poll."""
        for key, held in list(self._held.items()):
            current = faults.get(key, ())
            left = {reason: polls - 1 for reason, polls in held.items() if reason not in current and polls > 1}
            if left:
                self._held[key] = left
            else:
                del self._held[key]
        self.note(faults)

    def reasons(self, key: DeviceKey) -> tuple[str, ...]:
        """Why a device is Unhealthy, sorted; empty when it is Healthy."""
        return tuple(sorted(self._held.get(key, ())))

    def all_reasons(self) -> dict[DeviceKey, tuple[str, ...]]:
        """Every device that is not Healthy, with why."""
        return {key: self.reasons(key) for key in self._held}

    def forget_all_but(self, known: Collection[DeviceKey]) -> None:
        """Drop what is held against devices that are no longer known."""
        self._held = {key: held for key, held in self._held.items() if key in known}

    def restore(self, held: Iterable[tuple[DeviceKey, Collection[str]]]) -> None:
        """Go on with what an earlier scanner held; each reason has its run of good polls still before it."""
        self.note(dict(held))
