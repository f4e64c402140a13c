"""Print the effective configuration: every value, and the option, variable or line of the file that it comes from.

It is what `devherd run` uses when it is given the same options and environment. As YAML the origins are comments, and
the output is a configuration file itself; as JSON they are beside it, by key path.
"""

import argparse
import json
import os

from devherd.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument("--output", choices=("yaml", "json"), default="yaml", help="default: yaml")


def run(arguments: argparse.Namespace) -> int:
    """Print it. Raises ConfigError, UsageError."""
    from devherd.config import COMMON_OPTIONS, load
    from devherd.config.loader import given_values
    from devherd.config.shown import as_tree, as_yaml, origins, shown

    options = {name: getattr(arguments, name) for name in ("config", *COMMON_OPTIONS)}
    config = load(options, os.environ)
    values = list(shown(config, given_values(options, os.environ)))
    if arguments.output == "yaml":
        print(as_yaml(values), end="")
    else:
        source = str(config.source) if config.source else None
        print(json.dumps({"file": source, "configuration": as_tree(values), "origins": origins(values)}, indent=2))
    return ExitCode.DONE
