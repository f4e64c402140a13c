"""Print another plugin's configuration as one for devherd.

FILE is a configuration file of NVIDIA's plugin (v1) or of generic-device-plugin, a list of flags of Intel's FPGA or GPU
plugin, AMD's, NVIDIA's or generic-device-plugin's, or a manifest (DaemonSet, Pod, ConfigMap, the DeviceConfig of AMD's
operator) that holds one of them.
Settings without a counterpart become comments. `-` reads standard input.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devherd.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from devherd.importers import Imported


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    from devherd.importers import PLUGINS

    parser.add_argument("file", metavar="FILE", help="the file to import; - = standard input")
    parser.add_argument(
        "--plugin", choices=sorted(PLUGINS), help="the plugin that the file is for (default: recognised by its content)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Import and print. Raises UsageError for a file that cannot be imported or results in a bad configuration."""
    from devherd.importers import import_text

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
    from devherd.config.conflicts import conflicts
    from devherd.config.errors import explain

    try:
        config = Config.model_validate(imported.config)
    except ValidationError as error:
        raise ConfigError(f"{source}, as imported", list(explain(error, {}))) from None
    if conflicting := conflicts(config):
        raise ConfigError(f"{source}, as imported", conflicting)


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
        comments.append("every default is right: no setting is needed")
    return "".join(f"# {comment}\n" for comment in comments) + body
