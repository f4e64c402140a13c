"""`<run-dir>/findings/<source>/current.pb`: findings of sources that are processes, and the devices they are about."""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from devherd import spool
from devherd._native import Evidence, Finding
from devherd.config.resolved import facts_of, selects
from devherd.config.sections import Match
from devherd.health.held import Now, Seen
from devherd.inventory import DeviceKey, Entry
from devherd.proto import health_pb2
from devherd.reasons.registry import MEANINGS, OF_OPERATORS, OPERATOR, meaning_of
from devherd.spool import Identity, identity_of


def targets(at: health_pb2.Target, entries: Iterable[Entry]) -> list[DeviceKey]:
    """The devices that match every part of a target; none for a target without parts.

    An instance of a GPU is no part by itself: it leaves out partitions of other instances.
    """
    if not (at.vendor or at.card or at.device or at.pci_address or at.uuid):
        return []
    return [entry.key for entry in entries if _is_target(at, entry)]


class Named:
    """An index of the devices by the parts that targets use most: no finding is compared with every device."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._all = list(entries)
        self._by_part: dict[tuple[str, str], list[Entry]] | None = None

    @property
    def keys(self) -> list[DeviceKey]:
        """All of them."""
        return [entry.key for entry in self._all]

    def targets(self, at: health_pb2.Target) -> list[DeviceKey]:
        """The same as the function of this name."""
        if self._by_part is None:  # made at the first finding: most sources have none
            self._by_part = defaultdict(list)
            for entry in self._all:
                for part in _parts_of(entry):
                    self._by_part[part].append(entry)
        wanted = [("device", at.device), ("pci_address", at.pci_address), ("uuid", at.uuid), ("card", at.card)]
        narrowest = next((part for part in wanted if part[1]), ("vendor", at.vendor))
        return targets(at, self._by_part.get(narrowest, ()))


def _parts_of(entry: Entry) -> Iterator[tuple[str, str]]:
    device = entry.device
    yield from (
        ("vendor", device.vendor),
        ("device", device.id),
        ("card", device.card),
        ("uuid", device.attributes.get("uuid", "")),
    )
    for address in device.attributes.get("pci_address", "").split(","):
        yield from {("pci_address", address), ("pci_address", address.rpartition(".")[0])}


def _is_target(at: health_pb2.Target, entry: Entry) -> bool:
    device = entry.device
    return (
        at.vendor in {"", device.vendor}
        and at.card in {"", device.card}
        and at.device in {"", device.id}
        and (not at.uuid or at.uuid == device.attributes.get("uuid"))
        and _is_part(at, device.attributes)
        and (not at.partition or at.partition == device.attributes.get("partition"))
        and (not at.pci_address or _is_at(at.pci_address, device.attributes.get("pci_address", "")))
    )


def _is_part(at: health_pb2.Target, attributes: Mapping[str, str]) -> bool:
    """True if a device is, or contains, the wanted instance of a GPU; an unpartitioned device contains every one."""
    return at.gpu_instance in {"", attributes.get("gpu_instance", at.gpu_instance)} and at.compute_instance in {
        "",
        attributes.get("compute_instance", at.compute_instance),
    }


def _is_at(wanted: str, addresses: str) -> bool:
    """True if one of a device's functions (comma-separated) is the wanted function, or is of the wanted PCI device."""
    known = addresses.split(",")
    return any(address == wanted or address.rpartition(".")[0] == wanted for address in known)


log = logging.getLogger(__name__)


_UNREADABLE = "its findings cannot be read: {error}: restart source:{source} if they are not written again"
_REMOVED = "its findings were removed: restart source:{source} if they are not written again"


