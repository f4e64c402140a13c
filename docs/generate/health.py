"""docs/health.md: what the registry of health sources says, and health.toml."""

import textwrap
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
from devherd.reasons.xids import CATALOGUE as XIDS
from devherd.reasons.xids import XID

HERE = Path(__file__).parent
UNKNOWN = "what health.toml does not say"
RECOVER_AFTER = 3
"""The default of `health.recover_after`."""

RESTART = "rebinding its driver, removing and re-adding it, a reboot"
"""The three kinds of evidence that a device was started again, as they are listed together."""

HEAD = """\
# Health

*Generated from the registry of sources by `make docs-pages`.*

Sources check devices. What a source observes is a finding: a reason, the file and the value. Each reason has an
action: `unhealthy` (the kubelet gives the device to no new pod), `warn` (shown, the device stays Healthy) or `ignore`
(counted only). Each reason also has its own end. A source that fails makes no device Unhealthy. `health.rules`
changes action, `after` and `hold` by device, source, reason and value. `devherd explain RESOURCE DEVICE` shows the
findings of a device, and why they have not ended.

`health.sources` switches sources off: `health: {sources: {rdma-errors: false}}`. Those of scans and of operators'
commands cannot be switched off.

A poll happens each `health.poll`, by default each second; where nothing is to be read before, and nothing is held
against a device, up to five seconds later. Not every source reads at every poll:

| read | sources |
| --- | --- |
| each poll | error registers that can make a device Unhealthy |
| each fifth poll | states that last for seconds; findings' files and dumps, which inotify and events report as well |
| each tenth poll | reads that may wake a device or block, that only warn, or that an event reports as well |
| less often | reads that keep the card's firmware busy |
| at once | what a kernel event or a record of the kernel log names |
| each sixtieth poll | attributes that have not existed so far; at once when a driver is bound |

Reads that are not due at each poll are spread over the cards where there are more than 64. A file with a finding is
read at each poll until the finding ends.

Devices are looked for at each event of the kernel, and each `scan.period`: by default each 30 s where the kernel
reports what happens to devices and all of them are well, otherwise each 5 s. What an FPGA's port has loaded, which no
event reports, is read each 5 s in any case.

Conditions end after several good polls, events as listed below. For a vendor's monitor each answer counts as one poll.
"A restart" is short for: its driver is bound again, the device is removed and added again, or the node reboots.
"""

XIDS_HEAD = """\
## Xids

Names from NVIDIA's [catalogue](https://docs.nvidia.com/deploy/xid-errors/). [`nvml`](#nvml) and
[`kernel-log`](#kernel-log) have the action of each.
"""

AFTER_SOURCES = """\
## Rules of the kernel log

The first rule that matches a record applies; only records of the kernel itself count (facility 0). Switch on optional
rules by name in `health.kernel_log.optional`. Your own rules, in `health.kernel_log.rules`, raise the reason
`kernel-log`.
"""

NOT_READ = """\
## What is not read

Other information of devices, drivers and the kernel, and why no source reads it.
"""

AFTER_RULES = """\
## Comparison with other tools

From the sources of NVIDIA's plugin 0.20, gpud of August 2026 and NVSentinel of July 2026.
"""


def page() -> str:
    """The whole page."""
    data = tomllib.loads((HERE / "health.toml").read_text("utf-8"))
    parts = [
        HEAD,
        "## Sources\n",
        *_sources(data["looks_at"], data["note"]),
        XIDS_HEAD,
        _xids(),
        AFTER_SOURCES,
        _rules(shipped()),
    ]
    parts += [NOT_READ, _not_read(data["not_read"]), AFTER_RULES]
    parts += [_ways(data["way"]), _elsewhere(data["elsewhere"])]
    return "\n".join(parts)


def _sources(looks_at: Mapping[str, str], notes: Mapping[str, str]) -> Iterator[str]:
    sources = {source.name: source for source in health_sources()}
    for name in sorted({source for source, _ in MEANINGS}):
        source = sources[name]
        yield f"### `{name}`\n"
        how = [each for each in (source.reads, source.pace) if each not in {"", "none"}]
        about = f"Reads {looks_at.get(name, UNKNOWN)}." + (f" Access: {', '.join(how)}." if how else "")
        yield f"{about} [Documentation]({source.document}).\n" if "://" in source.document else f"{about}\n"
        yield _reasons({reason: meaning for (of, reason), meaning in MEANINGS.items() if of == name}, name)
        if name in notes:
            yield notes[name]


