"""Print the devherd configuration that does what another plugin's configuration does.

FILE is a configuration file of NVIDIA's plugin (v1) or of generic-device-plugin, a list of flags of Intel's FPGA or GPU
plugin, AMD's, NVIDIA's or generic-device-plugin's, or a manifest (DaemonSet, Pod, ConfigMap) that holds one of them.
What has no counterpart is told in comments. `-` reads standard input.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devherd.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from devherd.foreign import Imported


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    from devherd.foreign import PLUGINS

    parser.add_argument("file", metavar="FILE", help="what to import; - = standard input")
    parser.add_argument("--plugin", choices=sorted(PLUGINS), help="whose it is (default: find out)")


def run(arguments: argparse.Namespace) -> int:
    """Import and print. Raises UsageError for a file that cannot be imported or that makes no good configuration."""
    from devherd.foreign import import_text

    source = "standard input" if arguments.file == "-" else arguments.file
    imported = import_text(_read(arguments.file), source, arguments.plugin)
    _check(imported, source)
    sys.stdout.write(_text(imported))
    return ExitCode.DONE


def _read(file: str) -> str:
    from devherd.config import strict_yaml

    try:
        return sys.stdin.read() if file == "-" else strict_yaml.read_text(Path(file))
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read {file}", f"byte {error.start} is not UTF-8 text", "name another file") from error


def _check(imported: "Imported", source: str) -> None:
    from pydantic import ValidationError

    from devherd.config import Config, ConfigError
    from devherd.config.contradictions import contradictions
    from devherd.config.explain import explain

    try:
        config = Config.model_validate(imported.config)
    except ValidationError as error:
        raise ConfigError(f"{source}, as imported", list(explain(error, {}))) from None
    if contradictory := contradictions(config):
        raise ConfigError(f"{source}, as imported", contradictory)


def _text(imported: "Imported") -> str:
    import yaml

    from devherd.config.strict_yaml import WrittenInt

    class Dumper(yaml.SafeDumper):
        """Numbers keep their digits: 0403 is a USB id."""

    def written(dumper: yaml.SafeDumper, number: WrittenInt) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:int", number.text)

    Dumper.add_representer(WrittenInt, written)
    comments = [f"devherd's configuration for what {imported.plugin} did", *imported.notes]
    body = yaml.dump(imported.config, Dumper=Dumper, sort_keys=False, allow_unicode=True) if imported.config else ""
    if not imported.config:
        comments.append("every default is right: nothing needs to be said")
    return "".join(f"# {comment}\n" for comment in comments) + body
