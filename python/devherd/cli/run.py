"""Run the supervisor in the foreground: it scans the host, serves resources to the kubelet and restarts what fails.

SIGTERM and SIGINT stop it cleanly. SIGHUP reads the configuration again; a bad one changes nothing. With --configs a
node label selects the configuration; changes of the label and of the file apply at once.
"""

import os
from typing import TYPE_CHECKING

from devherd.cli.options import given_options, plugin_of
from devherd.config.chosen_file import CHOICE_OPTIONS
from devherd.configurations import DEFAULT_LABEL
from devherd.errors import UsageError
from devherd.lean_imports import lean_imports
from devherd.settings import COMMON_OPTIONS
from devherd.waits import USUAL_WAITS, Waits

if TYPE_CHECKING:
    import argparse

    from devherd.config.model import Config
    from devherd.config.resolved import ResolvedConfig
    from devherd.settings import Settings


_TAKE_OVER, _RESTART = "DEVHERD_TAKE_OVER", "DEVHERD_RESTART_FOR_DRIVER"
_VALUES = {"true": True, "false": False, "": False}


def add_arguments(parser: "argparse.ArgumentParser") -> None:
    """Add the command's own options."""
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="prepare everything, wait for the end of a running instance and take over, instead of ending with exit"
        f" code 3; also {_TAKE_OVER}=true",
    )
    parser.add_argument(
        "--restart-for-driver",
        action="store_true",
        help="in a container, end with exit code 0 when NVIDIA's driver has been newer than the container's library for"
        f" a minute, so that a restart brings the new one; also {_RESTART}=true",
    )
    parser.add_argument(
        "--configs", metavar="DIR", help="a directory of configurations, instead of --config (DEVHERD_CONFIGS)"
    )
    parser.add_argument(
        "--config-label",
        metavar="KEY",
        help=f"the node label whose value names one of them (DEVHERD_CONFIG_LABEL; default: {DEFAULT_LABEL})",
    )
    parser.add_argument(
        "--config-default",
        metavar="NAME",
        help="the configuration for nodes without the label (DEVHERD_CONFIG_DEFAULT; default: `default`, or the only"
        " one)",
    )


def run(arguments: "argparse.Namespace", waits: Waits = USUAL_WAITS) -> int:
    """Run the supervisor until it is stopped. Tests give other `waits`. Raises AlreadyRunningError and UsageError."""
    with lean_imports():
        from devherd.supervisor import run as supervisor

    if arguments.config and arguments.configs:
        raise UsageError("`--configs` is another way than `--config`", "both are given", "leave one out")

    options = given_options(vars(arguments), ("config", *COMMON_OPTIONS, *CHOICE_OPTIONS))

    def load(running: "Settings | None") -> "ResolvedConfig":
        from devherd.config.loader import reload, resolve

        if running:
            return resolve(reload(running, os.environ, plugin_of), waits)
        config = _first(options)
        _refuse_no_directory(config)
        return resolve(config, waits)

    return supervisor.run(
        load,
        takes_over=arguments.take_over or _is_set(_TAKE_OVER),
        restarts_for_driver=arguments.restart_for_driver or _is_set(_RESTART),
    )


def _refuse_no_directory(config: "Config") -> None:
    """Raise UsageError if the host root, or an existing kubelet path, is not a directory."""
    of_the_kubelet = ((config.kubelet_dir, "--kubelet-dir"), (config.kubelet_root_dir, "--kubelet-root-dir"))
    there = [(directory, option) for directory, option in of_the_kubelet if directory and directory.exists()]
    for directory, option in ((config.host_root, "--host-root"), *there):
        if not directory.is_dir():
            raise UsageError(f"cannot use {directory}", "it is not a directory", f"name the right one with {option}")


def _first(options: dict[str, str | None]) -> "Config":
    """The configuration to start with; reads the node's label first, or pods could be given the wrong resources."""
    from devherd.config.chosen_file import source_of
    from devherd.config.loader import access_at_start, load

    chosen_from = source_of(options, os.environ).configurations
    if chosen_from is None:
        return load(options, os.environ, plugin_of=plugin_of)
    from devherd.kubernetes.config_label import label_at_start  # imports TLS

    label = label_at_start(chosen_from.label, access_at_start(options, os.environ))
    return load(options, os.environ, label, plugin_of)


def _is_set(variable: str) -> bool:
    value = os.environ.get(variable, "")
    if value.lower() not in _VALUES:
        raise UsageError(f"{variable}: `{value}`", "it is neither true nor false", "set one of these, or unset it")
    return _VALUES[value.lower()]
