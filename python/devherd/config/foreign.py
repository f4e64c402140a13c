"""Files that are given as a configuration of devherd and are something else: what they are, and what to do. Pure."""

from collections.abc import Mapping
from typing import Any

from devherd.config.model import Config
from devherd.config.problem import Problem
from devherd.errors import UsageError


def what_else(content: Any, text: str) -> Problem | None:
    """What a file is that has none of our keys; None where it is not known."""
    if isinstance(content, Mapping) and content.keys() & {field.alias or key for key, field in _FIELDS.items()}:
        return None
    if isinstance(content, Mapping) and {"apiVersion", "kind"} <= content.keys():
        kind = str(content["kind"])
        if kind == "ConfigMap" and not _plugin_of(text):
            return Problem((), "this is a ConfigMap, not what is in it", "give the file that its `data` contains")
        return Problem((), f"this is a Kubernetes {kind}, not a configuration", _CONVERT)
    plugin = _plugin_of(text) if content else ""
    return Problem((), f"this is the configuration of another plugin ({plugin})", _CONVERT) if plugin else None


_FIELDS = Config.model_fields
_CONVERT = "convert it with `devherd import-config`"


def _plugin_of(text: str) -> str:
    from devherd.importers import import_text  # noqa: PLC0415 - for a file that is refused in any case

    try:
        return import_text(text, "the file", None)[0].plugin
    except UsageError:
        return ""
