"""Print the JSON Schema of the configuration file, for editors and validators."""

import argparse
import json

from devherd.errors import ExitCode


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """The command has no options of its own."""


def run(_arguments: argparse.Namespace) -> int:
    """Print it."""
    from devherd.config import Config

    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}
    print(json.dumps(schema, indent=2))
    return ExitCode.DONE
