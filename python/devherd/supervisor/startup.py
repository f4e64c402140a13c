"""The part of the start that needs supervisord and gRPC: imported while the first scan already runs.

What is imported here is shared by all children. gRPC is imported and never used: it does not survive a fork.
"""

import logging
import re
import time

import grpc.aio  # noqa: F401

import devherd.proto.deviceplugin_v1beta1_pb2_grpc  # noqa: F401
from devherd import spool
from devherd.config import resolved_file
from devherd.config.resolved import Config
from devherd.configurations import Told, content_of
from devherd.health import kept_cordons
from devherd.history.record import forget_old
from devherd.kubelet import endpoint
from devherd.proto import spool_pb2
from devherd.settings import Settings
from devherd.supervisor import control, main_log
from devherd.supervisor.first_scan import FirstScan
from devherd.supervisor.herd import Herd
from devherd.supervisor.lean_imports import lean_imports
from devherd.supervisor.loader import Load
from devherd.supervisor.lock import Locks, refusing_unusable
from devherd.supervisor.options import Options
from devherd.supervisor.programs import Programs
from devherd.supervisor.standby import Standby
from devherd.supervisor.stderr import Stderr

log = logging.getLogger(__name__)

_CORDON = "cordon"
"""The source of that name (health/sources/cordon.py)."""
_RESOURCE_LOG = re.compile(r"resource:(?P<key>.+)\.log(\.\d+)?")


def prepare(
    load: Load,
    config: Config,
    programs: Programs,
    first_scan: FirstScan,
    silence_limit_seconds: float,
    *,
    takes_over: bool,
) -> Herd:
    """Take the locks, let the first scan begin, and make a herd that is ready to live.

    Where another instance is there, wait for its end if this one `takes_over`, otherwise raise AlreadyRunningError.
    Raises UsageError when the run directory cannot be used, DevherdError when the rehearsal failed.
    """
    settings = config.settings()
    control.check_path(settings)
    locks, standby = Locks(settings), Standby(config, programs, first_scan)
    with refusing_unusable(settings.run_dir):
        locks.take(standby.begin if takes_over else None)
        standby.end()
        _forget_the_last_run(settings)
        _restore_cordons(settings)
        control.write_conf(settings)
        resolved_file.write(settings.resolved_config_file, config)
        note_the_choice(settings)
    first_scan.begin()
    stderr = Stderr()
    logger = main_log.configure(settings, stderr)
    with lean_imports():
        programs.preload()
    return Herd(Options(settings, programs, stderr, logger), locks, load, config, silence_limit_seconds)


def _forget_the_last_run(settings: Settings) -> None:
    """Remove what it left behind: its children, and a socket on which nobody listens."""
    settings.children_file.unlink(missing_ok=True)
    settings.control_socket.unlink(missing_ok=True)


def note_the_choice(settings: Settings) -> None:
    """The node's label as this instance starts with it: an answer to an earlier one would hold at the next reload."""
    chosen_from = settings.configurations
    if chosen_from is not None:
        told = Told(chosen_from.label, settings.config_label_value, time.time())
        settings.told_directory.mkdir(exist_ok=True)
        spool.update(settings.config_label_file, content_of(told))


def _restore_cordons(settings: Settings) -> None:
    kept = settings.kept_cordons_file
    if kept is not None:
        kept_cordons.restore(kept, spool.path_of(settings.findings_directory, _CORDON))


def forget_gone_resources(settings: Settings) -> None:
    """Remove the files of resources that no longer exist: they get no child that could do it.

    To be called after the first scan, and with the kubelet directory locked: the sockets are nobody's then.
    """
    there = spool.keys_in(settings.resources_directory)
    try:
        for key in spool.keys_in(settings.state_directory) - there:
            _forget_resource(settings, key)
        forget_old(settings.history_directory)
        for file in settings.logs_directory.iterdir():
            program = _RESOURCE_LOG.fullmatch(file.name)
            if program and program["key"] not in there:
                file.unlink()
    except OSError as error:
        log.warning("cannot remove the files of a removed resource: %s", error)


def _forget_resource(settings: Settings, key: str) -> None:
    try:
        name = spool.read(spool.path_of(settings.state_directory, key), spool_pb2.ResourceState).name
    except spool.SpoolError:
        name = ""  # its resource is unknown: the sockets cannot be found
    for removed in endpoint.remove_stale(settings.socket_directories, name) if name else ():
        log.info("removed %s of the removed resource %s", removed, name)
    spool.remove(settings.state_directory, key)
