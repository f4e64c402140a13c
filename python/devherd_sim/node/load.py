"""Loads a spec from a preset or a YAML file, and describes its keys: as JSON Schema and as text."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from devherd.config.checks import problems_of
from devherd.config.errors import Location, Problem, config_error
from devherd.config.types import meant
from devherd.config.yaml_file import decoded, parsed
from devherd.errors import UsageError
from devherd_sim.node import text
from devherd_sim.node.presets import PRESETS, preset
from devherd_sim.node.spec import NodeSpec, entries

_SUBJECT = "spec"


class SpecFile(NodeSpec):
    """The keys of a file."""

    preset: str | None = None
    """The preset that the rest of the file changes."""


def load(spec: str) -> NodeSpec:
    """Load a spec by the name of a preset or from a YAML file.

    In a file, `preset` names the base; each section replaces the preset's section. Raises UsageError when `spec` is
    neither, ConfigError with all problems of a file.
    """
    path = Path(spec)
    if path.suffix not in {".yaml", ".yml"} and (not path.exists() or path.is_dir()):
        return preset(spec)
    try:
        written = decoded(spec, path.read_text, _SUBJECT)
    except OSError as error:
        raise UsageError(
            f"cannot read the spec {spec}", error.strerror or str(error), "give a preset's name or a YAML file"
        ) from error
    content, positions = parsed(spec, written, subject=_SUBJECT, example="fpga: {cards: 8}")
    problems = [*_problems(content)]
    if problems:
        raise config_error(spec, problems, positions, subject=_SUBJECT)
    return _node(content)


def _node(content: dict[str, Any]) -> NodeSpec:
    name = content.get("preset")
    start = PRESETS[name].spec.model_dump() if name else {}
    return NodeSpec.model_validate(start | {key: given for key, given in content.items() if key != "preset"})


def _problems(content: dict[str, Any]) -> Iterator[Problem]:
    """Yields the problems of each key; if there are none, the problems of the whole spec."""
    try:
        name = SpecFile.model_validate(content).preset
    except ValidationError as error:
        yield from (_where_written(problem, content) for problem in problems_of(error, SpecFile))
        return
    if name is not None and name not in PRESETS:
        yield Problem(("preset",), f"`{name}` is not a preset", meant(name, PRESETS))
        return
    node = _node(content)
    yield from _refused(("tree",), lambda: text.parse(node.tree))
    yield from _refused(("nvidia", "mig"), lambda: entries(node.model_copy(update={"tree": ""})))


def _refused(location: Location, build: Callable[[], object]) -> Iterator[Problem]:
    try:
        build()
    except UsageError as error:
        yield Problem(location, f"{error.what}: {error.why}", error.cure)


def _where_written(problem: Problem, content: dict[str, Any]) -> Problem:
    """Remove list indices that the file does not have: a single section is validated as a list of one."""
    return replace(problem, location=tuple(_parts(problem.location, content)))


def _parts(location: Location, content: Any) -> Iterator[int | str]:
    for part in location:
        if isinstance(part, int) and isinstance(content, dict):
            continue
        yield part
        try:
            content = content[part]
        except (KeyError, IndexError, TypeError):
            content = None


_PRESET = {"description": "What the rest starts from; a section replaces the preset's.", "enum": sorted(PRESETS)}


def schema() -> dict[str, Any]:
    """The JSON Schema of a file."""
    made = NodeSpec.model_json_schema()
    made["properties"] = {"preset": _PRESET} | made["properties"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | made


def described() -> Iterator[str]:
    """Yields a line for each key: its values, default and meaning; the keys of a section follow it."""
    whole = schema()
    for name, key in whole["properties"].items():
        yield f"{name}: {key['description']}" if name != "preset" else f"preset: {key['description']} See `--list`."
        for inner, value in _section(key, whole["$defs"]).items():
            meaning = value["description"]
            yield f"  {inner}: {_kind(value)}{_default(value)}. {meaning[:1].upper()}{meaning[1:]}"


def _section(key: Mapping[str, Any], sections: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keys of the section that a key holds, alone or as a list; empty for other keys."""
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
    text = str(default).lower() if isinstance(default, bool) else default
    return "" if isinstance(default, list) else f", by default {text}"
