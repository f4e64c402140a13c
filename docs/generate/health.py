"""docs/health.md: what the registry of health sources says, and health.toml."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path

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

EFFECTS = {"unhealthy": "**unhealthy**", "warn": "**warning**", "ignore": "**counted**"}

RESTART = "rebinding its driver, removing and re-adding it, a reboot"
"""The three kinds of evidence that a device was started again, as they are listed together."""

RECOVERY = re.compile(r"a restart, its driver's [a-z', ]+ that it needs no recovery, a reset that NVML detects")
"""What ends most Xids."""

SHORT = 50
"""Characters of what is to be done that are repeated rather than looked up under another reason."""

RESET_COMMAND = "[ (nvidia-smi --gpu-reset -i {pci_address})]"
"""The head of the page has it once."""

HEAD = """\
# Health

*Generated from the registry of sources by `make docs-pages`.*

Every reason: when it is raised, what to do, what ends it. For a device of yours:

```sh
devherd explain GPU-1     # what to do, the findings with their evidence, what ends each and why it has not ended
```

A finding is what one source saw of a device: a reason, the file and the value. It makes the device **unhealthy** (the
kubelet gives it to no new pod), or is a **warning** (shown; the device stays Healthy), or is **counted** only. A
source that fails makes no device Unhealthy.

