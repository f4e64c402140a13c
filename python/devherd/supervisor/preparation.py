"""The part of the start that needs supervisord, gRPC and metrics: imported while the first scan already runs.

What is imported here is shared by all children. gRPC is imported and never used: it does not survive a fork.
"""

import grpc.aio  # noqa: F401
import prometheus_client  # noqa: F401 - the metrics themselves are made by `preload`, once it is known where they count

import devherd.proto.deviceplugin_v1beta1_pb2_grpc  # noqa: F401
from devherd import counters
from devherd.settings import Settings
from devherd.supervisor import control, main_log
from devherd.supervisor.first_scan import FirstScan
from devherd.supervisor.herd import Herd
from devherd.supervisor.lock import KubeletDirectoryLock, hold_run_directory, refusing_unusable
from devherd.supervisor.options import Options
from devherd.supervisor.programs import Programs
from devherd.supervisor.stderr import Stderr


def prepare(settings: Settings, programs: Programs, first_scan: FirstScan, silence_limit_seconds: float) -> Herd:
    """Take the locks, let the first scan begin, and make a herd that is ready to live.

    Raises AlreadyRunningError when another instance is there, UsageError when the run directory cannot be used.
    """
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
