"""docs/health.md: what the registry of health sources says, and health.toml."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tables import table

from devherd._native import Finding, health_sources
from devherd.health import verdicts
from devherd.health.held import Held
from devherd.reasons.kernel_log_rules import Rule, shipped
from devherd.reasons.registry import MEANINGS, Meaning

HERE = Path(__file__).parent
UNKNOWN = "what health.toml does not say"
RECOVER_AFTER = 3
"""The default of `health.recover_after`."""

HEAD = """\
# Health

*Generated from the registry of sources by `make docs-pages`: what is said here is what devherd does.*

A source says what it sees of a device: a finding, with its reason, the file and the value. What a reason does is its
action: `unhealthy` takes the device out of the kubelet's hands, `warn` stands beside its health, `ignore` is counted
and shown. Each reason has a way back of its own, and no source that fails is held against a device. `health.rules`
changes action, `after` and `hold` by device, source, reason and value. `devherd explain RESOURCE DEVICE` shows what is
held against a device, and why it is not taken back yet.

`health.sources` switches sources off, which then read nothing: `health: {sources: {rdma-errors: false}}`. What the
scan and operators say cannot be switched off.

A *look* is a poll, each `health.poll`: a second by default. Each source below says how often it reads: each poll what
can make a device Unhealthy and is one small file, each tenth what may wake or block, what only warns, and what an event
reports, less often what keeps the card's firmware busy; and at once what an event or a record of the kernel log names.
Cards take turns at what is not read each time, so that no poll reads all of it. An attribute that has never been there
is looked for at each sixtieth poll: one that a driver brings is read at once, since an event tells of the driver, and
one of which no event tells a minute later at most, with the default of a second. What has been found in order is read
each time until it is taken back. What stands is taken back by good looks, what happened by what the table says. A
vendor's monitor looks when it answers: several polls between two answers are one look.
"""

AFTER_SOURCES = """\
## Rules of the kernel log

The first rule that matches a record decides; only records of the kernel count (facility 0). Rules that are off are
switched on by name in `health.kernel_log.optional`; your own are in `health.kernel_log.rules`, and raise `kernel-log`.
"""

NOT_READ = """\
## What is not read

What devices, drivers and the kernel tell besides, and why no source looks at it.
"""

AFTER_RULES = """\
## What others do

NVIDIA's plugin 0.20, gpud of August 2026 and NVSentinel of July 2026, by their sources.
"""


def page() -> str:
    """The whole page."""
    data = tomllib.loads((HERE / "health.toml").read_text("utf-8"))
    parts = [HEAD, "## Sources\n", *_sources(data["looks_at"], data["note"]), AFTER_SOURCES, _rules(shipped())]
    parts += [NOT_READ, _not_read(data["not_read"]), AFTER_RULES]
    parts += [_ways(data["way"]), _elsewhere(data["elsewhere"])]
    return "\n".join(parts)


def _sources(looks_at: Mapping[str, str], notes: Mapping[str, str]) -> Iterator[str]:
    sources = {source.name: source for source in health_sources()}
    for name in sorted({source for source, _ in MEANINGS}):
        source = sources[name]
        yield f"### `{name}`\n"
        read = f"{source.reads}, {source.pace}" if source.pace else source.reads
        yield f"Looks at {looks_at.get(name, UNKNOWN)}. Read: {read}. Documented: {source.document}.\n"
        yield _reasons({reason: meaning for (of, reason), meaning in MEANINGS.items() if of == name}, name)
        if name in notes:
            yield notes[name]


def _reasons(meanings: Mapping[str, Meaning], source: str) -> str:
    rows = []
    for reason, meaning in meanings.items():
        rows.append((f"`{reason}`", *_row(source, reason, meaning)))
        for values, one in _by_meaning(meaning.by_value):
            rows.append((f"`{reason}`: {values}", *_row(source, reason, one)))
    return table(("reason", "does", "raised when", "taken back when"), rows)


def _by_meaning(by_value: Mapping[str, Meaning]) -> Iterator[tuple[str, Meaning]]:
    """Values that do the same in one row."""
    alike: dict[tuple[object, ...], dict[str, Meaning]] = {}
    for value, meaning in by_value.items():
        same = meaning.action, meaning.clears, meaning.quiet_seconds, meaning.evidence, meaning.after, meaning.hold
        alike.setdefault(same, {})[value] = meaning
    for meanings in alike.values():
        thresholds = dict.fromkeys(meaning.threshold for meaning in meanings.values())
        yield ", ".join(meanings), replace(next(iter(meanings.values())), threshold="; ".join(thresholds))


def _row(source: str, reason: str, meaning: Meaning) -> tuple[str, str, str]:
    held = Held(Finding(source=source, reason=reason), meaning, 0.0, 0.0, 0.0, 0.0, "")
    after = f", for {meaning.after:g} s" if meaning.after else ""
    new = "; a warning where it stood at the first look" if meaning.only_when_new else ""
    return meaning.action, f"{meaning.threshold}{after}{new}", verdicts.way_back(held, RECOVER_AFTER)


def _rules(rules: Iterable[Rule]) -> str:
    rows = [(f"`{rule.name}`", f"`{rule.contains}`", _effect(rule), "off" if rule.optional else "on") for rule in rules]
    return table(("rule", "the text contains", "it", "default"), rows)


def _effect(rule: Rule) -> str:
    if rule.reason:
        at_link = f", and `{rule.reason_at_link}` for the GPU at that link" if rule.reason_at_link else ""
        return f"raises `{rule.reason}`" + (f" for every device of {rule.vendor}" if rule.vendor else "") + at_link
    if rule.evidence:
        return f"shows `{rule.evidence}`" + (f" for every device of {rule.vendor}" if rule.vendor else "")
    if rule.takes_back:
        return f"takes {', '.join(f'`{reason}`' for reason in rule.takes_back)} back"
    if rule.looks:
        return "has the card looked at"
    return "is counted" if "(?P<xid>" in rule.pattern else "tells the UUID of an address"


def _not_read(rows: Iterable[Mapping[str, str]]) -> str:
    return table(("of", "not read", "because"), [(row["of"], row["what"], row["because"]) for row in rows])


def _ways(ways: Iterable[Mapping[str, str]]) -> str:
    rows = [(way["of"], way["takes_out"], way["takes_back"], way["fails"]) for way in ways]
    return table(("", "takes out", "gives back", "when its source fails"), rows)


def _elsewhere(rows: Iterable[Mapping[str, Any]]) -> str:
    cells = [(f"`{row['reason']}`", row["plugin"], row["gpud"], row["nvsentinel"]) for row in rows]
    return table(("reason", "the vendor's plugin", "gpud", "NVSentinel"), cells)
