"""Access of commands to the running instance: its settings, whether it runs, its resources by name."""

import argparse
import difflib
import os
import socket
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from devherd.config.resolved import ResolvedFileError, read_resolved
from devherd.errors import DevherdError, UnreachableError, UsageError
from devherd.instance.read import InstanceState
from devherd.inventory import Allocations
from devherd.proto import spool_pb2
from devherd.settings import Settings

if TYPE_CHECKING:
    from devherd.proto.podresources_v1_pb2 import ListPodResourcesResponse

PATIENCE_SECONDS = 5.0


def instance_settings(arguments: argparse.Namespace) -> Settings:
    """A command's settings, with the running instance's kubelet and state directory unless the command gives them."""
    return as_in_force(reaching_settings(arguments), arguments)


def as_in_force(settings: Settings, arguments: argparse.Namespace) -> Settings:
    """The settings with the instance's kubelet and state directory unless options or environment give them."""
    of_instance = of_the_instance(settings)
    names = ("kubelet_dir", "kubelet_root_dir", "state_dir")
    given = {name for name in names if getattr(arguments, name) or os.environ.get(f"DEVHERD_{name.upper()}")}
    if "kubelet_dir" in given:
        given.add("kubelet_root_dir")  # of another kubelet
    return replace(settings, **{name: getattr(of_instance, name) for name in names if name not in given})


def reaching_settings(arguments: argparse.Namespace, *, is_warned: bool = True) -> Settings:
    """The settings that locate an instance. An invalid file does not hide an instance that runs with an older one.

    Raises ConfigError or UsageError if the file is invalid and no instance runs in the directory of the options and
    the environment.
    """
    from devherd.config.common import directories

    try:
        return directories(vars(arguments), os.environ)
    except DevherdError as error:
        settings = directories(vars(arguments), os.environ, with_file=False)
        if not settings.control_socket.exists():
            raise
        if is_warned:
            print(f"devherd: warning: {error}", file=sys.stderr)
        return settings


def pods_of(settings: Settings) -> "ListPodResourcesResponse | None":
    """The kubelet's pods with their devices; None if there is no kubelet or it does not answer."""
    if not settings.pod_resources_socket.exists():
        return None
    import asyncio

    import grpc.aio

    from devherd.kubelet.pod_resources import list_pods

    try:
        return asyncio.run(list_pods(settings.pod_resources_socket))
    except grpc.aio.AioRpcError:
        return None


def allocations_of(settings: Settings) -> Allocations | None:
    """The holders of each device; None if there is no kubelet or it does not answer."""
    from devherd.kubelet.pod_resources import parse

    pods = pods_of(settings)
    return None if pods is None else parse(pods)


def require_running(settings: Settings) -> None:
    """Raises UnreachableError unless a supervisor listens on its control socket.

    It does not try the instance's lock: holding it even briefly could make a starting instance fail.
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


def of_the_instance(settings: Settings) -> Settings:
    """The settings of the instance's configuration; before it has one, those of this command."""
    try:
        return read_resolved(settings.resolved_config_file).settings()
    except ResolvedFileError:
        return settings


_MOST_NAMED = 10
"""Limit on the names in an error message."""


def resource_named(herd: InstanceState, name: str) -> spool_pb2.Offer:
    """The resource. Raises UsageError, which lists the known ones."""
    found = next((resource for resource in herd.resources if resource.name == name), None)
    if found is None:
        raise unknown("resource", name, [resource.name for resource in herd.resources])
    return found


def unknown(kind: str, name: str, known: list[str]) -> UsageError:
    """The error for an unknown name."""
    shown = ", ".join(known[:_MOST_NAMED]) + (f" and {len(known) - _MOST_NAMED} more" if known[_MOST_NAMED:] else "")
    close = difflib.get_close_matches(name, known, n=1)
    cure = f"did you mean `{close[0]}`?" if close else "see `devherd status`"
    return UsageError(f"no {kind} is called `{name}`", f"choose from {shown}" if known else "there is none", cure)
