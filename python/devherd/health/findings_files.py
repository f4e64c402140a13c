"""`<run-dir>/findings/<source>/current.pb`: the findings of sources that run as separate processes."""

import logging
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from devherd import spool
from devherd._native import Finding
from devherd.config.resolved import Match
from devherd.health.policy import Now, Seen
from devherd.health.registry import MEANINGS
from devherd.inventory import DeviceKey, Entry
from devherd.proto import health_pb2
from devherd.selection import facts_of, selects
from devherd.spool.identity import Identity, identity_of

log = logging.getLogger(__name__)


class FindingsFiles:
    """Their one reader: a file is read again when it has changed."""

    def __init__(self, directory: Path | None) -> None:
        """Without a directory there are no such sources."""
        self._directory = directory
        self._known: dict[str, tuple[Identity, health_pb2.Findings]] = {}

    def read(self, sources: Iterable[str], now: Now) -> dict[str, health_pb2.Findings]:
        """What each of these sources says, by source; those that have said nothing yet, in this boot, are left out.

        A file that cannot be read leaves what it said before.
        """
        if self._directory is None:
            return {}
        for source in sources:
            self._read(self._directory, source)
        said = {source: self._known[source][1] for source in sources if source in self._known}
        return {source: findings for source, findings in said.items() if findings.boot_id in {"", now.boot_id}}

    def _read(self, directory: Path, source: str) -> None:
        file = spool.path_of(directory, source)
        identity = identity_of(file)
        if identity is None:
            self._known.pop(source, None)
        elif source not in self._known or self._known[source][0] != identity:
            try:
                self._known[source] = identity, _registered(source, spool.read(file, health_pb2.Findings))
            except (FileNotFoundError, spool.SpoolError) as error:
                log.warning("cannot read the findings of source %s: %s; keeping its last findings", source, error)

    def directories(self) -> list[str]:
        """Existing directories in which files change."""
        if self._directory is None or not self._directory.is_dir():
            return []
        return [str(path) for path in sorted(self._directory.iterdir()) if path.is_dir() and path.name[0] != "."]


def take_in(
    seen: Seen, said: Mapping[str, health_pb2.Findings], entries: Collection[Entry], scopes: Mapping[str, Match]
) -> None:
    """Add what sources say to what is seen on these devices; a source that cannot look adds nothing.

    A source of `scopes` may speak of these devices only, and means all of them where it names none.
    """
    for source, findings in said.items():
        if findings.failed:
            seen.failed[source] = findings.failed
            continue
        scope = scopes.get(source) if findings.findings else None
        known = entries if scope is None else [entry for entry in entries if selects(scope, facts_of(entry))]
        for finding in findings.findings:
            is_said_of_all = scope is not None and not finding.at.ByteSize()
            for key in [entry.key for entry in known] if is_said_of_all else targets(finding.at, known):
                seen.add(key, [_finding(source, finding)])


def targets(at: health_pb2.Target, entries: Iterable[Entry]) -> list[DeviceKey]:
    """The devices for which every part holds that a target gives; none for a target that gives no part."""
    if not at.ByteSize():
        return []
    return [entry.key for entry in entries if _is_target(at, entry)]


def _is_target(at: health_pb2.Target, entry: Entry) -> bool:
    device = entry.device
    return (
        at.vendor in {"", device.vendor}
        and at.card in {"", device.card}
        and at.device in {"", device.id}
        and (not at.uuid or at.uuid == device.attributes.get("uuid"))
        and (not at.pci_address or _is_at(at.pci_address, device.attributes.get("pci_address", "")))
    )


def _is_at(wanted: str, addresses: str) -> bool:
    """Whether one of a device's functions, with commas between, is the wanted one, or of the wanted PCI device."""
    known = addresses.split(",")
    return any(address == wanted or address.rpartition(".")[0] == wanted for address in known)


def _registered(source: str, findings: health_pb2.Findings) -> health_pb2.Findings:
    """The findings whose words are registered for the source."""
    unknown = {finding.reason for finding in findings.findings if (source, finding.reason) not in MEANINGS}
    if unknown:
        log.error("source %s: unknown reasons: %s; they are ignored", source, ", ".join(sorted(unknown)))
        kept = [finding for finding in findings.findings if finding.reason not in unknown]
        del findings.findings[:]
        findings.findings.extend(kept)
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
