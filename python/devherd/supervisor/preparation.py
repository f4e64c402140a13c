"""The part of the start that needs supervisord, gRPC and metrics: imported while the first scan already runs.

What is imported here is shared by all children. gRPC is imported and never used: it does not survive a fork.
"""

import logging
import re

import grpc.aio  # noqa: F401
import prometheus_client  # noqa: F401 - the metrics themselves are made by `preload`, once it is known where they count

import devherd.proto.deviceplugin_v1beta1_pb2_grpc  # noqa: F401
from devherd import counters, spool
from devherd.plugin import endpoint
from devherd.proto import spool_pb2
from devherd.settings import Settings
from devherd.supervisor import control, main_log
from devherd.supervisor.first_scan import FirstScan
from devherd.supervisor.herd import Herd
from devherd.supervisor.lock import KubeletDirectoryLock, hold_run_directory, refusing_unusable
from devherd.supervisor.options import Options
from devherd.supervisor.programs import Programs
from devherd.supervisor.stderr import Stderr

log = logging.getLogger(__name__)

_RESOURCE_LOG = re.compile(r"resource:(?P<key>.+)\.log(\.\d+)?")


def prepare(settings: Settings, programs: Programs, first_scan: FirstScan, silence_limit_seconds: float) -> Herd:
    """Take the locks, let the first scan begin, and make a herd that is ready to live.

    Raises AlreadyRunningError when another instance is there, UsageError when the run directory cannot be used.
    """
    control.check_path(settings)
    with refusing_unusable(settings.run_dir):
        hold_run_directory(settings)
        kubelet_lock = KubeletDirectoryLock(settings.plugin_directory)
        kubelet_lock.hold()
        _forget_the_last_run(settings)
        control.write_conf(settings)
    first_scan.begin()
    stderr = Stderr()
    logger = main_log.configure(settings, stderr)
    counters.keep_in(settings.counters_directory)
    programs.preload()
    return Herd(Options(settings, programs, stderr, logger), kubelet_lock, silence_limit_seconds)


def _forget_the_last_run(settings: Settings) -> None:
    """Remove what it left behind: its counters, its children, and a socket on which nobody listens."""
    for file in settings.counters_directory.glob("*.db"):
        file.unlink()
    settings.children_file.unlink(missing_ok=True)
    settings.control_socket.unlink(missing_ok=True)


def forget_gone_resources(settings: Settings) -> None:
    """Remove what resources of the last run left that are no more: nobody else will, as they get no child.

    To be called after the first scan, and with the kubelet directory locked: the sockets are nobody's then.
    """
    there = spool.keys_in(settings.resources_directory)
    try:
        for key in spool.keys_in(settings.state_directory) - there:
            _forget_resource(settings, key)
        for file in settings.logs_directory.iterdir():
            program = _RESOURCE_LOG.fullmatch(file.name)
            if program and program["key"] not in there:
                file.unlink()
    except OSError as error:
        log.warning("cannot remove what a resource that is gone has left: %s", error)


def _forget_resource(settings: Settings, key: str) -> None:
    state = spool.path_of(settings.state_directory, key)
    try:
        name = spool.read(state, spool_pb2.ResourceState).name
    except spool.SpoolError:
        name = ""  # of whom it tells cannot be known any more
    for removed in endpoint.remove_stale(settings.socket_directories, name) if name else ():
        log.info("%s of %s, which is gone, removed", removed, name)
    state.unlink()
