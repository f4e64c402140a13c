"""Which file is the configuration: the one given, the one that a label of the node chooses, or the default one.

An option counts before the environment; in either of them, a file before a directory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from devherd.configurations import DEFAULT_LABEL, Configurations, told_in
from devherd.errors import UsageError
from devherd.settings import DEFAULT_RUN_DIR, Settings, label_file, lasting_directory

DEFAULT_PATH = Path("/etc/devherd/config.yaml")
CHOICE_OPTIONS = ("configs", "config_label", "config_default")
"""The options of the choice by a label; each is an environment variable, too."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file, None being none, and by what it was chosen where it was."""

    file: Path | None = None
    configurations: Configurations | None = None
    label_value: str = ""


def source_of(options: Mapping[str, str | None], environ: Mapping[str, str], label_value: str | None = None) -> Source:
    """Where a new instance or a command reads its configuration. Raises UsageError.

    `label_value` None: as an instance in the same run directory was told last, or before a boot. A value that names no
    file counts as none: there is no configuration in force yet that could stay.
    """
    if given := options.get("config"):
        return Source(Path(given))
    if not options.get("configs") and (given := environ.get("DEVHERD_CONFIG")):
        return Source(Path(given))
    chosen_from = configurations_of(options, environ)
    if chosen_from is None:
        return Source(DEFAULT_PATH if DEFAULT_PATH.exists() else None)
    value = _last_told(chosen_from, options, environ) if label_value is None else label_value
    try:
        return Source(chosen_from.file_of(value), chosen_from, value)
    except UsageError:
        return Source(chosen_from.file_of(""), chosen_from, value)


def configurations_of(options: Mapping[str, str | None], environ: Mapping[str, str]) -> Configurations | None:
    """The directory from which a label chooses; None where nobody names one."""
    directory, label, default = (options.get(name) or environ.get(f"DEVHERD_{name.upper()}") for name in CHOICE_OPTIONS)
    if not directory:
        return None
    return Configurations(Path(directory).absolute(), label or DEFAULT_LABEL, default or "")


def chosen_again(settings: Settings) -> Source:
    """What is chosen now for an instance that runs with these settings. Raises UsageError where that is no file."""
    chosen_from = settings.configurations
    if chosen_from is None:
        return Source(settings.config_path)
    told = told_in(settings.config_label_file)
    value = told.value if told is not None and told.label == chosen_from.label else settings.config_label_value
    return Source(chosen_from.file_of(value), chosen_from, value)


def file_of(options: Mapping[str, str | None], environ: Mapping[str, str]) -> Path | None:
    """The file to read. Raises UsageError."""
    return source_of(options, environ).file


def _last_told(chosen_from: Configurations, options: Mapping[str, str | None], environ: Mapping[str, str]) -> str:
    for file in (label_file(_run_dir(options, environ)), kept_label_file(options, environ)):
        told = told_in(file) if file else None
        if told is not None and told.label == chosen_from.label:
            return told.value
    return ""


def kept_label_file(options: Mapping[str, str | None], environ: Mapping[str, str]) -> Path | None:
    """What the node's label said last, as the next boot finds it; None where nothing outlives a boot.

    It lies where options and variables put it: which file of the configuration counts is not known before it is read.
    """
    state_dir = options.get("state_dir") or environ.get("DEVHERD_STATE_DIR")
    directory = lasting_directory(Path(state_dir) if state_dir else None, _run_dir(options, environ))
    return None if directory is None else directory / "config-label.json"


def _run_dir(options: Mapping[str, str | None], environ: Mapping[str, str]) -> Path:
    return Path(options.get("run_dir") or environ.get("DEVHERD_RUN_DIR") or DEFAULT_RUN_DIR)
