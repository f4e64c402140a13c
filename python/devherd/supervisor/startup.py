"""The part of the start that needs supervisord and gRPC: imported while the first scan already runs.

All children share the modules imported here. gRPC is imported but not used, because it does not survive a fork.
dataclasses is imported for the page, sources and `kubernetes`: imported elsewhere, it would load `inspect`.
"""

import dataclasses  # noqa: F401
import logging
import re
import time

import grpc.aio  # noqa: F401

import devherd.proto.deviceplugin_v1beta1_pb2_grpc  # noqa: F401
from devherd import log as logs
from devherd import signals, spool
from devherd.config.resolved import ResolvedConfig, write_resolved
from devherd.health import cordon
from devherd.history import forget_old
from devherd.kubelet import endpoint
from devherd.proto import spool_pb2
from devherd.settings import Settings
from devherd.supervisor import control, output
from devherd.supervisor.first_scan import FirstScan
from devherd.supervisor.herd import Herd
from devherd.supervisor.loader import Load, Loader
from devherd.supervisor.lock import Locks, refusing_unusable
from devherd.supervisor.options import Options
from devherd.supervisor.output import Stderr
from devherd.supervisor.programs import Programs
from devherd.supervisor.standby import Standby

log = logging.getLogger(__name__)

_CORDON = "cordon"
"""Name of the source `cordon` (health/cordon.py)."""
_RESOURCE_LOG = re.compile(r"resource:(?P<key>.+)\.log(\.\d+)?")


def prepare(
    load: Load,
    config: ResolvedConfig,
    programs: Programs,
    first_scan: FirstScan,
    *,
    takes_over: bool,
    restarts_for_driver: bool,
) -> Herd:
    """Take the locks, let the first scan begin, and return a herd that is ready to run.

    If another instance runs, wait for its end if this one `takes_over`, otherwise raise AlreadyRunningError.
    Raises UsageError if the run directory cannot be used, DevherdError if the rehearsal failed, SystemExit if a signal
    has requested the end.
    """
    settings = config.settings()
    logs.configure(output.MAIN_LOG, settings.log_level, settings.log_format)
    control.check_path(settings)
    locks, standby = Locks(settings), Standby(config, programs, first_scan)
    with refusing_unusable(settings.run_dir):
        locks.take(standby.begin if takes_over else None)
        standby.end()
        _remove_files_of_last_run(settings)
        _restore_cordons(settings)
        control.write_conf(settings)
        write_resolved(settings.resolved_config_file, config)
        write_label_answer(settings)
    signals.end_if_asked()
    first_scan.begin()
    stderr = Stderr()
    logger = output.configure_main_log(settings, stderr)
    options = Options(settings, programs, stderr, logger)
    loader = Loader(load, options, config, is_old=standby.has_waited)
    return Herd(options, locks, loader, restarts_for_driver=restarts_for_driver)


def _remove_files_of_last_run(settings: Settings) -> None:
    """Remove the list of children and the control socket of the last run."""
    settings.children_file.unlink(missing_ok=True)
    settings.control_socket.unlink(missing_ok=True)


def write_label_answer(settings: Settings) -> None:
    """Write the node label's value of this start: otherwise the next reload would use the value of an earlier start."""
    chosen_from = settings.configurations
    if chosen_from is not None:
        settings.kubernetes_directory.mkdir(exist_ok=True)
        spool.write(
            settings.config_label_file,
            spool_pb2.LabelAnswer(
                label=chosen_from.label, value=settings.config_label_value, asked_timestamp_seconds=time.time()
            ),
        )


def _restore_cordons(settings: Settings) -> None:
    kept = settings.kept_cordons_file
    if kept is not None:
        cordon.restore_cordons(kept, spool.path_of(settings.findings_directory, _CORDON))


def remove_files_of_gone_resources(config: ResolvedConfig) -> None:
    """Remove the files of resources that no longer exist, and of DRA drivers without DRA: no child does it.

    Call it after the first scan, with the kubelet directory locked: then no other instance uses the sockets.
    """
    settings = config.settings()
    there = spool.keys_in(settings.resources_directory)
    try:
        for key in spool.keys_in(settings.state_directory) - there:
            _forget_resource(settings, key)
        for letter in () if config.is_dra else spool.keys_in(settings.dra_directory):
            spool.remove(settings.dra_directory, letter)
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
        name = ""  # without the resource name its sockets cannot be found
    for removed in endpoint.remove_stale(settings.socket_directories, name) if name else ():
        log.info("removed %s of the removed resource %s", removed, name)
    spool.remove(settings.state_directory, key)