* [`health.rules`](configuration.md#healthrules) change effect, `after` and `hold` by device, source, reason and value.
* `health.sources` switches a source off: `{rdma-errors: false}`; not those of scans and of operators' commands.

**Ends.** Where nothing else is listed a finding ends after `health.recover_after` good polls, three by default; each
answer of a vendor's monitor counts as one. "A restart": the driver is bound again, the device is removed and added
again, or the node reboots. "Its recovery": a restart, its driver's word that it needs no recovery, or a
reset that NVML detects. A line without **Do** is mended as the line above it. To reset an NVIDIA GPU:
`nvidia-smi --gpu-reset -i ADDRESS`.

## Reasons
"""

XIDS_HEAD = """\
## Xids

By [NVIDIA's catalogue](https://docs.nvidia.com/deploy/xid-errors/), which has their names. Any other Xid is a
warning. [`health.xid`](configuration.md#healthxid) changes the effect of a code.
"""

SOURCES = """\
## Sources

What each reads, with a link to its documentation, and how often; a poll happens each second (`health.poll`), up to
five seconds apart where nothing is to be read before and nothing is wrong. What a kernel event or the kernel log
names is read at once, and so is a file with a finding at each poll. What has never existed is looked for at each
sixtieth poll. Where there are more than 64 cards they take turns.
"""

LATEST = """\
## Latest notice

What tells of a change, and when it is noticed at the latest if that does not come, with the default periods.
"""

RULES = """\
## Rules of the kernel log

The first rule that matches a record of the kernel (facility 0) applies.
[`health.kernel_log`](configuration.md#healthkernel_log) has your own rules, whose reason is `kernel-log`. By the
reason that it raises or ends, the text that a record must contain. Other rules give evidence, have the card checked, or
are quoted where a function is no device.
"""

OPTIONAL = """\
These are off; `optional` of `health.kernel_log` switches them on by name:
"""

NOT_READ = """\
## What is not read

And why, or what is read instead.
"""


def page() -> str:
    """The whole page."""
    data = tomllib.loads((HERE / "health.toml").read_text("utf-8"))
    parts = [
        HEAD,
        _reasons(),
        XIDS_HEAD,
        _xids(),
        SOURCES,
        _sources(data["looks_at"]),
        data["note"]["nvml"].lstrip(),
        LATEST,
    ]
    parts += ["".join(f"* {row['of']}: told by {row['told_by']}; latest: {row['latest']}.\n" for row in data["latest"])]
    parts += [RULES, _rules(SHIPPED), OPTIONAL, _optional(SHIPPED), NOT_READ, _not_read(data["not_read"])]
    return "\n".join(parts)


def _reasons() -> str:
    """A line for each meaning, those of a reason together; what is to be done stands once where it is the same."""
    lines = []
    first: dict[str, str] = {}  # what is to be done, and the reason that says it
    last = ""
    for (source, reason), meaning in sorted(MEANINGS.items(), key=lambda item: (item[0][1], item[0][0])):
        if reason == XID:
            lines.append(f"* `{reason}` (`{source}`): {meaning.threshold}; [by code](#xids).\n")
            continue
        for values, one in [("", meaning), *_by_meaning(meaning.by_value)]:
            action, when, end = _row(source, reason, one)
            do = _to_do(one)
            told = first.setdefault(do, reason)
            said = f"**Do:** {do if told == reason or len(do) < SHORT else f'as for `{told}`'}."
            shown = f"* `{reason}` (`{source}`{f': {values}' if values else ''}), {EFFECTS[action]}: {when}."
            ends = f"**Ends:** {end}." if end != USUAL_END else ""
            lines.append(" ".join(filter(None, (shown, said if (reason + do) != last else "", ends))) + "\n")
            last = reason + do
    return "".join(lines)


def _to_do(meaning: Meaning) -> str:
    """What a person does, with a word in capitals for what is known of a device."""
    do = meaning.do.replace(RESET_COMMAND, "").replace("{place}", "in slot {slot} ({pci_address})")
    general = re.sub(r"\[([^\]|]*)[^\]]*\]", r"\1", do)
    return re.sub(r"\{(?:pci_)?(\w+)\}", lambda place: place[1].upper(), general)


def _sources(looks_at: Mapping[str, str]) -> str:
    """Those that read the same as often in one line; a name leads to the documentation of what is read."""
    sources = {source.name: source for source in health_sources()}
    alike: dict[tuple[str, str], list[str]] = {}
    for name in sorted({of for of, _ in MEANINGS}):
        of = sources[name]
        pace = f" ({of.pace})" if of.pace not in {"", "none"} else ""
        shown = f"[`{name}`]({of.document})" if "://" in of.document else f"`{name}`"
        alike.setdefault((looks_at.get(name, UNKNOWN), pace), []).append(shown)
    return "".join(f"* {', '.join(names)}: {what}{pace}.\n" for (what, pace), names in alike.items())


def _xids() -> str:
    """The codes of NVIDIA's catalogue, those that do the same and ask for the same together."""
    alike: dict[tuple[str, str, str], list[int]] = {}
    for code in sorted(XIDS):
        meanings = [MEANINGS[source, XID].by_value[str(code)] for source in (KERNEL_LOG, NVML)]
        does = [_row(source, XID, each) for source, each in zip((KERNEL_LOG, NVML), meanings, strict=True)]
        (action, _, end), (by_nvml, _, end_by_nvml) = does
        effect = EFFECTS[action]
        if does[0] != does[1]:
            effect = f"{effect}; {EFFECTS[by_nvml]} by NVML, which does not say whether it is fatal"
            end = f"{end}; by NVML {end_by_nvml}"
        alike.setdefault((effect, end, _to_do(meanings[0])), []).append(code)
    lines = []
    for effect, end in sorted({key[:2] for key in alike}, reverse=True):
        lines.append(f"{effect[0].upper()}{effect[1:]}. Ends: {end}.\n\n")
        lines += [
            f"* {', '.join(_ranges(codes))}: {do}.\n"
            for key, codes in alike.items()
            for do in key[2:]
            if key[:2] == (effect, end)
        ]
        lines.append("\n")
    return "".join(lines).rstrip("\n") + "\n"


def _ranges(codes: list[int]) -> Iterator[str]:
    """Three or more in a row as the first and the last."""
    for _, row in groupby(enumerate(codes), lambda numbered: numbered[1] - numbered[0]):
        alike = [str(code) for _, code in row]
        yield from alike if len(alike) < 3 else [f"{alike[0]}-{alike[-1]}"]


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
        .replace(" s without another event", " s of quiet")
    )
    end = end.replace(RESTART, "a restart").replace(RESTART.replace(", a", " or a"), "a restart")
    end = RECOVERY.sub("its recovery", end)
    return meaning.action, f"{meaning.threshold}{after}{new}", end


def _rules(rules: Iterable[Rule]) -> str:
    """What a record must contain, by what it leads to."""
    texts: dict[str, dict[str, None]] = {}
    for rule in rules:
        for effect in () if rule.optional else _effects(rule):
            texts.setdefault(effect, {})[f"`{rule.contains}`"] = None
    return "".join(f"* {effect}: {', '.join(contains)}\n" for effect, contains in texts.items())


def _optional(rules: Iterable[Rule]) -> str:
    shown = (f"`{rule.name}` (`{rule.contains}`: `{rule.reason}`)" for rule in rules if rule.optional)
    return f"{', '.join(shown)}.\n"


def _effects(rule: Rule) -> Iterator[str]:
    if rule.reason:
        yield f"`{rule.reason}`" + (f" of every device of {rule.vendor}" if rule.vendor else "")
    if rule.reason_at_link:
        yield f"`{rule.reason_at_link}` of the GPU at that link"
    if rule.takes_back:
        yield f"ends {', '.join(f'`{reason}`' for reason in rule.takes_back)}"


def _not_read(rows: Iterable[Mapping[str, str]]) -> str:
    return "".join(f"* {row['what']}: {row['because']}.\n" for row in rows)
