"""Finds the configuration file: a given one, the choice of a node label, or the default.

Options take precedence over the environment; in each of them, a file takes precedence over a directory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from devherd.configurations import DEFAULT_LABEL, Configurations
from devherd.errors import UsageError
from devherd.settings import DEFAULT_RUN_DIR, Settings, label_file, lasting_directory

if TYPE_CHECKING:
    from devherd.proto import spool_pb2

DEFAULT_PATH = Path("/etc/devherd/config.yaml")
CHOICE_OPTIONS = ("configs", "config_label", "config_default")
"""The options for the choice by a label; each is also an environment variable."""


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """The configuration file, None for no file; the directory and the label value by which it was chosen, if any."""

    file: Path | None = None
    configurations: Configurations | None = None
    label_value: str = ""


def source_of(
    options: Mapping[str, str | None], environ: Mapping[str, str], label_value: str | None = None
) -> ConfigSource:
    """The file from which a new instance or a command reads its configuration. Raises UsageError.

    If `label_value` is None, the last known value is used, of this boot or an earlier one. A value that names no file
    counts as empty: no configuration is in force yet that could be kept.
    """
    if given := options.get("config"):
        return ConfigSource(Path(given))
    if not options.get("configs") and (given := environ.get("DEVHERD_CONFIG")):
        return ConfigSource(Path(given))
    chosen_from = configurations_of(options, environ)
    if chosen_from is None:
        return ConfigSource(DEFAULT_PATH if DEFAULT_PATH.exists() else None)
    value = _last_value(chosen_from, options, environ) if label_value is None else label_value
    try:
        return ConfigSource(chosen_from.file_of(value), chosen_from, value)
    except UsageError:
        return ConfigSource(chosen_from.file_of(""), chosen_from, value)


def configurations_of(options: Mapping[str, str | None], environ: Mapping[str, str]) -> Configurations | None:
    """The directory from which a label chooses; None if neither an option nor the environment names one."""
    directory, label, default = (options.get(name) or environ.get(f"DEVHERD_{name.upper()}") for name in CHOICE_OPTIONS)
    if not directory:
        return None
    return Configurations(Path(directory).absolute(), label or DEFAULT_LABEL, default or "")


def chosen_again(settings: Settings) -> ConfigSource:
    """The file that is chosen now for a running instance. Raises UsageError if the label's value names no file."""
    chosen_from = settings.configurations
    if chosen_from is None:
        return ConfigSource(settings.config_path)
    answer = label_answer(settings.config_label_file)
    value = answer.value if answer is not None and answer.label == chosen_from.label else settings.config_label_value
    return ConfigSource(chosen_from.file_of(value), chosen_from, value)


def file_of(options: Mapping[str, str | None], environ: Mapping[str, str]) -> Path | None:
    """The configuration file, None for no file. Raises UsageError."""
    return source_of(options, environ).file


def label_answer(file: Path) -> "spool_pb2.LabelAnswer | None":
    """The API server's last answer about the label that chooses the configuration; None before the first."""
    from devherd import spool  # noqa: PLC0415 - imports protobuf, and few nodes have such a label
    from devherd.proto import spool_pb2  # noqa: PLC0415 - as above

    try:
        return spool.read(file, spool_pb2.LabelAnswer)
    except (FileNotFoundError, spool.SpoolError):
        return None


def _last_value(chosen_from: Configurations, options: Mapping[str, str | None], environ: Mapping[str, str]) -> str:
    """The label's value in the last answer, of this boot or an earlier one; empty before the first."""
    for file in (label_file(_run_dir(options, environ)), kept_label_file(options, environ)):
        answer = label_answer(file) if file else None
        if answer is not None and answer.label == chosen_from.label:
            return answer.value
    return ""


def kept_label_file(options: Mapping[str, str | None], environ: Mapping[str, str]) -> Path | None:
    """The file that keeps the label's last value for the next boot; None without a state directory.

    Only options and variables can set its path: the value that it keeps chooses the configuration file.
    """
    state_dir = options.get("state_dir") or environ.get("DEVHERD_STATE_DIR")
    directory = lasting_directory(Path(state_dir) if state_dir else None, _run_dir(options, environ))
    return None if directory is None else directory / "config-label.pb"


def _run_dir(options: Mapping[str, str | None], environ: Mapping[str, str]) -> Path:
    return Path(options.get("run_dir") or environ.get("DEVHERD_RUN_DIR") or DEFAULT_RUN_DIR)
