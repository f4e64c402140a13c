"""Files for others: CDI specs for container runtimes, device-info files for Multus, requests to sources."""

import contextlib
import json
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from devherd import cdi, spool
from devherd._native import Edits, Finding, Platform
from devherd.cdi import CdiDirectory
from devherd.config.resolved import ResolvedConfig
from devherd.health.held import Seen
from devherd.inventory import CDI, DEVICE_PLUGIN, DeviceKey, Entry, Inventory
from devherd.log import Once
from devherd.offers.made import MadeOffer
from devherd.proto import spool_pb2
from devherd.reasons.registry import CDI as CDI_SOURCE
from devherd.reasons.registry import CDI_UNWRITABLE, OF_OPERATORS
from devherd.settings import Settings

log = logging.getLogger(__name__)

_READABLE_BY_ALL = 0o444


class EditsByWay(Protocol):
    """Returns the edits of a device by a way, under a resource name; None if its vendor is switched off."""

    def __call__(self, entry: Entry, resource_name: str, *, way: str) -> Edits | None:
        """`way`: `device-plugin` or `cdi`."""


class CdiSpecs:
    """CDI specs: written before a device is advertised, kept as long as a pod may need them (`devherd.cdi`)."""

    def __init__(self, config: ResolvedConfig) -> None:
        self._directory = CdiDirectory(config.cdi_directory, config.host_root)
        self._wanted_for: object = None
        """The version of the inventory and the ways for which the directory was last told its content."""
        self._known: dict[DeviceKey, tuple[Entry, Mapping[str, Edits]]] = {}
        """By device: its entry and specs, made for `_known_for`."""
        self._known_for: tuple[Mapping[str, Platform], Mapping[str, str], Sequence[str]] = {}, {}, ()
        """By vendor: the data that its devices share, and its options; the ways."""
        self.unwritten: list[tuple[Entry, OSError]] = []

    def withdraw(
        self, forgotten: Collection[Entry], kept: Iterable[Entry], ways: Sequence[str], edits_of: EditsByWay
    ) -> None:
        """Drop the specs of forgotten devices, also those of a way that is no longer among the `ways` in use.

        Of these, names that `kept` devices have as well stay: pods may hold them. `publish` restores those in use.
        """
        in_use = {name for entry in forgotten for name in _specs(entry, ways, edits_of)}
        earlier = (_names(forgotten, edits_of) & self._directory.names) - in_use
        if earlier:
            earlier -= _names(kept, edits_of)
        self._directory.withdraw(in_use | earlier)

    def publish(self, inventory: Inventory, ways: Sequence[str], edits_of: EditsByWay) -> None:
        """Bring the specs up to date with the devices, for all `ways` in use; removed specs are written again."""
        wanted_for = inventory.version, ways
        if self._wanted_for != wanted_for:
            entries = self._entries(inventory, ways, edits_of)
            # If several devices have edits for one name, the first counts. A device without findings has complete
            # edits.
            in_order = sorted(entries, key=lambda entry: bool(entry.findings))
            known: dict[str, cdi.ContainerEdits] = {}
            self._directory.want(
                [_brought(self._known[entry.key][1], known) for entry in in_order if entry.gone_since is None],
                [_brought(self._known[entry.key][1], known) for entry in in_order if entry.gone_since is not None],
            )
            self._wanted_for = wanted_for
        failed = self._directory.publish()
        self.unwritten = [
            (entry, errors[0])
            for entry, specs in (self._known.values() if failed else ())
            if (errors := [failed[name] for name in specs if name in failed])
        ]

    def _entries(self, inventory: Inventory, ways: Sequence[str], edits_of: EditsByWay) -> list[Entry]:
        """The entries that have specs; specs are made only for new entries."""
        known_for = inventory.platforms, inventory.vendor_options, ways
        before = self._known if known_for == self._known_for else {}
        self._known, self._known_for = {}, known_for
        for key, entry in inventory.entries.items():
            known = before.get(key)
            self._known[key] = known if known and known[0] is entry else (entry, _specs(entry, ways, edits_of))
        return [entry for entry, specs in self._known.values() if specs]

    def take_in(self, seen: Seen) -> list[spool_pb2.Problem]:
        """Add a finding to each device whose specs could not be written; returns these as problems, too."""
        for entry, error in self.unwritten:
            seen.add(entry.key, [_finding(error)])
        return [_problem(entry, error) for entry, error in self.unwritten]


