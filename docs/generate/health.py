"""docs/health.md: what the registry of health sources says, and health.toml."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from tables import table

from devherd._native import Finding, health_sources
from devherd.health import verdicts
from devherd.health.held import Held
from devherd.reasons.kernel_log_rules import SHIPPED, Rule
from devherd.reasons.registry import KERNEL_LOG, MEANINGS, NVML, Meaning
from devherd.reasons.xids import CATALOGUE as XIDS
from devherd.reasons.xids import XID

HERE = Path(__file__).parent
UNKNOWN = "what health.toml does not say"
RECOVER_AFTER = 3
"""The default of `health.recover_after`."""

USUAL_END = f"{RECOVER_AFTER} good polls"
"""The end of a condition, which the head of the page tells once."""

RESTART = "rebinding its driver, removing and re-adding it, a reboot"
"""The three kinds of evidence that a device was started again, as they are listed together."""

HEAD = """\
# Health

*Generated from the registry of sources by `make docs-pages`.*

Every source of health, its reasons, and what ends each. For a device of yours:

```sh
devherd explain GPU-1     # its findings, their evidence, what ends each, and why it has not ended
```

What a source observes is a finding: a reason, the file and the value. Its action is **unhealthy** (the kubelet gives
the device to no new pod), **warn** (shown; the device stays Healthy) or **ignore** (counted only). A source that fails
makes no device Unhealthy.

| key | changes |
| --- | --- |
| [`health.rules`](configuration.md#health-rules) | action, `after` and `hold`, by device, source, reason and value |
| `health.sources` | switches a source off: `{rdma-errors: false}`; not those of scans and of operators' commands |

**End.** A condition ends after `health.recover_after` good polls, three by default, where nothing else is listed; each
answer of a vendor's monitor counts as one. "A restart": the driver is bound again, the device is removed and added
again, or the node reboots.

**When sources read.** A poll happens each `health.poll`, by default each second; where nothing is to be read before,
and nothing is held against a device, up to five seconds later.

| read | sources |
| --- | --- |
| each poll | error registers that can make a device Unhealthy; files with a finding, until it ends |
| each fifth poll | states that last for seconds; findings' files and dumps, which inotify and events report as well |
| each tenth poll | reads that may wake a device or block, that only warn, or that an event reports as well |
| less often | reads that keep the card's firmware busy |
| at once | what a kernel event or a record of the kernel log names |
| each sixtieth poll | attributes that have not existed so far; at once when a driver is bound |

Reads that are not due at each poll are spread over the cards where there are more than 64. Devices are looked for at
each event of the kernel and each [`scan.period`](configuration.md#scan): 30 s where the kernel reports events and all
is well, else 5 s.
"""

LATEST = """\
## Latest notice

What tells of a change, and after how long it is noticed at the latest where that does not come (an event is lost,
`scan: {events: false}`), with the default periods.
"""

XIDS_HEAD = """\
## Xids

Actions, ends, and names from NVIDIA's [catalogue](https://docs.nvidia.com/deploy/xid-errors/). Any other Xid is a
warning that ends likewise. [`health.xid`](configuration.md#health-xid) changes the action of a code.
"""

AFTER_SOURCES = """\
## Rules of the kernel log

The first rule that matches a record applies; only records of the kernel itself count (facility 0).
[`health.kernel_log`](configuration.md#health-kernel-log) switches on rules that are off (`optional`) and has your own
(`rules`), which raise the reason `kernel-log`.
"""

NOT_READ = """\
## What is not read

Other information of devices, drivers and the kernel, and why, or what is read instead.
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
        LATEST,
        table(
            ("change", "told by", "latest notice"),
            [(row["of"], row["told_by"], row["latest"]) for row in data["latest"]],
        ),
        "## Sources\n",
        *_sources(data["looks_at"], data["note"]),
        XIDS_HEAD,
        _xids(),
        AFTER_SOURCES,
        _rules(SHIPPED),
    ]
    parts += [NOT_READ, _not_read(data["not_read"]), AFTER_RULES]
    parts += [
        _ways(data["way"]),
        "What the plugins that devherd replaces notice, by reason:\n",
        _elsewhere(data["elsewhere"]),
    ]
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
        action, when, end = _row(source, reason, meaning)
        rows.append((f"`{reason}`", action, f"{when}; [by code](#xids)" if reason == XID else when, end))
        if reason == XID:
            continue
        for values, one in _by_meaning(meaning.by_value):
            rows.append((f"`{reason}` ({values})", *_row(source, reason, one)))
    return "".join(
        f"* {shown}: **{action}** when {when}." + (f" End: {end}.\n" if end != USUAL_END else "\n")
        for shown, action, when, end in rows
    )


def _xids() -> str:
    """Each code of NVIDIA's catalogue with its name, those that do the same together."""
    alike: dict[tuple[str, str], list[str]] = {}
    for code, xid in sorted(XIDS.items()):
        does = [_row(source, XID, MEANINGS[source, XID].by_value[str(code)]) for source in (KERNEL_LOG, NVML)]
        (action, _, end), (by_nvml, _, end_by_nvml) = does
        if does[0] != does[1]:
            action = f"{action}; {by_nvml} by NVML, which does not say whether it is fatal"
            end = f"{end}; by NVML {end_by_nvml}"
        alike.setdefault((action, end), []).append(f"{code} `{xid.name}`")
    rows = sorted(((action, end, ", ".join(codes)) for (action, end), codes in alike.items()), reverse=True)
    return table(("action", "end", "Xids"), rows)


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
        .replace(
            "its driver's message that it needs no recovery, its driver's answer that",
            "its driver's message or answer that",
        )
    )
    return meaning.action, f"{meaning.threshold}{after}{new}", end


def _rules(rules: Iterable[Rule]) -> str:
    rows = [(f"`{rule.name}`{' (off)' * rule.optional}", f"`{rule.contains}`", _effect(rule)) for rule in rules]
    return table(("rule", "text contains", "effect"), rows)


def _effect(rule: Rule) -> str:
    quoted = "is quoted where the function is no device"
    effect = _own_effect(rule)
    return ", and ".join([effect, quoted] if effect and rule.quoted else [effect or quoted])


def _own_effect(rule: Rule) -> str:
    if rule.reason:
        at_link = f", and `{rule.reason_at_link}` for the GPU at that link" if rule.reason_at_link else ""
        return f"raises `{rule.reason}`" + (f" for every device of {rule.vendor}" if rule.vendor else "") + at_link
    if rule.evidence:
        return f"shows `{rule.evidence}`" + (f" for every device of {rule.vendor}" if rule.vendor else "")
    if rule.takes_back:
        return f"ends {', '.join(f'`{reason}`' for reason in rule.takes_back)}"
    if rule.looks:
        return "has the card checked at once"
    if rule.quoted:
        return ""
    return "is counted" if "(?P<xid>" in rule.pattern else "gives the UUID for a PCI address"


def _not_read(rows: Iterable[Mapping[str, str]]) -> str:
    return "".join(f"* **{row['of']}**: {row['what']}. {row['because']}.\n" for row in rows)


def _ways(ways: Iterable[Mapping[str, str]]) -> str:
    rows = [(way["of"], way["takes_out"], way["takes_back"], way["fails"]) for way in ways]
    return table(("", "takes out of use", "returns it", "when its source fails"), rows)


def _elsewhere(by_reason: Mapping[str, str]) -> str:
    return "".join(f"* `{reason}`. {others}\n" for reason, others in by_reason.items())
