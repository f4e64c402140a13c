"""Check everything that devherd needs of this host, with a cure for each problem; exit code 1 if there is one.

It checks rights, kernel, clock, kubelet, container runtime, devices and drivers, notifications, certificates, disk
space and the running instance, if any; it changes nothing, but makes a socket beside the kubelet's and removes it. In a
pod it sees what devherd sees there. Host root and configuration are those of the running instance, unless given.

`--bundle` also writes an archive for a defect report. It contains the names of devices and of the pods that hold them,
but no values of the configuration that look like secrets: check it before you send it.
"""

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from devherd.cli.instance import as_in_force, reaching_settings, require_running
from devherd.cli.options import load_config
from devherd.doctor.line import Level, Line
from devherd.errors import DevherdError, ExitCode
from devherd.instance.inventory_json import Json
from devherd.instance.read import read_instance
from devherd.settings import Settings
from devherd.text import amount, version, version_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.text import Text

    from devherd.config.resolved import ResolvedConfig
    from devherd.doctor.bundle import Part
    from devherd.doctor.examination import Examination

_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "red"}
_WIDEST = max(map(len, Level))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument("--output", choices=("table", "json"), default="table", help="default: table")
    parser.add_argument("--bundle", metavar="FILE.tar.gz", help="also write a support archive")


def run(arguments: argparse.Namespace) -> int:
    """Print the report; returns 1 if it has a problem. Raises DevherdError if the archive cannot be written."""
    from devherd.doctor.examination import examine

    config, settings, complaint = _configured(arguments)
    found = examine(config, settings, complaint)
    if arguments.output == "json":
        print(json.dumps(_report(found), indent=2, ensure_ascii=False))
    else:
        _print(found)
    if arguments.bundle:
        _write_archive(Path(arguments.bundle), found, settings)
    return ExitCode.PROBLEM_FOUND if found.has_problem else ExitCode.DONE


def _configured(arguments: argparse.Namespace) -> "tuple[ResolvedConfig | None, Settings, str]":
    """The configuration, None if it is bad; the settings of the instance; the error, empty if there is none."""
    from devherd.config.loader import resolve

    _look_as_the_instance_does(arguments)
    try:
        config = resolve(load_config(arguments))
        return config, as_in_force(config.settings(), arguments), ""
    except DevherdError as error:
        return None, _settings_without_file(arguments), f"{error.what}: {error.why}"


def _look_as_the_instance_does(arguments: argparse.Namespace) -> None:
    """Take host root and configuration from the running instance, unless options or environment give them."""
    try:
        settings = reaching_settings(arguments, is_warned=False)
        require_running(settings)
        instance = read_instance(settings).instance
    except (DevherdError, OSError):
        return
    for name in ("config", "host_root") if instance else ():
        is_given = getattr(arguments, name) or os.environ.get(f"DEVHERD_{name.upper()}")
        if not is_given:
            setattr(arguments, name, getattr(instance, name) or None)


def _settings_without_file(arguments: argparse.Namespace) -> Settings:
    """The settings from options, environment and defaults; an unknown `registration` counts as the default."""
    from devherd.config.chosen_file import file_of
    from devherd.config.common import given_values

    given = {name: value for name, (value, _) in given_values(vars(arguments), os.environ).items() if value}
    usual = Settings()
    registration, state_dir, root_dir = map(given.get, ("registration", "state_dir", "kubelet_root_dir"))
    return Settings(
        config_path=file_of(vars(arguments), os.environ),
        host_root=Path(given.get("host_root", usual.host_root)),
        kubelet_dir=Path(given.get("kubelet_dir", usual.kubelet_dir)),
        kubelet_root_dir=Path(root_dir) if root_dir else None,
        registration="plugins_registry" if registration == "plugins_registry" else usual.registration,
        run_dir=Path(given.get("run_dir", usual.run_dir)),
        state_dir=Path(state_dir) if state_dir else None,
    )


def _report(found: "Examination") -> Json:
    return {"devherd": version(), "lines": [asdict(line) for line in found.lines]}


def _print(found: "Examination") -> None:
    from devherd.cli.tables import console

    terminal = console()
    for line in found.lines:
        terminal.print(_text(line), soft_wrap=True)
    counts = {level: sum(line.level is level for line in found.lines) for level in Level}
    print(f"\n{amount(counts[Level.PROBLEM], 'problem')}, {amount(counts[Level.WARNING], 'warning')}")


def _text(line: Line) -> "Text":
    from rich.text import Text

    from devherd.cli.tables import plain

    cure = f" — {line.cure}" if line.cure else ""
    return Text.assemble(
        (f"{line.level:<{_WIDEST}}", _STYLES[line.level]), f"  {line.topic:<14} {plain(line.what)}{plain(cure)}"
    )


def _write_archive(path: Path, found: "Examination", settings: Settings) -> None:
    from devherd.doctor import bundle

    try:
        missing = bundle.write(path, dict(_parts(found, settings)))
    except OSError as error:
        raise DevherdError(f"cannot write {path}", error.strerror or str(error), "name another file") from error
    left_out = f"; could not be had: {'; '.join(missing)}" if missing else ""
    print(
        f"wrote {path}: it holds names of devices and of pods that hold them; look through it first{left_out}",
        file=sys.stderr,
    )


def _parts(found: "Examination", settings: Settings) -> "Iterator[tuple[str, Part]]":
    from devherd import history
    from devherd.cli import events, scan, status
    from devherd.doctor import bundle
    from devherd.doctor.bundle import as_json

    report = found.scan
    yield "doctor.txt", lambda: "".join(f"{_text(line).plain}\n" for line in found.lines)
    yield "doctor.json", lambda: as_json(_report(found))
    if report is not None:
        yield "scan.json", lambda: as_json(scan.inventory_of(report, explain=True))
    yield "status.json", lambda: as_json(status.status_json(*status.look(settings)))
    yield "config.yaml", lambda: bundle.configuration(settings.config_path)
    yield (
        "events.jsonl",
        lambda: "".join(
            f"{json.dumps(events.event_json(event), ensure_ascii=False)}\n"
            for event in history.events(settings.run_dir)
        ),
    )
    yield "versions.txt", lambda: _versions() + bundle.variables(os.environ)
    yield "pci.txt", lambda: bundle.pci_functions(settings.host_root)
    yield from bundle.logs(settings)


def _versions() -> str:
    return f"{version_line()}\nPython {platform.python_version()}\n{platform.platform()}\n"
