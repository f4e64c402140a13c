"""Convert another device plugin's configuration to devherd's, and print it.

FILE is one of: a configuration file of NVIDIA's plugin (v1), of generic-device-plugin or of an RDMA plugin; a list of
flags of any plugin; a manifest that contains one of them (DaemonSet, Pod, ConfigMap, a patch); a ClusterPolicy of
NVIDIA's or Intel's GPU operator, NicClusterPolicy, DeviceConfig, GpuDevicePlugin, FpgaDevicePlugin; the values file of
a chart, of NVIDIA's plugin or GPU operator, of AMD's or Intel's GPU plugin, or of a chart that depends on these, also
in a HelmRelease, a HelmChart or an Application of Argo CD; MicroShift's file. Give a manifest and its ConfigMap in one
stream. Settings without a counterpart become comments; a resource with a selector that has none is left out. `-` reads
standard input.

With --helm the result is a values file of devherd's chart: `vendors`, `components`, and `config`, or `configs` where
a node's label chooses one of several.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devherd.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from devherd.importers import Imported


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    from devherd.importers import PLUGINS

    parser.add_argument("file", metavar="FILE", help="the file to import; - = standard input")
    parser.add_argument(
        "--plugin",
        choices=sorted(PLUGINS),
        metavar="PLUGIN",
        help=f"the plugin of the file: {', '.join(sorted(PLUGINS))} (default: recognised by its content)",
    )
    parser.add_argument("--name", help="print the configuration of this name, of several")
    parser.add_argument(
        "--directory", type=Path, metavar="DIR", help="write each configuration to DIR/<name>.yaml instead of printing"
    )
    parser.add_argument("--helm", action="store_true", help="print values for devherd's Helm chart")
    parser.add_argument(
        "--with-ignored",
        action="store_true",
        help="also apply settings that NVIDIA's plugin ignores: names by product, shares of some devices",
    )


def run(arguments: argparse.Namespace) -> int:
    """Import and print. Raises UsageError for a file that cannot be imported or results in a bad configuration."""
    from devherd.importers import import_text

    source = "standard input" if arguments.file == "-" else arguments.file
    found = import_text(_read(arguments.file), source, arguments.plugin, with_ignored=arguments.with_ignored)
    if arguments.name is not None:
        found = [imported for imported in found if imported.name == arguments.name] or _no_such(arguments.name, found)
    for imported in found:
        _check(imported, source)
    if arguments.helm and arguments.directory:
        raise UsageError("--helm is given with --directory", "values are one file", "leave one of them out")
    if arguments.helm:
        sys.stdout.write(_helm_text(found))
    elif arguments.directory:
        _write(found, arguments.directory)
    else:
        sys.stdout.write(_text(_only(found, source)))
    return ExitCode.DONE


def settings_of(file: str) -> tuple[dict[str, Any], set[str], bool]:
    """A file of plugins as one configuration, their vendors, and whether nothing of effect is left out.

    Raises UsageError.
    """
    from devherd.importers import import_text, merged

    source = "standard input" if file == "-" else file
    found = import_text(_read(file), source, None)
    if len({imported.plugin for imported in found}) < len(found):
        found = [_only(found, source)]
    for imported in found:
        _check(imported, source)
    vendors = {imported.vendor or imported.plugin for imported in found}
    return merged([imported.config for imported in found]), vendors, all(imported.is_whole for imported in found)


def _read(file: str) -> str:
    from devherd.config import yaml_file

    try:
        return sys.stdin.read() if file == "-" else yaml_file.read_text(Path(file), yaml_file.OR_STDIN)
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read {file}", f"byte {error.start} is not UTF-8 text", "name another file") from error


def _no_such(name: str, found: list["Imported"]) -> list["Imported"]:
    names = ", ".join(imported.name for imported in found)
    raise UsageError(f"no configuration is called {name}", f"choose from {names}", "give --name one of them")


def _only(found: list["Imported"], source: str) -> "Imported":
    if len(found) > 1:
        names = ", ".join(f"{imported.name} ({imported.plugin})" for imported in found)
        defaults = [imported for imported in found if imported.is_default]
        if len(defaults) == 1:
            others = ", ".join(imported.name for imported in found if not imported.is_default)
            all_of_them = "--directory writes all, --helm prints values with all of them"
            defaults[0].note(
                f"this is the default of {len(found)} configurations; --name prints {others}; {all_of_them}"
            )
            return defaults[0]
        raise UsageError(
            f"{source} holds {len(found)} configurations", names, "print one with --name or write all with --directory"
        )
    return found[0]


def _write(found: list["Imported"], directory: Path) -> None:
    """Write a new file for each configuration. `/` in its name, which the user may have chosen, becomes `_`."""
    for default in (imported.name for imported in found if imported.is_default):
        for imported in found:
            imported.note(
                f"nodes without the label use {default}: `devherd run --configs DIR --config-default {default}`"
            )
    paths = [directory / f"{imported.name.replace('/', '_')}.yaml" for imported in found]
    if twice := sorted({path.name for path in paths if paths.count(path) > 1}):
        raise UsageError(f"two configurations would be {twice[0]}", "they have one name", "import them one by one")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(Path(error.filename), error) from error
    for path, imported in zip(paths, found, strict=True):
        try:
            file = path.open("x", encoding="utf-8")
        except OSError as error:
            raise _unwritable(path, error) from error
        try:
            with file:
                file.write(_text(imported))
        except OSError as error:
            path.unlink(missing_ok=True)  # a partial configuration could be mistaken for a complete one
            raise _unwritable(path, error) from error
        sys.stdout.write(f"{path}\n")


def _unwritable(path: Path, error: OSError) -> UsageError:
    cure = "remove it or name another directory with --directory"
    return UsageError(f"cannot write {path}", error.strerror or str(error), cure)


def checked_text(imported: "Imported", source: str) -> str:
    """The configuration as a file's content. Raises UsageError for a bad one."""
    _check(imported, source)
    return _text(imported)


def _check(imported: "Imported", source: str) -> None:
    from devherd.config.loader import valid

    valid(f"{source}, as imported", _yaml(imported.config))


_NO_SETTING = "No setting needed: the defaults serve the same"
_NO_OTHER_SETTING = "No setting for the rest: it has devherd's defaults"


def _text(imported: "Imported") -> str:
    comments = [f"devherd's configuration for what {imported.plugin} did", *imported.notes]
    if not imported.config:
        comments.append(_NO_SETTING if imported.is_whole else _NO_OTHER_SETTING)
    return _with_comments(comments, imported.config)


def _helm_text(found: list["Imported"]) -> str:
    from devherd.importers import helm_values

    made = helm_values(found)
    plugins = ", ".join(dict.fromkeys(imported.plugin for imported in found))
    comments = [f"values of devherd's chart for what {plugins} did", *made.notes]
    if not made.values.keys() & {"config", "configs"}:
        comments.append(_NO_SETTING if made.is_whole else _NO_OTHER_SETTING)
    return _with_comments(comments, made.values)


def _with_comments(comments: list[str], content: dict[str, Any]) -> str:
    return "".join(f"# {comment}\n" for comment in comments) + _yaml(content)


def _yaml(content: dict[str, Any]) -> str:
    import yaml

    from devherd.config.yaml_file import WrittenInt

    class Dumper(yaml.SafeDumper):
        """Writes numbers with the digits that were read: 0403 is a USB id."""

    def written(dumper: yaml.SafeDumper, number: WrittenInt) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:int", number.text)

    Dumper.add_representer(WrittenInt, written)
    return yaml.dump(content, Dumper=Dumper, sort_keys=False, allow_unicode=True) if content else ""
