"""Xilinx' plugin: environment variables, and a flag for its log."""

from collections.abc import Mapping
from typing import Any

from devherd.importers.given import Given
from devherd.importers.go_flags import LOG_REASON, flags
from devherd.importers.imported import Imported
from devherd.importers.invocation import Invocation
from devherd.importers.plugin import Plugin

_VARIABLES = frozenset({"U30NameConvention", "U30AllocUnit", "DeviceNameCustomize", "VirtualDev", "VirtualNum"})
_VIRTUAL = "such a device gives every card of the node to a pod; see `sharing` of a rule"
_REASONS = {
    "-log-level": LOG_REASON,
    "DeviceNameCustomize": "names are those of `name` in a rule, for each entry of NameCustomize.json",
    "VirtualDev": _VIRTUAL,
    "VirtualNum": _VIRTUAL,
}


def _translate(invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:  # noqa: ARG001 - no file
    imported = Imported("xilinx")
    words = {f"-{name}": each[-1] for name, each in flags(invocation.flag_words, (), {"log-level"}).items()}
    variables = {name: value for name, value in invocation.variables().items() if name in _VARIABLES}
    given = Given({**words, **variables})
    options = {}
    # The plugin takes any other text for its default, whatever the case of the letters.
    if given.take("U30NameConvention", "").lower() == "exactname":
        options["u30_name_convention"] = "exact_name"
    if given.take("U30AllocUnit", "").lower() == "device":
        options["u30_alloc_unit"] = "device"
    if given.take("DeviceNameCustomize", "").lower() == "true":
        imported.note(f"DeviceNameCustomize is left out: {_REASONS['DeviceNameCustomize']}")
    imported.say("vendors.xilinx_fpga", options)
    imported.note_left_out(given.left(), _REASONS, "it has no counterpart")
    return imported


XILINX = Plugin(
    "xilinx",
    lambda name: "xilinx" in name and "plugin" in name,
    _translate,
    frozenset({"log-level"}),
    _VARIABLES,
)
