"""A file of keys, as configuration, web configuration and a simulated node's spec are: its mapping, with positions."""

from collections.abc import Callable
from typing import Any

import yaml

from devherd.config import strict_yaml
from devherd.config.errors import ConfigError, config_error
from devherd.config.positions import Positions
from devherd.config.problem import Problem
from devherd.config.yaml_faults import fault_of
from devherd.errors import UsageError

CONFIGURATION = "configuration"


def decoded(source: str, read: Callable[[], str], subject: str = CONFIGURATION) -> str:
    """What `read` returns. Raises ConfigError where that is not text."""
    try:
        return read()
    except UnicodeDecodeError as error:
        problem = Problem((), f"byte {error.start} is not UTF-8 text", "save the file as UTF-8")
        raise config_error(source, [problem], subject=subject) from error


def parsed(
    source: str,
    text: str,
    foreign_of: Callable[[Any, str], Problem | None] = lambda _content, _text: None,
    *,
    subject: str = CONFIGURATION,
    example: str = "scan: {period: 5s}",
) -> tuple[dict[str, Any], Positions]:
    """The keys of a text of YAML, none for an empty one, and where they stand.

    `subject` is what the file is, `example` a line of one; `foreign_of` knows files that are something else. Raises
    ConfigError.
    """
    try:
        content, root = strict_yaml.parse(text)
    except yaml.YAMLError as error:
        fault = fault_of(error, text)
        raise ConfigError(
            [UsageError(f"bad {subject} in {source}:{fault.position}", fault.what, fault.cure)]
        ) from error
    if foreign := foreign_of(content, text):
        raise config_error(source, [foreign], subject=subject)
    if content is None:
        content = {}
    if not isinstance(content, dict):
        problem = Problem((), "the file is not a mapping of keys", f"write it like `{example}`")
        raise config_error(source, [problem], subject=subject)
    return {str(key): value for key, value in content.items()}, Positions(root)
