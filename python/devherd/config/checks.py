"""Checks of a configuration whose keys are valid: conflicts, unknown names, settings without effect. Pure.

pydantic's errors are converted to the same form.
"""

import contextlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from devherd._native import vendors
from devherd.config.classes import Classes
from devherd.config.describe import is_map_of_sections, section_of
from devherd.config.device_class import OF_PCI
from devherd.config.errors import Location, Problem, WrongValueError, duration, echo, key_path, place
from devherd.config.front_end import without_effect
from devherd.config.model import (
    Config,
    External,
    HealthOptions,
    HealthRule,
    Match,
    ResourceRule,
    Selector,
    Sharing,
    SimulatedDevice,
)
from devherd.config.resolved import fits_any
from devherd.config.types import Section, meant, quoted
from devherd.reasons import registry
from devherd.reasons.registry import EXTERNAL_PREFIX

FACTS_OF_EVERY_DEVICE = ("vendor", "id", "resource_name")

FACTS_OF_VENDOR: dict[str, tuple[str, ...]] = {row.section: tuple(row.facts) for row in vendors()}

CLASSES = "classes"
"""The vendor of all device classes."""

FACT_EXAMPLES: dict[str, tuple[str, ...]] = {
    "pci_address": ("0000:81:00.0", "10000:81:00.0"),  # Intel's VMD has domains of five digits
    "pci_class": ("0x120000",),
    "vendor_id": ("0x8086",),
    "device_id": ("0x0b30",),
    "subsystem_vendor_id": ("0x8086",),
    "subsystem_device_id": ("0x0000",),
    "afu_id": ("d8424dc4a4a3c413f89e433683f9040b",),
    "interface_id": ("69528db6eb31577a8c3668f9faa081f6",),
}
"""Example values of facts; all values have the form of one: its length, hexadecimal digits in the same places."""

_HEXADECIMAL = "0123456789abcdef"
_PART = re.compile(r"\*|\[!?\]?[^\]]*\]|.", re.DOTALL)


def can_match(fact: str, glob: str) -> bool:
    """Whether a glob can match a value of a fact; True if the form of its values is unknown."""
    parts = _PART.findall(glob)
    return fact not in FACT_EXAMPLES or any(_fits(parts, _places(example)) for example in FACT_EXAMPLES[fact])


def _places(example: str) -> list[str]:
    """The characters that are possible at each position of a value of this form."""
    prefix = "0x" if example.startswith("0x") else ""
    return [*prefix, *(_HEXADECIMAL if each in _HEXADECIMAL else each for each in example.removeprefix(prefix))]


def _fits(parts: Sequence[str], places: Sequence[str]) -> bool:
    """Whether the parts of a glob can match a value with one of the characters of each place."""
    reached = {0}  # numbers of places that the parts so far can match
    for part in parts:
        if part == "*":
            reached = set(range(min(reached, default=len(places) + 1), len(places) + 1))
        else:
            reached = {
                place + 1
                for place in reached
                if place < len(places) and any(fnmatchcase(character, part) for character in places[place])
            }
    return len(places) in reached


def facts_of_vendors(classes: Classes) -> dict[str, tuple[str, ...]]:
    """The facts of each vendor's devices, with those of the device classes that are served."""
    of_classes = {fact for one in classes.in_use().values() for fact in one.fact_names}
    return FACTS_OF_VENDOR | {CLASSES: tuple(sorted({*FACTS_OF_VENDOR.get(CLASSES, ()), *OF_PCI, *of_classes}))}


def unknown_names(
    location: Location, match: Match, known: Mapping[str, tuple[str, ...]] = FACTS_OF_VENDOR
) -> Iterator[Problem]:
    """An error for each vendor and fact that does not exist; `known` has the facts by vendor."""
    for where, selector in _parts(location, match):
        yield from _unknown_in_selector(where, selector, known)


def names_in_doubt(location: Location, match: Match) -> Iterator[Problem]:
    """A warning for each glob that no device can match."""
    for where, selector in _parts(location, match):
        for fact, globs in selector.facts.items():
            for glob in globs:
                if not can_match(fact, glob):
                    form = f"values look like `{FACT_EXAMPLES[fact][0]}`, in full and lower case"
                    yield Problem((*where, fact), f"`{glob}` can never match", form)


