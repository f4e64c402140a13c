"""The CDI specs of the devices that a node knows: what each device brings, and which of it could not be written."""

from collections.abc import Mapping

from devherd._native import Edits, Finding
from devherd.cdi import spec
from devherd.cdi.directory import CdiDirectory
from devherd.config.resolved import Config
from devherd.health.registry import CDI, CDI_UNWRITABLE
from devherd.health.seen import Seen
from devherd.inventory import Entry, Inventory
from devherd.offers import device_plugin
from devherd.proto import spool_pb2


class CdiSpecs:
    """Written before a device is advertised, kept as long as a pod may need them (`cdi/directory.py`)."""

    def __init__(self, config: Config) -> None:
        self._directory = CdiDirectory(config.cdi_directory, config.host_root)
        self._wanted_for = -1  # no version of the inventory
        self._unwritten: list[tuple[Entry, OSError]] = []

    def withdraw(self, entry: Entry, edits_of: device_plugin.EditsOf) -> None:
        """Drop what a forgotten device brought."""
        self._directory.withdraw(_specs(entry, edits_of))

    def publish(self, inventory: Inventory, edits_of: device_plugin.EditsOf) -> None:
        """Bring the specs up to date with the devices; specs that somebody has removed are written again."""
        entries = inventory.entries.values()
        if self._wanted_for != inventory.version:
            # Of several devices with edits for one name the first counts: one that is well knows best.
            in_order = sorted(entries, key=lambda entry: bool(entry.findings))
            known: dict[str, spec.ContainerEdits] = {}
            self._directory.want(
                [_brought(entry, edits_of, known) for entry in in_order if entry.gone_since is None],
                [_brought(entry, edits_of, known) for entry in in_order if entry.gone_since is not None],
            )
            self._wanted_for = inventory.version
        failed = self._directory.publish()
        self._unwritten = [
            (entry, errors[0])
            for entry in (entries if failed else ())
            if (errors := [failed[name] for name in _specs(entry, edits_of) if name in failed])
        ]

    def take_in(self, seen: Seen) -> list[spool_pb2.Problem]:
        """Note the devices whose specs could not be written; each is a problem, too."""
        for entry, error in self._unwritten:
            seen.add(entry.key, [_finding(error)])
        return [_problem(entry, error) for entry, error in self._unwritten]


def _specs(entry: Entry, edits_of: device_plugin.EditsOf) -> Mapping[str, Edits]:
    edits = edits_of(entry, entry.resource_name)
    return edits.specs if edits else {}


def _brought(
    entry: Entry, edits_of: device_plugin.EditsOf, known: dict[str, spec.ContainerEdits]
) -> dict[str, spec.ContainerEdits]:
    """What a device brings by CDI; what it has in common with those before it is made once."""
    specs = _specs(entry, edits_of)
    for name, edits in specs.items():
        if name not in known:
            known[name] = spec.container_edits(edits)
    return {name: known[name] for name in specs}


def _finding(error: OSError) -> Finding:
    return Finding(
        source=CDI,
        reason=CDI_UNWRITABLE,
        detail="the CDI spec that names the device cannot be written",
        file=str(error.filename or ""),
        value=error.strerror or str(error),
    )


def _problem(entry: Entry, error: OSError) -> spool_pb2.Problem:
    return spool_pb2.Problem(
        vendor=entry.vendor,
        path=str(error.filename or ""),
        error=f"the CDI spec cannot be written: {error.strerror or error}",
        device=entry.device.id,
    )
