"""AMD's plugin: flags only."""

from collections.abc import Mapping
from typing import Any

from devherd.importers.given import Given
from devherd.importers.go_flags import LOG_FLAGS, LOG_REASON, LOG_SWITCHES, flags
from devherd.importers.imported import Imported
from devherd.importers.invocation import Invocation
from devherd.importers.plugin import Plugin

_FLAGS = frozenset({"pulse", "resource_naming_strategy", "driver_type"}) | LOG_FLAGS
_REASONS = {f"-{name}": LOG_REASON for name in LOG_FLAGS} | {"-pulse": "health is always polled, each `health.poll`"}


def _translate(invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:  # noqa: ARG001 - no file
    imported = Imported("amd")
    given = Given({f"-{name}": each[-1] for name, each in flags(invocation.flag_words, LOG_SWITCHES, _FLAGS).items()})
    options = {}
    if (naming := given.take("-resource_naming_strategy", "single")) != "single":
        options["naming"] = naming
    if driver_type := given.take("-driver_type"):
        options["driver_type"] = driver_type.replace("-", "_")
    imported.say("vendors.amd", options)
    imported.note_left_out(given.left(), _REASONS, "it has no counterpart")
    return imported


AMD = Plugin("amd", lambda name: name == "k8s-device-plugin" or "rocm/" in name or "amdgpu" in name, _translate, _FLAGS)
