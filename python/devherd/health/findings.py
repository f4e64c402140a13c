"""`<run-dir>/findings/<source>/current.pb`: findings of sources in separate processes, and their devices."""

import bisect
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from devherd import spool
from devherd._native import Evidence, Finding
from devherd.config.resolved import facts_of, selects
from devherd.config.sections import Match
from devherd.health.held import Seen
from devherd.inventory import DeviceKey, Entry
from devherd.proto import health_pb2
from devherd.reasons.registry import MEANINGS, OF_OPERATORS, OPERATOR, meaning_of
from devherd.spool import Identity, identity_of
from devherd.text import amount


def targets(at: health_pb2.Target, entries: Iterable[Entry]) -> list[DeviceKey]:
    """The devices that match every part of a target; none for a target without parts.

    A GPU instance alone selects nothing; together with another part it excludes partitions of other instances.
    """
    if not (at.vendor or at.card or at.device or at.pci_address or at.uuid):
        return []
    return [entry.key for entry in entries if _is_target(at, entry)]


class Named:
    """An index of the devices by the most used parts of targets: no finding has to be compared with every device."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._all = list(entries)
        self._by_part: dict[tuple[str, str], list[Entry]] | None = None
        self._by_link: dict[str, list[DeviceKey]] | None = None

    @property
    def keys(self) -> list[DeviceKey]:
        """The keys of all devices."""
        return [entry.key for entry in self._all]

    def targets(self, at: health_pb2.Target) -> list[DeviceKey]:
        """As the function `targets`, but uses the index."""
        if self._by_part is None:  # made at the first finding: most sources have none
            self._by_part = defaultdict(list)
            for entry in self._all:
                for part in _parts_of(entry):
                    self._by_part[part].append(entry)
        wanted = [("device", at.device), ("pci_address", at.pci_address), ("uuid", at.uuid), ("card", at.card)]
        narrowest = next((part for part in wanted if part[1]), ("vendor", at.vendor))
        return targets(at, self._by_part.get(narrowest, ()))

    def at_link(self, switch: str, link: int) -> list[DeviceKey]:
        """The devices of the GPU that the link of an NVSwitch leads to."""
        if self._by_link is None:
            self._by_link = defaultdict(list)
            for entry in self._all:
                for port in filter(None, entry.device.attributes.get("nvswitch_ports", "").split(",")):
                    self._by_link[port].append(entry.key)
        return self._by_link.get(f"{switch}/{link}", [])

    def meant(self, at: health_pb2.Target) -> list[DeviceKey]:
        """As `targets`, but also accepts an id or UUID in another case, a share's id, and the beginning of a UUID.

        The beginning must match exactly one UUID.
        """
        named = self.targets(at)
        if named or not (at.device or at.uuid):
            return named
        meant = health_pb2.Target()
        meant.CopyFrom(at)
        device = at.device.casefold()
        meant.device = self._ids.get(device) or self._ids.get(_REPLICA.sub("", device), at.device)
        meant.uuid = self._begun(at.uuid.casefold()) or at.uuid
        return self.targets(meant)

    def _begun(self, beginning: str) -> str:
        """The UUID with this beginning; empty if none or several match, or if the beginning is empty."""
        begins = bisect.bisect_left(self._uuids, beginning, key=str.casefold)
        two = [uuid for uuid in self._uuids[begins : begins + 2] if uuid.casefold().startswith(beginning)]
        is_one = beginning and (len(two) == 1 or (two and two[0].casefold() == beginning))
        return two[0] if is_one else ""

    @cached_property
    def _ids(self) -> dict[str, str]:
        """The id of a device, by its own id and by the ids of its shares, all case-folded."""
        devices = [entry.device for entry in self._all]
        return {share.casefold(): one.id for one in devices for share in one.shares} | {
            one.id.casefold(): one.id for one in devices
        }

    @cached_property
    def _uuids(self) -> list[str]:
        uuids = {entry.device.attributes.get("uuid", "") for entry in self._all}
        return sorted(uuids - {""}, key=str.casefold)


_REPLICA = re.compile(r"::\d+\Z")
"""The end of the id of a replica: `devherd.spool.ids_of`."""


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
    """Reads the findings files; a file is read again when it has changed."""

    def __init__(self, directory: Path | None) -> None:
        """`directory`: None if no sources run in separate processes."""
        self._directory = directory
        self._known: dict[str, tuple[Identity | None, health_pb2.Findings]] = {}
        """By source: the version of its file that was read last (None after a removal), and its findings."""
        self._looked_for: frozenset[str] = frozenset()
        self._directories: list[str] = []

    def read(self, sources: Collection[str], boot_id: str, *, looks: bool = True) -> dict[str, health_pb2.Findings]:
        """The findings of these sources, by source; without sources that have reported nothing in this boot.

        Without `looks`, the files are taken as unchanged since the last call.

        If the file of a source cannot be read or was removed, the source has failed: its findings stay held. If an
        operator's file was removed, its findings end.
        """
        if self._directory is None:
            return {}
        self._known = {source: known for source, known in self._known.items() if source in sources}
        for source in sources if looks else self._looked_for.symmetric_difference(sources).intersection(sources):
            self._read(self._directory, source)
        self._looked_for = frozenset(sources)
        known = {source: self._known[source][1] for source in sources if source in self._known}
        return {source: findings for source, findings in known.items() if findings.boot_id in {"", boot_id}}

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
            except (OSError, spool.SpoolError) as error:
                failed = _failed(source, _UNREADABLE, error=error)
                if source not in self._known or self._known[source][1] != failed:
                    log.warning(
                        "cannot read the findings of source %s: %s; the earlier ones stay in force", source, error
                    )
                is_read = isinstance(error, spool.SpoolError)  # else no descriptor is left: it is read again
                self._known[source] = identity if is_read else None, failed

    def _note_removal(self, source: str) -> None:
        before, findings = self._known.get(source, (None, None))
        if before is None or findings is None:
            return
        log.warning("the findings of source %s were removed; they stay in force", source)
        removed = _failed(source, _REMOVED)
        removed.boot_id, removed.timestamp_seconds = findings.boot_id, findings.timestamp_seconds
        self._known[source] = None, removed

    def directories(self) -> list[str]:
        """Existing directories in which files change, and their parent directory.

        While no descriptor is left to list them, the directories of the last look.
        """
        if self._directory is None or not self._directory.is_dir():
            return []
        with suppress(OSError):
            below = [path for path in sorted(self._directory.iterdir()) if path.is_dir() and path.name[0] != "."]
            self._directories = [str(path) for path in (self._directory, *below)]
        return self._directories


MOST_A_DEVICE = 20
"""Limit of the findings of an operator's program or file that count against one device."""


