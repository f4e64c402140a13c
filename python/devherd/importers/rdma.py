"""RDMA plugins: k8s-rdma-shared-dev-plugin and sriov-network-device-plugin, as rules for RDMA devices."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from devherd.errors import UsageError
from devherd.importers.imported import (
    LOG_FLAGS,
    LOG_REASON,
    LOG_SWITCHES,
    GivenSettings,
    Imported,
    flags,
    in_any_case,
    not_keys,
    truth,
    without_file,
)
from devherd.importers.manifest import content_of, section
from devherd.importers.plugin import ConfigFile, Invocation, Plugin

_SHARED_FLAGS = frozenset({"config-file", "use-cdi", "version", "v"})
_SWITCHES = frozenset({"use-cdi", "version", "v"})
_FILE_KEYS = frozenset({"configList", "periodicUpdateInterval"})
_VERSION_ONLY = "it only prints the plugin's version"
_SHARED_REASONS = {
    "-version": _VERSION_ONLY,
    "-v": _VERSION_ONLY,
    "periodicUpdateInterval": "changes are seen at once, and the host is scanned again every `scan.period`",
}
_SELECTORS = {
    "vendors": "vendors",
    "deviceIDs": "device_ids",
    "drivers": "drivers",
    "ifNames": "if_names",
    "linkTypes": "link_types",
}
_SHARED_KEYS = _FILE_KEYS | _SELECTORS.keys()
_SHARED_KEYS |= {"resourceName", "resourcePrefix", "rdmaHcaMax", "devices", "selectors"}
Match = dict[str, Any]
_FACTS = {
    "vendors": "vendor_id",
    "devices": "device_id",
    "drivers": "driver",
    "pciAddresses": "pci_address",
    "pKeys": "pkey",
}
_LINK_LAYERS = {"infiniband": "InfiniBand", "ether": "Ethernet"}
_LARGEST = 65_535
"""The largest number of virtual functions of a physical function, by the PCI specification."""
WITHOUT_FACT = frozenset({"acpiIndexes", "ddpProfiles", "auxTypes", "vdpaType"})
"""Selectors without a corresponding fact: without them, a rule would match more devices."""
_TRANSLATED = _FACTS.keys() | {"linkTypes", "pfNames", "rootDevices", "isRdma"}
_NO_SELECTOR = "needVhostNet"
"""Stands among the selectors, and chooses nothing: a container gets /dev/vhost-net, too."""
_SRIOV_KEYS = _TRANSLATED | WITHOUT_FACT | {_NO_SELECTOR, "resourceList", "resourceName", "resourcePrefix"}
_SRIOV_KEYS |= {"deviceType", "excludeTopology", "selectors", "additionalInfo"}
_LOG_FLAGS = LOG_FLAGS | {"log-dir", "log-level"}
_SRIOV_FLAGS = frozenset({"config-file", "resource-prefix", "use-cdi"}) | _LOG_FLAGS
_WIDER = "without it the resource would have more devices; write it as the plugin does, or write a rule"
_NOT_SERVED = "only its RDMA devices are served; the SR-IOV plugin may stay for it"
_LINK_TYPES = frozenset({"ether", "infiniband"})
"""What the shared plugin compares an interface's type with: `selectors.go` of k8s-rdma-shared-dev-plugin."""
_SRIOV_REASONS = {f"-{name}": LOG_REASON for name in _LOG_FLAGS}