def _parts(location: Location, match: Match) -> Iterator[tuple[Location, Selector]]:
    yield location, match
    for index, exception in enumerate(match.exclude):
        yield (*location, "exclude", index), exception


def _unknown_in_selector(
    location: Location, selector: Selector, of_vendor: Mapping[str, tuple[str, ...]]
) -> Iterator[Problem]:
    patterns = selector.facts
    vendors = list(of_vendor)
    for glob in patterns.get("vendor", ()):
        if not any(fnmatchcase(vendor, glob) for vendor in vendors):
            yield Problem((*location, "vendor"), f"no vendor matches `{glob}`", meant(glob, vendors))
    chosen = [vendor for vendor in vendors if is_about(vendor, selector)] or vendors
    whose = "no vendor has" if chosen == vendors else f"devices of {' or '.join(chosen)} do not have"
    known = [*FACTS_OF_EVERY_DEVICE, *dict.fromkeys(fact for vendor in chosen for fact in of_vendor[vendor])]
    for fact in patterns:
        if fact not in known:
            yield Problem((*location, fact), f"{whose} this fact", meant(fact, [*known, "exclude"]), at_key=True)


def is_about(vendor: str, selector: Selector) -> bool:
    """Whether a selector can match devices of a vendor."""
    globs = selector.facts.get("vendor")
    return globs is None or any(fnmatchcase(vendor, glob) for glob in globs)


def unknown_reasons(health: HealthOptions, classes: Classes) -> Iterator[Problem]:
    """An error for each source and reason that does not exist."""
    own = {(f"{EXTERNAL_PREFIX}{external.name}", registry.EXTERNAL) for external in health.external}
    own |= {(registry.CLASS_HEALTH, each.reason) for one in classes.in_use().values() for each in one.health}
    for number, rule in enumerate(health.rules):
        yield from _unknown_in_rule(("health", "rules", number), rule, own.union(registry.MEANINGS))


def _unknown_in_rule(location: Location, rule: HealthRule, known: Collection[tuple[str, str]]) -> Iterator[Problem]:
    sources = {source for source, _ in known}
    chosen = {source for source in sources if not rule.source or fits_any(source, rule.source)}
    reasons = {reason for source, reason in known if source in chosen}
    for glob in rule.source:
        if not any(fits_any(source, [glob]) for source in sources):
            yield Problem((*location, "source"), f"no source is called `{glob}`", meant(glob, sorted(sources)))
    for glob in rule.reason if chosen else ():
        if not any(fits_any(reason, [glob]) for reason in reasons):
            whose = f"source `{next(iter(chosen))}`" if len(chosen) == 1 else "these sources"
            yield Problem((*location, "reason"), f"`{glob}` is not a reason of {whose}", meant(glob, sorted(reasons)))


MOST_MPS_REPLICAS = 48
"""Largest number of MPS clients of one GPU, <https://docs.nvidia.com/deploy/mps/>."""


def conflicts(config: Config) -> list[Problem]:
    """The errors of a valid file: unknown names, impossible sharing, repeated names."""
    return [
        *_unknown_names(config),
        *_shared_directory(config),
        *_sharing(config),
        *_resources_of_classes(config),
        *_repeated(("simulated",), config.simulated, "merge the two entries or rename one"),
        *_repeated(("health", "external"), config.health.external, "rename one"),
    ]


_OF_THE_KUBELET = ("device-plugins", "plugins", "plugins_registry", "pod-resources", "pods")


def _shared_directory(config: Config) -> Iterator[Problem]:
    """An error for a run directory that other programs use: devherd would set its mode to 0700 and fill it."""
    run_dir, kubelet_dir = config.run_dir, config.kubelet_dir
    roots = {kubelet_dir, config.kubelet_root_dir or kubelet_dir}
    if run_dir == Path("/"):
        yield Problem(("run_dir",), "`/` is the root of the file system", "give a directory of its own")
    elif run_dir in {*roots, *(root / name for root in roots for name in _OF_THE_KUBELET)}:
        what = f"`{run_dir}` is the kubelet's, which empties `{kubelet_dir}/device-plugins` when it starts"
        yield Problem(("run_dir",), what, "give a directory of its own, like `/run/devherd`")


