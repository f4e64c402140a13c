"""Where a spec comes from: a preset's name, or a YAML file."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from devherd.config.errors import config_error
from devherd.config.file_content import decoded, parsed
from devherd.config.meant import meant
from devherd.config.problem import Location, Problem
from devherd.config.words import problems_of
from devherd.errors import UsageError
from devherd_sim.node import text
from devherd_sim.node.presets import PRESETS, preset
from devherd_sim.node.spec import NodeSpec, entries

_SUBJECT = "spec"


class SpecFile(NodeSpec):
    """The keys of a file."""

    preset: str | None = None
    """What the rest starts from."""


def load(spec: str) -> NodeSpec:
    """The node that a preset's name or a YAML file asks for.

    In a file, `preset` is where the rest starts from: a section given beside it replaces the preset's. Raises
    UsageError when it is neither, ConfigError with all that is wrong with a file.
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
    """What is wrong with each key; where that is nothing, what cannot be built of them."""
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
    """A section alone is a list of one for the program, and none in the file."""
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
