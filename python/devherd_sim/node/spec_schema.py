"""What a spec of a simulated node may say: for editors as JSON Schema, and for people line by line."""

from collections.abc import Iterator, Mapping
from typing import Any

from devherd_sim.node.presets import PRESETS
from devherd_sim.node.spec import NodeSpec

_PRESET = {"description": "What the rest starts from; a section replaces the preset's.", "enum": sorted(PRESETS)}


def schema() -> dict[str, Any]:
    """The JSON Schema of a file."""
    made = NodeSpec.model_json_schema()
    made["properties"] = {"preset": _PRESET} | made["properties"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | made


def described() -> Iterator[str]:
    """Each key with what it may be, its default and its meaning; those of a section below it."""
    whole = schema()
    for name, key in whole["properties"].items():
        yield f"{name}: {key['description']}" if name != "preset" else f"preset: {key['description']} See `--list`."
        for inner, value in _section(key, whole["$defs"]).items():
            meaning = value["description"]
            yield f"  {inner}: {_kind(value)}{_default(value)}. {meaning[:1].upper()}{meaning[1:]}"


def _section(key: Mapping[str, Any], sections: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keys of what it holds, one of them or a list."""
    for each in (key, key.get("items", {}), *key.get("anyOf", ())):
        if "$ref" in each:
            found: Mapping[str, Any] = sections[each["$ref"].rpartition("/")[2]]["properties"]
            return found
    return {}


def _kind(value: Mapping[str, Any]) -> str:
    if "enum" in value:
        return " | ".join(map(str, value["enum"]))
    if "anyOf" in value:
        return " | ".join(_kind(each) for each in value["anyOf"] if each.get("type") != "null")
    if value.get("type") == "array":
        return f"list of {_kind(value['items'])}"
    if value.get("type") == "integer":
        least, most = value.get("minimum", 0), value.get("maximum")
        return f"{least} to {most}" if most is not None else f"{least} or more"
    return "true | false" if value.get("type") == "boolean" else "text"


def _default(value: Mapping[str, Any]) -> str:
    if value.get("default") in (None, []):
        return ""
    default = value["default"]
    said = str(default).lower() if isinstance(default, bool) else default
    return "" if isinstance(default, list) else f", by default {said}"