def _unknown_names(config: Config) -> Iterator[Problem]:
    known = facts_of_vendors(config.classes)
    for number, rule in enumerate(config.resources):
        yield from unknown_names(("resources", number, "match"), rule.match, known)
    for number, external in enumerate(config.health.external):
        yield from unknown_names(("health", "external", number, "match"), external.match, known)
    for number, health_rule in enumerate(config.health.rules):
        yield from unknown_names(("health", "rules", number, "match"), health_rule.match, known)
    yield from unknown_reasons(config.health, config.classes)


def unknown_names_in(content: Mapping[str, Any]) -> Iterator[Problem]:
    """The same errors for the content of a file that is not valid otherwise; none where its classes are not valid."""
    try:
        known = facts_of_vendors(Classes.model_validate(content.get("classes") or {}))
    except ValidationError:
        return
    health = content.get("health")
    parts: dict[Location, Any] = {("resources",): content.get("resources")}
    if isinstance(health, Mapping):
        parts |= {("health", key): health.get(key) for key in ("external", "rules")}
    for location, rules in parts.items():
        for number, rule in enumerate(rules if isinstance(rules, list) else ()):
            if isinstance(rule, Mapping) and isinstance(rule.get("match"), Mapping):
                with contextlib.suppress(ValidationError):
                    yield from unknown_names((*location, number, "match"), Match.model_validate(rule["match"]), known)


def _sharing(config: Config) -> Iterator[Problem]:
    for number, rule in enumerate(config.resources):
        if rule.sharing.strategy == "mps" and rule.sharing.replicas > 1:
            yield from _mps_errors(("resources", number, "sharing"), config, rule)


def _mps_errors(location: Location, config: Config, rule: ResourceRule) -> Iterator[Problem]:
    nvidia, strategy = config.vendors.nvidia, (*location, "strategy")
    if not is_about("nvidia", rule.match):
        yield Problem(strategy, "MPS is NVIDIA's, and this rule is about others", "remove it, or use `time_slicing`")
        return
    if nvidia.mps_root is None:
        cure = "give `vendors.nvidia.mps_root`, the directory of MPS's control daemon"
        yield Problem(strategy, "where MPS's control daemon is, is not known", cure)
    if nvidia.mig_strategy == "mixed":
        yield Problem(
            strategy, "MPS cannot share MIG devices, but `vendors.nvidia.mig_strategy` is `mixed`", "change one of them"
        )
    if rule.sharing.replicas > MOST_MPS_REPLICAS:
        yield Problem(
            (*location, "replicas"),
            f"`{rule.sharing.replicas}` is too large: MPS serves at most {MOST_MPS_REPLICAS} clients per GPU",
            f"give at most `{MOST_MPS_REPLICAS}`",
        )


def _resources_of_classes(config: Config) -> Iterator[Problem]:
    """An error for each class whose resource another section of the file has: two devices could have one id."""
    others = {one.name: f"generic[{number}]" for number, one in enumerate(config.generic)}
    others |= {one.name: f"simulated[{number}]" for number, one in enumerate(config.simulated)}
    others |= {one.name: f"vendors.rdma.pools[{number}]" for number, one in enumerate(config.vendors.rdma.pools)}
    for name, one in config.classes.in_use().items():
        resource = one.resource_of(name)
        if resource in others:
            is_own = name in config.classes.define
            location: Location = ("classes", "define", name, "plugin", "resource") if is_own else ("classes", "enable")
            what = f"class `{name}` has the resource `{resource}`, which {others[resource]} has, too"
            yield Problem(location, what, "rename one of them")


def _repeated(location: Location, entries: Sequence[SimulatedDevice | External], cure: str) -> Iterator[Problem]:
    """An error for each repeated name: two such entries would have the same device ids, or the same findings file."""
    first: dict[str, int] = {}
    for number, entry in enumerate(entries):
        earlier = first.setdefault(entry.name, number)
        if earlier != number:
            place = key_path((*location, earlier))
            yield Problem((*location, number, "name"), f"`{entry.name}` is already the name of {place}", cure)