def take_in(
    seen: Seen, files: Mapping[str, health_pb2.Findings], entries: Collection[Entry], scopes: Mapping[str, Match]
) -> None:
    """Add the findings of sources to a look at these devices; a source that cannot check adds nothing.

    A source in `scopes` can only report on the devices that its match selects. Its finding concerns all of them if it
    names no device.
    """
    named = Named(entries)
    for source, findings in files.items():
        if source not in OF_OPERATORS:
            seen.reported[source] = findings.timestamp_seconds
        if findings.look_monotonic_seconds:
            seen.looks[source] = findings.look_monotonic_seconds
        errors = [*findings.report_errors]
        if findings.failed:
            _note_failure(seen, source, findings)
        elif source in scopes and findings.findings:
            own = Named(entry for entry in entries if selects(scopes[source], facts_of(entry)))
            errors += _take_in_operators(seen, source, findings, own)
        else:
            _take_in_findings(seen, source, findings, named)
        if errors:
            seen.report_errors[source] = errors


def _note_failure(seen: Seen, source: str, findings: health_pb2.Findings) -> None:
    seen.failed[source] = findings.failed
    if findings.lets_go:
        seen.let_go.add(source)
    if findings.lets_go_after_seconds:
        seen.lets_go_after[source] = findings.lets_go_after_seconds


def _take_in_operators(seen: Seen, source: str, findings: health_pb2.Findings, known: Named) -> list[str]:
    """Add the findings of an operator's program or file about its devices. Returns what is wrong with ignored ones."""
    counted: Counter[DeviceKey] = Counter()
    nameless: list[health_pb2.Finding] = []
    crowded: set[DeviceKey] = set()
    for message in findings.findings:
        keys = known.meant(message.at) if message.at.ByteSize() else known.keys
        if message.at.ByteSize() and not keys:
            nameless.append(message)
        with_room = [key for key in keys if counted[key] < MOST_A_DEVICE]
        crowded.update(keys if len(with_room) < len(keys) else ())
        counted.update(with_room)
        finding = _finding(source, message)
        for key in with_room:
            seen.add(key, [finding])
    errors = [_about_nameless(nameless)] if nameless else []
    if crowded:
        errors.append(f"{amount(len(crowded), 'device')} with more than {MOST_A_DEVICE} findings: only these count")
    return errors


def _about_nameless(nameless: Sequence[health_pb2.Finding]) -> str:
    first = nameless[0]
    parts = [f"{field.name.removesuffix('_address')} {value}" for field, value in first.at.ListFields()]
    names = "1 finding names" if len(nameless) == 1 else f"{len(nameless)} findings name"
    return f"{names} no device of `match`, first: {', '.join(parts)}: {first.value or first.detail}"


def _take_in_findings(seen: Seen, source: str, findings: health_pb2.Findings, known: Named) -> None:
    for message in findings.findings:
        finding = _finding(source, message)
        is_dated = message.last_monotonic_seconds and meaning_of(finding).is_event
        for key in known.targets(message.at):
            seen.add(key, [finding])
            if is_dated:
                seen.last_at[key, finding] = message.last_monotonic_seconds
    for statement in findings.evidence:
        for key in known.targets(statement.at):
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
    """The findings of a source with registered reasons, and its statements with known evidence."""
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
