"""k8s-rdma-shared-dev-plugin: a JSON file of pools, and two flags."""

from collections.abc import Mapping
from typing import Any

from devherd.importers.given import Given, not_keys
from devherd.importers.go_flags import flags, truth
from devherd.importers.imported import Imported
from devherd.importers.invocation import Invocation
from devherd.importers.plugin import Plugin

_FLAGS = frozenset({"config-file", "use-cdi", "version", "v"})
_SWITCHES = frozenset({"use-cdi", "version", "v"})
_FILE_KEYS = frozenset({"configList", "periodicUpdateInterval"})
_VERSION_ONLY = "it only prints the plugin's version"
_REASONS = {
    "-version": _VERSION_ONLY,
    "-v": _VERSION_ONLY,
    "periodicUpdateInterval": "changes are seen at once, and each `scan.period` the host is looked at again",
}
_SELECTORS = {
    "vendors": "vendors",
    "deviceIDs": "device_ids",
    "drivers": "drivers",
    "ifNames": "if_names",
    "linkTypes": "link_types",
}


def _translate(invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:  # noqa: ARG001 - it ignores nothing
    imported = Imported("rdma-shared")
    words = {f"-{name}": each[-1] for name, each in flags(invocation.flag_words, _SWITCHES, _FLAGS).items()}
    given, content = Given(words), Given(file or {})
    if (path := given.take("-config-file")) and file is None:
        imported.note(f"-config-file {path} is not read: import it in one stream with these flags")
    if truth(given.take("-use-cdi", "false"), "-use-cdi"):
        imported.note("-use-cdi is left out: RDMA devices are given as device nodes")
    entries = content.items("configList")
    pools = [_pool(entry, number, imported) for number, entry in enumerate(entries)]
    if pools:
        imported.say("vendors.rdma", {"mode": "shared", "pools": pools})
    imported.note_left_out([*given.left(), *content.left()], _REASONS, "the plugin does not know it")
    return imported


def _pool(entry: Any, number: int, imported: Imported) -> dict[str, Any]:
    if not isinstance(entry, Mapping):
        raise not_keys(f"configList[{number}]", entry)
    given = Given(entry, f"configList[{number}].")
    chosen = given.section("selectors")
    selectors = {ours: chosen.take(theirs) for theirs, ours in _SELECTORS.items()}
    if devices := given.take("devices"):
        selectors["if_names"] = devices
    prefix, name = given.take("resourcePrefix") or "rdma", given.take("resourceName", "")
    pool = {"name": f"{prefix}/{name}", "rdma_hca_max": given.take("rdmaHcaMax", 0)}
    imported.note_left_out(given.left(), {}, "the plugin does not know it")
    return pool | {"selectors": {key: values for key, values in selectors.items() if values}}


RDMA_SHARED = Plugin(
    "rdma-shared",
    lambda name: "rdma-shared" in name,
    _translate,
    _FLAGS,
    is_file=lambda content: "configList" in content and content.keys() <= _FILE_KEYS,
)