_MOST_COMPARED = 500
"""Limit on the rules that are compared with each other."""
_WILD = frozenset("*?[")


def warnings_of(config: Config) -> Iterator[Problem]:
    """A warning for each setting without effect."""
    yield from _of_strategies(config.vendors.nvidia.device_list_strategy)
    yield from _of_generic(config)
    yield from without_effect(config)
    for number, health_rule in enumerate(config.health.rules):
        yield from names_in_doubt(("health", "rules", number, "match"), health_rule.match)
    for number, rule in enumerate(config.resources):
        yield from _warnings_of_rule(("resources", number), rule)
        yield from _of_order(number, config.resources)
        yield from names_in_doubt(("resources", number, "match"), rule.match)
    for number, external in enumerate(config.health.external):
        yield from names_in_doubt(("health", "external", number, "match"), external.match)
        yield from _of_times(("health", "external", number), external)


def placed(config: Config, problem: Problem) -> str:
    """A warning as a line: file, line and column, key path, the setting without effect — what to do."""
    return f"{place_of(config, problem.location)}: {problem.what} — {problem.cure}"


def place_of(config: Config, location: Location) -> str:
    """File, line, column and key path; only the key path without a file."""
    where = f"{place(str(config.source), config.positions, location)}: " if config.source else ""
    return f"{where}{key_path(location)}"


def _of_times(location: Location, external: External) -> Iterator[Problem]:
    if external.timeout is not None and external.interval is None:
        yield Problem(
            (*location, "timeout"), "`timeout` has no effect without `interval`", "remove it, or add `interval`"
        )
    if external.max_age and external.interval and external.max_age <= external.interval:
        what = f"`{duration(external.max_age)}` is not longer than `interval`: it counts as silent between two runs"
        yield Problem((*location, "max_age"), what, f"give more than `{duration(external.interval)}`, or remove it")


def _of_strategies(strategies: Collection[str]) -> Iterator[Problem]:
    if {"envvar", "volume-mounts"} <= set(strategies):
        yield Problem(
            ("vendors", "nvidia", "device_list_strategy"),
            "`envvar` has no effect together with `volume-mounts`, which sets NVIDIA_VISIBLE_DEVICES to the directory"
            " of the mounts",
            "remove one of them",
        )


def _of_generic(config: Config) -> Iterator[Problem]:
    """A warning for each repeated group: the same members under the same name make the same device ids."""
    first: dict[str, Location] = {}
    for number, resource in enumerate(config.generic):
        for index, group in enumerate(resource.groups):
            location: Location = ("generic", number, "groups", index)
            members = group.model_dump_json(exclude={"count"})
            earlier = first.setdefault(f"{resource.name} {members}", location)
            if earlier != location:
                what = f"the same devices as {key_path(earlier)} under the same name"
                yield Problem(location, what, "remove it, and raise `count` there")


def _warnings_of_rule(location: Location, rule: ResourceRule) -> Iterator[Problem]:
    """A warning for each part of a rule that has no effect because of another part."""
    sharing = (*location, "sharing")
    if not rule.advertise:
        idle = [
            ("name", rule.name),
            ("sharing", rule.sharing != Sharing()),
            ("preferred", rule.preferred),
            ("pre_start", rule.pre_start.is_on),
        ]
        for key in (key for key, given in idle if given):
            yield Problem((*location, key), "no effect: `advertise: false` leaves the devices out", "remove it")
        return
    shared = rule.sharing
    if shared.replicas > 1 and rule.pre_start.occupied:
        what = "no effect: `sharing.replicas` lets several containers hold the device at once"
        yield Problem((*location, "pre_start", "occupied"), what, "remove one of them")
    if rule.name and shared.rename and shared.replicas > 1 and shared.strategy == "time_slicing":
        yield Problem((*location, "name"), "no effect: `sharing.rename` is the name of what is shared", "remove one")
    if shared.replicas == 1:
        for key, given in (("rename", shared.rename), ("strategy", shared.strategy != "time_slicing")):
            if given:
                yield Problem((*sharing, key), "no effect: `replicas` is 1, so nothing is shared", "give `replicas`")


