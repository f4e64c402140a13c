"""The schema of the Helm chart's values: its last part, `$defs`, is the configuration as the program knows it.

With it Helm refuses what devherd would refuse on the node. The rest of the file is written by hand, and stays as it is.
"""

import json
from pathlib import Path
from typing import Any

from devherd.config.model import Config

NAME = "../deploy/helm/devherd/values.schema"
SUFFIX = ".json"
SCHEMA = Path(__file__).parents[2] / "deploy" / "helm" / "devherd" / "values.schema.json"
GENERATED = '  "$defs": {\n'
_BOUNDS = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum"}
"""Pydantic writes its own words beside an `anyOf`; JSON Schema's count for numbers alone, as they should."""
_FOR_READERS = ("default", "description", "examples", "title")


def page() -> str:
    """The whole file."""
    definitions = _definitions(by_alias=True)
    # Keys that other plugins have in another spelling go by either.
    for name, definition in _definitions(by_alias=False).items():
        definitions[name].get("properties", {}).update(definition.get("properties", {}))
    lines = [f'    "{name}": {json.dumps(checked(definitions[name]))}' for name in sorted(definitions)]
    return SCHEMA.read_text("utf-8").partition(GENERATED)[0] + GENERATED + ",\n".join(lines) + "\n  }\n}\n"


def _definitions(*, by_alias: bool) -> dict[str, Any]:
    schema = Config.model_json_schema(by_alias=by_alias)
    return {**schema.pop("$defs"), "Config": schema}


def checked(schema: Any) -> Any:
    """What is checked of a schema, without what it tells readers.

    Each value may be null as well: an empty section is its default, and a pool takes a common value away by it.
    """
    if isinstance(schema, list):
        return [checked(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: checked(value) for key, value in schema.items() if key not in (*_FOR_READERS, "properties")}
    # By name, for a key of the configuration may be called `default` or `title`.
    if "properties" in schema:
        kept["properties"] = {key: checked(value) for key, value in schema["properties"].items()}
    if isinstance(kept.get("type"), str) and kept["type"] != "null":
        kept["type"] = [kept["type"], "null"]
    for bound, word in _BOUNDS.items():
        if bound in kept:
            kept[word] = kept.pop(bound)
    if "enum" in kept:
        kept["enum"] = [*kept["enum"], None]
    return kept
