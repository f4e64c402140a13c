"""Print the JSON Schema of the configuration file, for editors and validators."""

import argparse
import json
from typing import Any

from devherd.errors import ExitCode


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """The command has no options of its own."""


def run(_arguments: argparse.Namespace) -> int:
    """Print it."""
    from devherd.config import Config

    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}
    print(json.dumps(_on_one_line(schema), indent=2))
    return ExitCode.DONE


def _on_one_line(part: Any) -> Any:
    """Descriptions as sentences: their lines are those of the source."""
    if isinstance(part, list):
        return [_on_one_line(each) for each in part]
    if not isinstance(part, dict):
        return part
    return {
        key: " ".join(value.split()) if key == "description" and isinstance(value, str) else _on_one_line(value)
        for key, value in part.items()
    }