def _of_order(number: int, rules: list[ResourceRule]) -> Iterator[Problem]:
    """A warning for a rule that is never reached: the first rule that matches a device decides."""
    for earlier in range(number if number < _MOST_COMPARED else 0):
        if _covers(rules[earlier].match, rules[number].match):
            what = f"never reached: resources[{earlier}] matches every device that it matches"
            yield Problem(("resources", number), what, "move it before that rule, or remove it")
            return


def _covers(first: Match, later: Match) -> bool:
    """Whether `first` matches every device that `later` matches; False if the text does not show it."""
    if first.exclude:
        return False
    wanted, wider = later.facts, first.facts
    return wider.keys() <= wanted.keys() and all(
        any(_is_within(glob, each) for each in globs) for fact, globs in wider.items() for glob in wanted[fact]
    )


def _is_within(glob: str, wider: str) -> bool:
    """Whether every text that matches `glob` matches `wider` as well; False if that is not obvious."""
    if glob == wider or not _WILD & set(glob):
        return glob == wider or fnmatchcase(glob, wider)
    return wider.endswith("*") and not _WILD & set(wider[:-1]) and glob.startswith(wider[:-1])


_CHOICE = re.compile(r"'([^']*)'|(True|False)")
_OF_A_KEY = "[key]"
"""pydantic adds this to the location of a mapping's key."""
_DIGITS = re.compile(r"-?\d+")


def problems_of(error: ValidationError, root: type[BaseModel] = Config) -> Iterator[Problem]:
    """A problem for each of pydantic's errors; `root` is the model of the whole file."""
    for detail in error.errors(include_url=False):
        location: Location = tuple(part for part in detail["loc"] if part != _OF_A_KEY)
        known = _KNOWN.get(detail["type"])
        if detail["input"] is None and detail["type"] != "extra_forbidden":
            yield Problem(location, "there is no value", "give one, or remove the key")
        elif known is not None:
            context = detail.get("ctx", {}) | {"root": root}
            yield known(location, detail["input"], context)
            for other in getattr(context.get("error"), "others", ()):
                yield known(location, detail["input"], context | {"error": other})
        else:
            yield Problem(location, f"{echo(detail['input'])} is refused: {detail['msg']}", "correct it")


def _wrong_value(location: Location, _value: Any, context: Mapping[str, Any]) -> Problem:
    error = context["error"]
    if isinstance(error, WrongValueError):
        return Problem((*location, *error.at), error.what, error.cure)
    return Problem(location, str(error), "correct it")


def _unknown_key(location: Location, _value: Any, context: Mapping[str, Any]) -> Problem:
    *above, key = location
    section = _section_at(context["root"], tuple(above))
    if section is not None and issubclass(section, Section) and key in section.not_served:
        return Problem(location, *section.not_served[str(key)], at_key=True)
    return Problem(
        (*above, str(key)), "unknown key", meant(str(key), _keys_of(context["root"], tuple(above))), at_key=True
    )


def _missing(location: Location, _value: Any, _context: Mapping[str, Any]) -> Problem:
    return Problem(location[:-1], f"`{location[-1]}` is missing", f"add `{location[-1]}`")


def _no_section(location: Location, value: Any, context: Mapping[str, Any]) -> Problem:
    if (map_of := _map_at(context["root"], location)) is not None:
        example = "NAME: {…}" if is_map_of_sections(map_of) else "NAME: VALUE"
        return Problem(location, f"{echo(value)} is not a mapping", f"write it like `{{{example}}}`")
    selects = issubclass(_section_at(context["root"], location) or Config, Selector)
    cure = (
        "give it facts, like `{vendor: nvidia}`"
        if selects
        else f"give it keys: {quoted(_keys_of(context['root'], location))}"
    )
    return Problem(location, f"{echo(value)} is not a section", cure)


def _no_list(location: Location, value: Any, _context: Mapping[str, Any]) -> Problem:
    return Problem(location, f"{echo(value)} is not a list", "begin each item with `- ` on a line of its own")


def _too_short(location: Location, _value: Any, _context: Mapping[str, Any]) -> Problem:
    return Problem(location, "the list is empty", f"give one item at least, or remove {_its_key(location)}")