def _translate_shared(invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:  # noqa: ARG001 - it ignores nothing
    imported = Imported("rdma-shared")
    words = {f"-{name}": each[-1] for name, each in flags(invocation.flag_words, _SWITCHES, _SHARED_FLAGS).items()}
    given, content = GivenSettings(words), GivenSettings(in_any_case(file or {}, _SHARED_KEYS))
    path = given.take("-config-file", "/k8s-rdma-shared-dev-plugin/config.json")
    if file is None:
        raise without_file("rdma-shared", path)
    if truth(given.take("-use-cdi", "false"), "-use-cdi"):
        imported.note_loss("-use-cdi is left out: RDMA devices are given as device nodes")
    entries = content.items("configList")
    pools = [pool for number, entry in enumerate(entries) if (pool := _pool(entry, number, imported))]
    imported.put("vendors.rdma", {"mode": "shared", "pools": pools} if pools else {"enabled": False})
    imported.note_left_out([*given.left(), *content.left()], _SHARED_REASONS, "the plugin does not know it")
    return imported


def _pool(entry: Any, number: int, imported: Imported) -> dict[str, Any] | None:
    """The pool of an entry; None if it has a selector that is not known."""
    if not isinstance(entry, Mapping):
        raise not_keys(f"configList[{number}]", entry)
    given = GivenSettings(entry, f"configList[{number}].")
    chosen = given.section("selectors")
    selectors = {ours: chosen.take(theirs) for theirs, ours in _SELECTORS.items()}
    if devices := given.take("devices"):
        selectors["if_names"] = devices
    prefix, name = given.take("resourcePrefix") or "rdma", given.take("resourceName", "")
    pool = {"name": f"{prefix}/{name}", "rdma_hca_max": given.take("rdmaHcaMax", 0)}
    place, written = f"configList[{number}].", entry.get("selectors") or {}
    unknown = [f"{place}selectors.{key}" for key, value in written.items() if value and key not in _SELECTORS]
    if unknown := [*unknown, *(f"{place}{key}" for key in _SELECTORS if entry.get(key))]:
        imported.note_difference(f"{pool['name']} is left out: {', '.join(unknown)} is not known: {_WIDER}")
        return None
    if (kinds := selectors["link_types"]) and isinstance(kinds, list):
        selectors["link_types"] = [kind for kind in kinds if kind in _LINK_TYPES]
        if never := [str(kind) for kind in kinds if kind not in _LINK_TYPES]:
            text = f"linkTypes `{', '.join(never)}` matches no device in the plugin; it knows `ether` and `infiniband`"
            imported.note_loss(f"{pool['name']}: {text}")
        if not selectors["link_types"]:
            imported.note_loss(f"{pool['name']} is left out: it has no device in the plugin either")
            return None
    imported.note_left_out(given.left(), {}, "the plugin does not know it")
    return pool | {"selectors": {key: values for key, values in selectors.items() if values}}


_POLICY = "mellanox.com/NicClusterPolicy"


def _of_policy(part: str) -> Callable[[Mapping[str, Any]], Iterator[Invocation | ConfigFile]]:
    """How NVIDIA's network operator starts a plugin: with the file that a section of its object holds as JSON."""

    def start(item: Mapping[str, Any]) -> Iterator[Invocation | ConfigFile]:
        text = section(section(item, "spec"), part).get("config")
        if text:
            others = ", ".join(key for key in section(item, "spec") if key != part)
            notes = (f"{others} left out: parts of the operator beside this plugin",) if others else ()
            yield Invocation(notes=notes)
            yield ConfigFile(content_of(str(text), f"spec.{part}.config"))

    return start


RDMA_SHARED = Plugin(
    "rdma-shared",
    lambda name: "rdma-shared" in name,
    _translate_shared,
    _SHARED_FLAGS,
    "rdma",
    is_file=lambda content: "configList" in (keys := in_any_case(content, _FILE_KEYS)) and keys.keys() <= _FILE_KEYS,
    kinds={_POLICY: _of_policy("rdmaSharedDevicePlugin")},
)


@dataclass(frozen=True, slots=True)
class _Functions:
    """Virtual functions of one physical function."""

    of: str
    numbers: frozenset[int] | None
    """None: all of them."""

    def among(self, other: "_Functions") -> frozenset[int] | None:
        """The numbers in both, for two selections of the same physical function."""
        if self.numbers is None or other.numbers is None:
            return self.numbers if other.numbers is None else other.numbers
        return self.numbers & other.numbers


def matches(chosen: GivenSettings) -> Iterator[Match]:
    """The matches of the rules for one entry of `selectors`; keys not translated are left in `chosen`.

    Raises UsageError.
    """
    chosen.take("isRdma")
    plain: Match = {"vendor": "rdma"}
    for theirs, fact in _FACTS.items():
        if values := [str(value).lower() for value in chosen.items(theirs)]:
            plain[fact] = [f"0x{value}" for value in values] if fact.endswith("_id") else values
    if kinds := chosen.items("linkTypes"):
        plain["link_layer"] = [_LINK_LAYERS.get(str(kind).lower(), str(kind)) for kind in kinds]
    by_name, by_address = (_first_of_each(chosen.items(theirs)) or [None] for theirs in ("pfNames", "rootDevices"))
    for one, other in itertools.product(by_name, by_address):
        numbers = one.among(other) if one and other else (one or other or _Functions("", None)).numbers
        if numbers is None or numbers:
            yield (
                plain
                | ({"pf_name": [one.of]} if one else {})
                | ({"physfn": [other.of.lower()]} if other else {})
                | ({"vf_index": [str(number) for number in sorted(numbers)]} if numbers else {})
            )


def _first_of_each(texts: Sequence[Any]) -> list[_Functions | None]:
    """One entry for each physical function: the first, like the plugin, if there are several."""
    found: dict[str, _Functions] = {}
    for text in texts:
        functions = _functions(str(text))
        found.setdefault(functions.of.lower(), functions)
    return list(found.values())


def _functions(text: str) -> _Functions:
    """Parse `ens1f0`, `ens1f0#3` or `ens1f0#0,2-5`."""
    of, separator, numbers = text.partition("#")
    return _Functions(of, frozenset(_numbers(text, numbers)) if separator else None)


def _numbers(text: str, numbers: str) -> Iterator[int]:
    for part in numbers.split(","):
        first, separator, last = part.partition("-")
        if not first.isdecimal() or (separator and not last.isdecimal()) or int(last or first) > _LARGEST:
            raise UsageError(
                f"`{text}` names no virtual functions",
                f"`{part}` is neither a number nor a range",
                "write `ens1f0#0,2-5`",
            )
        yield from range(int(first), int(last or first) + 1)


def _translate_sriov(invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:  # noqa: ARG001 - it ignores nothing
    imported = Imported("sriov")
    found = flags(invocation.flag_words, LOG_SWITCHES | {"use-cdi"}, _SRIOV_FLAGS)
    given = GivenSettings({f"-{name}": each[-1] for name, each in found.items()})
    content = GivenSettings(in_any_case(file or {}, _SRIOV_KEYS))
    prefix = given.take("-resource-prefix", "intel.com")
    path = given.take("-config-file", "/etc/pcidp/config.json")
    if file is None:
        raise without_file("sriov", path)
    if truth(given.take("-use-cdi", "false"), "-use-cdi"):
        imported.note_loss("-use-cdi is left out: RDMA devices are given as device nodes")
    entries = content.items("resourceList")
    rules = [rule for number, entry in enumerate(entries) for rule in _rules(entry, number, prefix, imported)]
    imported.put("vendors.rdma", {"mode": "sriov"} if rules else {"enabled": False})
    if rules:
        every = {"match": {"vendor": "rdma"}, "advertise": False}
        has_rest = all(rule["match"] != every["match"] for rule in rules)
        imported.config["resources"] = [*rules, *([every] if has_rest else [])]
        imported.notes += _to_delete(entries)
    imported.note_left_out([*given.left(), *content.left()], _SRIOV_REASONS, "the plugin does not know it")
    return imported


def _rules(entry: Any, number: int, prefix: str, imported: Imported) -> Iterator[dict[str, Any]]:
    """The rules for a resource; a device belongs to it if one of its selectors matches."""
    if not isinstance(entry, Mapping):
        raise not_keys(f"resourceList[{number}]", entry)
    given = GivenSettings(entry, f"resourceList[{number}].")
    name = f"{given.take('resourcePrefix') or prefix}/{given.take('resourceName', '')}"
    written = given.take("selectors") or {}
    selectors = written if isinstance(written, list) else [written]
    given.take("deviceType")
    misplaced = [f"resourceList[{number}].{key}" for key in sorted(_TRANSLATED | WITHOUT_FACT) if entry.get(key)]
    for place, selector in enumerate(selectors):
        if not isinstance(selector, Mapping):
            raise not_keys(f"resourceList[{number}].selectors[{place}]", selector)
        what = name if len(selectors) == 1 else f"selectors[{place}] of {name}"
        if not _is_rdma(selector):
            imported.note_difference(f"{what} is left out: {_NOT_SERVED}")
        elif without := sorted(key for key in WITHOUT_FACT & selector.keys() if selector[key]):
            imported.note_difference(
                f"{what} is left out: no fact of a device corresponds to {', '.join(without)}; write a rule for"
                " it, with `physfn`, the PCI address of the physical function"
            )
        elif unknown := [*sorted(key for key in selector.keys() - _SRIOV_KEYS if selector[key]), *misplaced]:
            imported.note_difference(f"{what} is left out: {', '.join(unknown)} is not known: {_WIDER}")
        else:
            chosen = GivenSettings(selector, f"resourceList[{number}].selectors[{place}].")
            for match in matches(chosen):
                yield {"match": match, "name": name}
            imported.note_left_out(chosen.left(), {}, "it has no counterpart")
    imported.note_left_out(given.left(), {}, "it has no counterpart")


def _to_delete(entries: Sequence[Any]) -> Iterator[str]:
    """A note on the entries that the plugin's own file must lose where the plugin stays for others."""
    served: list[str] = []
    mixed: list[str] = []
    stays = False
    for number, entry in enumerate(entries):
        written = entry.get("selectors") or {}
        selectors = written if isinstance(written, list) else [written]
        ours = [place for place, selector in enumerate(selectors) if _is_rdma(selector)]
        stays |= len(ours) < len(selectors)
        if ours and len(ours) < len(selectors):
            mixed.append(f"resourceList[{number}]")
            served += [f"resourceList[{number}].selectors[{place}]" for place in ours]
        elif ours:
            served.append(f"resourceList[{number}]")
    if stays and served:
        rest = f", and give the rest of {', '.join(mixed)} another resourceName" if mixed else ""
        yield (
            f"where the SR-IOV plugin stays, delete {', '.join(served)} from its file{rest}: two plugins of one"
            " resource name displace each other"
        )


def _is_rdma(selector: Mapping[str, Any]) -> bool:
    return selector.get("isRdma") is True


SRIOV = Plugin(
    "sriov",
    lambda name: "sriovdp" in name or "sriov-network-device-plugin" in name,
    _translate_sriov,
    _SRIOV_FLAGS,
    "rdma",
    is_file=lambda content: in_any_case(content, {"resourceList"}).keys() == {"resourceList"},
    kinds={_POLICY: _of_policy("sriovDevicePlugin")},
)
