"""`<run-dir>/findings/<source>/current.pb`: the findings of sources that run as separate processes."""

import logging
from collections.abc import Collection, Mapping
from pathlib import Path

from devherd import spool
from devherd._native import Finding
from devherd.config.resolved import Match
from devherd.health.clears import Evidence, Level
from devherd.health.registry import MEANINGS, OF_OPERATORS, OPERATOR, meaning_of
from devherd.health.seen import Now, Seen
from devherd.health.targets import Named
from devherd.inventory import DeviceKey, Entry
from devherd.proto import health_pb2
from devherd.selection import facts_of, selects
from devherd.spool.identity import Identity, identity_of

log = logging.getLogger(__name__)


_UNREADABLE = "its findings cannot be read: {error}: restart source:{source} if they are not written again"
_REMOVED = "its findings were removed: restart source:{source} if they are not written again"


class FindingsFiles:
    """Their one reader: a file is read again when it has changed."""

    def __init__(self, directory: Path | None) -> None:
        """Without a directory there are no such sources."""
        self._directory = directory
        self._known: dict[str, tuple[Identity | None, health_pb2.Findings]] = {}
        """By source: which version of its file was read last, None where that was removed, and what it says."""

    def read(self, sources: Collection[str], now: Now) -> dict[str, health_pb2.Findings]:
        """What each of these sources says, by source; those that have said nothing yet, in this boot, are left out.

        A source whose file cannot be read, or was removed, has failed: it takes nothing back. An operator's word is the
        file itself, and goes with it.
        """
        if self._directory is None:
            return {}
        self._known = {source: known for source, known in self._known.items() if source in sources}
        for source in sources:
            self._read(self._directory, source)
        said = {source: self._known[source][1] for source in sources if source in self._known}
        return {source: findings for source, findings in said.items() if findings.boot_id in {"", now.boot_id}}

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
                log.warning("cannot read the findings of source %s: %s; what it said stands", source, error)
                self._known[source] = identity, _failed(source, _UNREADABLE, error=error)

    def _note_removal(self, source: str) -> None:
        before, said = self._known.get(source, (None, None))
        if before is None or said is None:
            return
        log.warning("the findings of source %s were removed; what it said stands", source)
        removed = _failed(source, _REMOVED)
        removed.boot_id, removed.timestamp_seconds = said.boot_id, said.timestamp_seconds
        self._known[source] = None, removed

    def directories(self) -> list[str]:
        """Existing directories in which files change."""
        if self._directory is None or not self._directory.is_dir():
            return []
        return [str(path) for path in sorted(self._directory.iterdir()) if path.is_dir() and path.name[0] != "."]


def take_in(
    seen: Seen, files: Mapping[str, health_pb2.Findings], entries: Collection[Entry], scopes: Mapping[str, Match]
) -> None:
    """Add what sources say to what is seen on these devices; a source that cannot look adds nothing.

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
        for said in findings.findings:
            finding = _finding(source, said)
            is_dated = said.last_monotonic_seconds and not isinstance(meaning_of(finding).clears, Level)
            is_said_of_all = scope is not None and not said.at.ByteSize()
            for key in known.keys if is_said_of_all else known.targets(said.at):
                seen.add(key, [finding])
                if is_dated:
                    seen.last_at[key, finding] = said.last_monotonic_seconds
        for statement in findings.evidence:
            for key in named.targets(statement.at):
                _state(seen, key, source, statement)


def _state(seen: Seen, key: DeviceKey, source: str, statement: health_pb2.Evidence) -> None:
    if statement.evidence == Evidence.SOURCE_CLEARED:
        seen.cleared(key, source, statement.reason, statement.monotonic_seconds)
    elif source == OPERATOR:
        seen.cleared_by_operator(key, statement.reason, statement.monotonic_seconds)
    else:
        seen.evident(key, Evidence(statement.evidence), statement.monotonic_seconds)


def _failed(source: str, why: str, error: Exception | None = None) -> health_pb2.Findings:
    return health_pb2.Findings(source=source, failed=why.format(source=source, error=error))


def _registered(source: str, findings: health_pb2.Findings) -> health_pb2.Findings:
    """What the source says in words that are registered."""
    unknown = {finding.reason for finding in findings.findings if (source, finding.reason) not in MEANINGS}
    if unknown:
        log.error("source %s: unknown reasons: %s; they are ignored", source, ", ".join(sorted(unknown)))
        kept = [finding for finding in findings.findings if finding.reason not in unknown]
        del findings.findings[:]
        findings.findings.extend(kept)
    strange = {statement.evidence for statement in findings.evidence} - set(Evidence)
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