def _specs(entry: Entry, ways: Sequence[str], edits_of: EditsByWay) -> Mapping[str, Edits]:
    """The specs of a device for all ways that offer it.

    The device plugin may name a device in CDI for a part of its edits only; by CDI its spec has all of them.
    """
    specs: dict[str, Edits] = {}
    for way in sorted(ways, key=CDI.__eq__):
        if way not in entry.left_out and (edits := edits_of(entry, entry.resource_name, way=way)) is not None:
            specs |= edits.specs
    return specs


def _names(entries: Iterable[Entry], edits_of: EditsByWay) -> set[str]:
    """The names in the specs of devices, in whatever way."""
    made = (edits_of(entry, entry.resource_name, way=way) for entry in entries for way in (DEVICE_PLUGIN, CDI))
    return {name for edits in made if edits is not None for name in edits.specs}


def _brought(specs: Mapping[str, Edits], known: dict[str, cdi.ContainerEdits]) -> dict[str, cdi.ContainerEdits]:
    """The CDI edits of a device by name; edits in `known`, from earlier devices, are reused."""
    for name, edits in specs.items():
        if name not in known:
            known[name] = cdi.container_edits(edits)
    return {name: known[name] for name in specs}


def _finding(error: OSError) -> Finding:
    return Finding(
        source=CDI_SOURCE,
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


class DeviceInfo:
    """Device-info files in one directory. Files of an earlier instance are overwritten one by one."""

    def __init__(self) -> None:
        self.written: dict[Path, str] = {}

    def is_intact(self) -> bool:
        """Whether all files exist: the SR-IOV plugin removes files with its names when it stops."""
        return all(path.exists() for path in self.written)

    def publish(self, directory: Path | None, offers: Iterable[MadeOffer]) -> list[spool_pb2.Problem]:
        """Write the files for the RDMA functions in these offers, and remove the others that this process wrote.

        A file that cannot be written is a problem of its resource.
        """
        wanted = {} if directory is None else files(directory, offers)
        for path in self.written.keys() - wanted.keys():
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            del self.written[path]
        problems: dict[str, spool_pb2.Problem] = {}
        for path, (resource_name, text) in wanted.items():
            try:
                self._put(path, text)
            except OSError as error:
                problems.setdefault(resource_name, _device_info_problem(resource_name, path, error))
        return list(problems.values())

    def _put(self, path: Path, text: str) -> None:
        if self.written.get(path) == text and path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        spool.replace(path, text.encode(), _READABLE_BY_ALL)
        self.written[path] = text


def files(directory: Path, offers: Iterable[MadeOffer]) -> dict[Path, tuple[str, str]]:
    """The resource name and the text of each file. Pure."""
    of_rdma = ((offer, key) for offer in offers for key in offer.devices if key[0] == "rdma")
    found = ((offer.name, offer.device(key)) for offer, key in of_rdma)
    return {
        directory / f"{name}-{device.id}-device.json".replace("/", "-"): (name, _text(device)) for name, device in found
    }


def _text(device: spool_pb2.Device) -> str:
    pci = {"pci-address": device.id, "rdma-device": device.attributes["ibdev"]}
    return json.dumps({"type": "pci", "version": "1.1.0", "pci": pci}, separators=(",", ":"))


def _device_info_problem(resource_name: str, path: Path, error: OSError) -> spool_pb2.Problem:
    cure = "Multus has no information on the device for pods; if devherd runs in a pod, mount the directory in it"
    return spool_pb2.Problem(
        vendor="rdma", path=resource_name, error=f"{path} cannot be written: {error.strerror or error}: {cure}"
    )


_REQUEST_SUFFIX = ".json"


class SourceRequests:
    """Writes `<run-dir>/requests`, and makes the directories for the answers, so that they can be watched."""

    def __init__(self, settings: Settings) -> None:
        self._directory = settings.requests_directory
        findings = settings.findings_directory
        self._operators = (findings, *(findings / source for source in OF_OPERATORS))
        self._answers = (self._directory, settings.facts_directory)
        self._unwritable = Once(log.error)

    def publish(self, to_sources: Mapping[str, str]) -> None:
        """Write exactly these requests, by source. A failed write is tried again with the next call."""
        requests = {f"{source}{_REQUEST_SUFFIX}": text for source, text in to_sources.items()}
        try:
            for directory in (*self._operators, *(self._answers if requests else ())):
                directory.mkdir(mode=0o700, exist_ok=True)
            for name, text in requests.items():
                spool.update(self._directory / name, text.encode())
            for file in self._directory.glob("[!.]*"):
                if file.name not in requests:
                    file.unlink(missing_ok=True)
        except OSError as error:
            text = "cannot write %s: %s; health checks go on with the previous list"
            self._unwritable.complain(text, self._directory, error, about=self._directory)
        else:
            self._unwritable.over()