class FindingsFiles:
    """Reads all of these files, each again when it has changed."""

    def __init__(self, directory: Path | None) -> None:
        """`directory`: None if there are no such sources."""
        self._directory = directory
        self._known: dict[str, tuple[Identity | None, health_pb2.Findings]] = {}
        """By source: the version of its file that was read last (None after a removal), and its findings."""

    def read(self, sources: Collection[str], now: Now) -> dict[str, health_pb2.Findings]:
        """The findings of these sources, by source; without those that have reported nothing in this boot.

        A source whose file cannot be read, or was removed, has failed: it takes nothing back. An operator's word is the
        file itself, and goes with it.
        """
        if self._directory is None:
            return {}
        self._known = {source: known for source, known in self._known.items() if source in sources}
        for source in sources:
            self._read(self._directory, source)
        known = {source: self._known[source][1] for source in sources if source in self._known}
        return {source: findings for source, findings in known.items() if findings.boot_id in {"", now.boot_id}}

    def _read(self, directory: Path, source: str) -> None:
        file = spool.path_of(directory, source)
        identity = identity_of(file)
        if identity is None and source in OF_OPERATORS:
            self._known.pop(source, None)
        elif identity is None:
            self._note_removal(source)
        elif source not in self._known or self._known[source][0] != identity:
            try:
                self._known[source] = identity, _registered(source, spool.read(file, health_pb2.Findings))
            except FileNotFoundError:
                self._note_removal(source)
            except spool.SpoolError as error:
                log.warning("cannot read the findings of source %s: %s; the earlier ones stay in force", source, error)
                self._known[source] = identity, _failed(source, _UNREADABLE, error=error)

    def _note_removal(self, source: str) -> None:
        before, findings = self._known.get(source, (None, None))
        if before is None or findings is None:
            return
        log.warning("the findings of source %s were removed; they stay in force", source)
        removed = _failed(source, _REMOVED)
        removed.boot_id, removed.timestamp_seconds = findings.boot_id, findings.timestamp_seconds
        self._known[source] = None, removed

    def directories(self) -> list[str]:
        """Existing directories in which files change."""
        if self._directory is None or not self._directory.is_dir():
            return []
        return [str(path) for path in sorted(self._directory.iterdir()) if path.is_dir() and path.name[0] != "."]


def take_in(
    seen: Seen, files: Mapping[str, health_pb2.Findings], entries: Collection[Entry], scopes: Mapping[str, Match]
) -> None:
    """Add the findings of sources to a look at these devices; a source that cannot look adds nothing.

    A source of `scopes` may speak of these devices only, and means all of them where it names none.
    """
    named = Named(entries)
    for source, findings in files.items():
        if source not in OF_OPERATORS:
            seen.reported[source] = findings.timestamp_seconds
        if findings.failed:
            seen.failed[source] = findings.failed
            if findings.lets_go:
                seen.let_go.add(source)
            continue
        scope = scopes.get(source) if findings.findings else None
        known = named if scope is None else Named(entry for entry in entries if selects(scope, facts_of(entry)))
        for message in findings.findings:
            finding = _finding(source, message)
            is_dated = message.last_monotonic_seconds and meaning_of(finding).is_event
            is_about_all = scope is not None and not message.at.ByteSize()
            for key in known.keys if is_about_all else known.targets(message.at):
                seen.add(key, [finding])
                if is_dated:
                    seen.last_at[key, finding] = message.last_monotonic_seconds
        for statement in findings.evidence:
            for key in named.targets(statement.at):
                _state(seen, key, source, statement)


def _state(seen: Seen, key: DeviceKey, source: str, statement: health_pb2.Evidence) -> None:
    if statement.evidence == Evidence.SOURCE_CLEARED:
        seen.cleared(key, source, statement.reason, statement.monotonic_seconds)
    elif source == OPERATOR:
        seen.cleared_by_operator(key, statement.reason, statement.monotonic_seconds)
    else:
        seen.evident(key, statement.evidence, statement.monotonic_seconds)


def _failed(source: str, why: str, error: Exception | None = None) -> health_pb2.Findings:
    return health_pb2.Findings(source=source, failed=why.format(source=source, error=error))


def _registered(source: str, findings: health_pb2.Findings) -> health_pb2.Findings:
    """The findings and statements of the source whose reasons are registered."""
    unknown = {finding.reason for finding in findings.findings if (source, finding.reason) not in MEANINGS}
    if unknown:
        log.error("source %s: unknown reasons: %s; they are ignored", source, ", ".join(sorted(unknown)))
        kept = [finding for finding in findings.findings if finding.reason not in unknown]
        del findings.findings[:]
        findings.findings.extend(kept)
    strange = {statement.evidence for statement in findings.evidence} - Evidence.ALL
    if strange:
        log.error("source %s: unknown evidence: %s; it is ignored", source, ", ".join(sorted(strange)))
        known = [statement for statement in findings.evidence if statement.evidence not in strange]
        del findings.evidence[:]
        findings.evidence.extend(known)
    return findings


def _finding(source: str, finding: health_pb2.Finding) -> Finding:
    return Finding(
        source=source,
        reason=finding.reason,
        detail=finding.detail,
        file=finding.file,
        value=finding.value,
        count=finding.count,
    )