def _no_choice(location: Location, value: Any, context: Mapping[str, Any]) -> Problem:
    choices = [text or written.lower() for text, written in _CHOICE.findall(context["expected"])]
    if isinstance(value, str) and value in {"true", "false"} and value in choices:
        return Problem(location, f"{echo(value)} is a text", "write it without quotes")
    return Problem(location, f"{echo(value)} is not one of {quoted(choices)}", _nearest(value, choices))


def _nearest(value: Any, choices: list[str]) -> str:
    yes_or_no = {"yes": "true", "on": "true", "no": "false", "off": "false"}
    written = yes_or_no.get(str(value).lower(), str(value))
    if written in choices:
        return f"write `{written}`"
    found = meant(written, choices)
    return found if found.endswith("?") else "choose one of them"


def _no_switch(location: Location, value: Any, _context: Mapping[str, Any]) -> Problem:
    return Problem(location, f"{echo(value)} is neither true nor false", "write `true` or `false`")


def _no_number(location: Location, value: Any, _context: Mapping[str, Any]) -> Problem:
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        return Problem(location, f"{echo(value)} is a text", "write the number without quotes")
    return Problem(location, f"{echo(value)} is not a whole number", "write one, like `4`")


def _no_text(location: Location, value: Any, _context: Mapping[str, Any]) -> Problem:
    cure = "give a text" if isinstance(value, dict | list) else "put it in quotes"
    return Problem(location, f"{echo(value)} is not a text", cure)


def _too_small(location: Location, value: Any, context: Mapping[str, Any]) -> Problem:
    too = "short" if isinstance(context["ge"], float) else "small"
    return Problem(location, f"{_number(value)} is too {too}", f"give at least {_number(context['ge'])}")


def _too_large(location: Location, value: Any, context: Mapping[str, Any]) -> Problem:
    too = "long" if isinstance(context["le"], float) else "large"
    return Problem(location, f"{_number(value)} is too {too}", f"give at most {_number(context['le'])}")


def _number(number: Any) -> str:
    """The number as the file has it; floats are durations."""
    return f"`{duration(number)}`" if isinstance(number, float) else echo(number)


def _its_key(location: Location) -> str:
    return next((f"`{part}`" for part in reversed(location) if isinstance(part, str)), "it")


def _keys_of(root: type[BaseModel], location: Location) -> list[str]:
    model = _section_at(root, location)
    return [field.alias or name for name, field in model.model_fields.items()] if model else []


def _section_at(root: type[BaseModel], location: Location) -> type[BaseModel] | None:
    model: type[BaseModel] | None = root
    is_name = False  # of an entry in a mapping
    for part in location:
        if isinstance(part, str) and not is_name:
            field = _field_of(model, part)
            model, is_name = section_of(field) if field else None, field is not None and is_map_of_sections(field)
        else:
            is_name = False
    return model


def _map_at(root: type[BaseModel], location: Location) -> FieldInfo | None:
    """The field at this place, if its value is a mapping by names that users choose."""
    *above, key = location or ("",)
    field = _field_of(_section_at(root, tuple(above)), str(key))
    return field if field is not None and get_origin(field.annotation) is dict else None


def _field_of(model: type[BaseModel] | None, key: str) -> FieldInfo | None:
    fields = model.model_fields if model else {}
    return fields.get(key) or next((field for field in fields.values() if field.alias == key), None)


_KNOWN: dict[str, Callable[[Location, Any, Mapping[str, Any]], Problem]] = {
    "value_error": _wrong_value,
    "extra_forbidden": _unknown_key,
    "invalid_key": _unknown_key,
    "missing": _missing,
    "model_type": _no_section,
    "model_attributes_type": _no_section,
    "dict_type": _no_section,
    "list_type": _no_list,
    "too_short": _too_short,
    "literal_error": _no_choice,
    "bool_type": _no_switch,
    "bool_parsing": _no_switch,
    "int_type": _no_number,
    "int_parsing": _no_number,
    "string_type": _no_text,
    "greater_than_equal": _too_small,
    "less_than_equal": _too_large,
}