def _reasons(meanings: Mapping[str, Meaning], source: str) -> str:
    rows = []
    for reason, meaning in meanings.items():
        rows.append((f"`{reason}`", *_row(source, reason, meaning)))
        for values, one in _by_meaning(meaning.by_value):
            shown = replace(one, threshold="it is one of [these Xids](#xids)") if reason == XID else one
            rows.append((f"`{reason}` ({values})", *_row(source, reason, shown)))
    return "".join(f"* {shown}: **{action}** when {when}. End: {end}.\n" for shown, action, when, end in rows)


def _xids() -> str:
    """The names in NVIDIA's catalogue, by code."""
    names = "; ".join(f"{code} `{xid.name}`" for code, xid in sorted(XIDS.items()))
    return f"{textwrap.fill(names, 118, break_long_words=False, break_on_hyphens=False)}.\n"


def _by_meaning(by_value: Mapping[str, Meaning]) -> Iterator[tuple[str, Meaning]]:
    """Values that do the same in one row."""
    alike: dict[tuple[object, ...], dict[str, Meaning]] = {}
    for value, meaning in by_value.items():
        same = meaning.action, meaning.clears, meaning.quiet_seconds, meaning.evidence, meaning.after, meaning.hold
        alike.setdefault(same, {})[value] = meaning
    for meanings in alike.values():
        thresholds = dict.fromkeys(meaning.threshold for meaning in meanings.values())
        values = sorted(meanings, key=int) if all(value.isdigit() for value in meanings) else list(meanings)
        yield ", ".join(values), replace(next(iter(meanings.values())), threshold="; ".join(thresholds))


def _row(source: str, reason: str, meaning: Meaning) -> tuple[str, str, str]:
    held = Held(Finding(source=source, reason=reason), meaning, 0.0, 0.0, 0.0, 0.0, "")
    after = f", for {meaning.after:g} s" if meaning.after else ""
    new = "; only a warning if it was already set at the first poll" if meaning.only_when_new else ""
    end = (
        verdicts.way_back(held, RECOVER_AFTER)
        .replace(" in a row", "")
        .replace(RESTART, "a restart")
        .replace(RESTART.replace(", a", " or a"), "a restart")
    )
    return meaning.action, f"{meaning.threshold}{after}{new}", end


def _rules(rules: Iterable[Rule]) -> str:
    rows = [(f"`{rule.name}`", f"`{rule.contains}`", _effect(rule), "off" if rule.optional else "on") for rule in rules]
    return table(("rule", "text contains", "effect", "default"), rows)


def _effect(rule: Rule) -> str:
    if rule.reason:
        at_link = f", and `{rule.reason_at_link}` for the GPU at that link" if rule.reason_at_link else ""
        return f"raises `{rule.reason}`" + (f" for every device of {rule.vendor}" if rule.vendor else "") + at_link
    if rule.evidence:
        return f"shows `{rule.evidence}`" + (f" for every device of {rule.vendor}" if rule.vendor else "")
    if rule.takes_back:
        return f"ends {', '.join(f'`{reason}`' for reason in rule.takes_back)}"
    if rule.looks:
        return "has the card checked at once"
    return "is counted" if "(?P<xid>" in rule.pattern else "gives the UUID for a PCI address"


def _not_read(rows: Iterable[Mapping[str, str]]) -> str:
    return table(("of", "not read", "why"), [(row["of"], row["what"], row["because"]) for row in rows])


def _ways(ways: Iterable[Mapping[str, str]]) -> str:
    rows = [(way["of"], way["takes_out"], way["takes_back"], way["fails"]) for way in ways]
    return table(("", "takes out of use", "returns it", "when its source fails"), rows)


def _elsewhere(rows: Iterable[Mapping[str, Any]]) -> str:
    cells = [(f"`{row['reason']}`", row["plugin"], row["gpud"], row["nvsentinel"]) for row in rows]
    return table(("reason", "the vendor's plugin", "gpud", "NVSentinel"), cells)
