"""The running instance as commands reach it: its settings, whether it runs, what its kubelet says."""

import argparse
import asyncio
import os
import socket
import sys
from dataclasses import replace

from devherd.cli.common_options import given_options, load_config
from devherd.config import resolved_file
from devherd.errors import DevherdError, UnreachableError
from devherd.instance import Allocations
from devherd.settings import Settings

PATIENCE_SECONDS = 5.0


def instance_settings(arguments: argparse.Namespace) -> Settings:
    """The options of a command; its kubelet and its state directory are the instance's to say, unless said here."""
    settings = reaching_settings(arguments)
    of_instance = _settings_in_force(settings)
    if not (arguments.kubelet_dir or os.environ.get("DEVHERD_KUBELET_DIR")):
        settings = replace(settings, kubelet_dir=of_instance.kubelet_dir)
    if not (arguments.state_dir or os.environ.get("DEVHERD_STATE_DIR")):
        settings = replace(settings, state_dir=of_instance.state_dir)
    return settings


def reaching_settings(arguments: argparse.Namespace, *, is_warned: bool = True) -> Settings:
    """Those by which an instance is found. A file that is bad by now does not hide one that goes on with its old one.

    Raises ConfigError or UsageError where no instance runs at the place that options and environment name.
    """
    from devherd.config import COMMON_OPTIONS, without_a_file

    try:
        return load_config(arguments).settings()
    except DevherdError as error:
        settings = without_a_file(given_options(arguments, COMMON_OPTIONS), os.environ).settings()
        if not settings.control_socket.exists():
            raise
        if is_warned:
            print(f"devherd: warning: {error}", file=sys.stderr)
        return settings


def allocations_of(settings: Settings) -> Allocations | None:
    """Which pods hold which devices; None where there is no kubelet to ask, or it does not answer."""
    if not settings.pod_resources_socket.exists():
        return None
    import grpc.aio

    from devherd.kubelet.pod_resources import list_pods, parse

    try:
        return parse(asyncio.run(list_pods(settings.pod_resources_socket)))
    except grpc.aio.AioRpcError:
        return None


def require_running(settings: Settings) -> None:
    """Raises UnreachableError unless a supervisor listens on its control socket.

    Its lock is not tried: that would hold the lock for a moment, and refuse an instance that starts just then.
    """
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE_SECONDS)
        try:
            client.connect(str(settings.control_socket))
        except PermissionError as error:
            raise UnreachableError(
                f"cannot reach the instance in {settings.run_dir}", "only its owner may use its socket", "use sudo"
            ) from error
        except OSError as error:
            raise UnreachableError(
                f"no instance runs in {settings.run_dir}",
                f"{settings.control_socket}: {error.strerror or error}",
                "start it with `devherd run`, or name its directory with --run-dir",
            ) from error


def _settings_in_force(settings: Settings) -> Settings:
    """Those of the instance's configuration; those of this command where it has none yet."""
    try:
        return resolved_file.read(settings.resolved_config_file).settings()
    except resolved_file.ResolvedFileError:
        return settings
