"""sriov-network-device-plugin, for resources that are RDMA devices: a JSON file of resources, and a few flags."""

from collections.abc import Iterator, Mapping
from typing import Any

from devherd.importers.given import Given, not_keys
from devherd.importers.go_flags import LOG_FLAGS, LOG_REASON, LOG_SWITCHES, flags, truth
from devherd.importers.imported import Imported
from devherd.importers.invocation import Invocation
from devherd.importers.plugin import Plugin
from devherd.importers.sriov_selectors import WITHOUT_FACT, matches

_LOG_FLAGS = LOG_FLAGS | {"log-dir", "log-level"}
_FLAGS = frozenset({"config-file", "resource-prefix", "use-cdi"}) | _LOG_FLAGS
_NOT_SERVED = "only its RDMA devices are served; the SR-IOV plugin may stay for others"
_REASONS = {f"-{name}": LOG_REASON for name in _LOG_FLAGS}


def _translate(invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:  # noqa: ARG001 - it ignores nothing
    imported = Imported("sriov")
    found = flags(invocation.flag_words, LOG_SWITCHES | {"use-cdi"}, _FLAGS)
    given, content = Given({f"-{name}": each[-1] for name, each in found.items()}), Given(file or {})
    prefix = given.take("-resource-prefix", "intel.com")
    if (path := given.take("-config-file")) and file is None:
        imported.note(f"-config-file {path} is not read: import it in one stream with these flags")
    if truth(given.take("-use-cdi", "false"), "-use-cdi"):
        imported.note("-use-cdi is left out: RDMA devices are given as device nodes")
    entries = content.items("resourceList")
    rules = [rule for number, entry in enumerate(entries) for rule in _rules(entry, number, prefix, imported)]
    if rules:
        imported.say("vendors.rdma", {"mode": "sriov"})
        imported.config["resources"] = [*rules, {"match": {"vendor": "rdma"}, "advertise": False}]
    imported.note_left_out([*given.left(), *content.left()], _REASONS, "the plugin does not know it")
    return imported


def _rules(entry: Any, number: int, prefix: str, imported: Imported) -> Iterator[dict[str, Any]]:
    """The rules for a resource's selectors, of which a device has to fit one."""
    if not isinstance(entry, Mapping):
        raise not_keys(f"resourceList[{number}]", entry)
    given = Given(entry, f"resourceList[{number}].")
    name = f"{given.take('resourcePrefix') or prefix}/{given.take('resourceName', '')}"
    written = given.take("selectors") or {}
    selectors = written if isinstance(written, list) else [written]
    given.take("deviceType")
    for place, selector in enumerate(selectors):
        if not isinstance(selector, Mapping):
            raise not_keys(f"resourceList[{number}].selectors[{place}]", selector)
        if not _is_rdma(selector):
            imported.note(f"{name} is left out: {_NOT_SERVED}")
        elif unknown := sorted(key for key in WITHOUT_FACT & selector.keys() if selector[key]):
            imported.note(
                f"{name} is left out: no fact of a device corresponds to {', '.join(unknown)}; write a rule for"
                " it, with `physfn`, the PCI address of the physical function"
            )
        else:
            chosen = Given(selector, f"resourceList[{number}].selectors[{place}].")
            for match in matches(chosen):
                yield {"match": match, "name": name}
            imported.note_left_out(chosen.left(), {}, "it has no counterpart")
    imported.note_left_out(given.left(), {}, "it has no counterpart")


def _is_rdma(selector: Mapping[str, Any]) -> bool:
    return selector.get("isRdma", selector.get("IsRdma")) is True


SRIOV = Plugin(
    "sriov",
    lambda name: "sriovdp" in name or "sriov-network-device-plugin" in name,
    _translate,
    _FLAGS,
    is_file=lambda content: content.keys() == {"resourceList"},
)
