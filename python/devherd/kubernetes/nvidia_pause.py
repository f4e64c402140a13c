"""Tells `source:nvml` that NVIDIA's managers want the node's GPUs for themselves.

Before the GPU operator's driver manager unloads the driver, and its MIG manager changes MIG devices, they rewrite
labels of the node by which the operator's pods are placed: `true` becomes `paused-for-driver-upgrade`, another value
gets that behind a `_` (k8s-driver-manager, cmd/driver-manager/main.go); or all become `paused-for-mig-change`
(mig-parted, pkg/mig/reconfigure/reconfigure.go).
"""

import logging
import time

from devherd import spool
from devherd.api_server import NO_ACCESS
from devherd.instance.inventory_json import host_name
from devherd.kubernetes.node_watch import NodeWatch
from devherd.kubernetes.problems import Problems
from devherd.proto import spool_pb2
from devherd.settings import Settings

log = logging.getLogger(__name__)

LABELS = ("nvidia.com/gpu.deploy.client", "nvidia.com/gpu.deploy.device-plugin")
PAUSED = "paused-for-"
_CURES = {
    401: "the token is not accepted",
    403: "add the component deploy/kubernetes/components/nvidia-pause",
}


class NvidiaPause:
    """Writes the file while a label is paused; `watch` is None without access to an API server."""

    def __init__(self, settings: Settings, watch: NodeWatch | None, problems: Problems) -> None:
        self._file = settings.nvidia_pause_file
        self._rewrite_seconds = settings.waits.pause_rewrite
        self._watch = watch
        self._problems = problems
        self._paused: tuple[str, str] | None = None
        self._write_at = 0.0

    def tend(self) -> None:
        """Write what the labels show; again from time to time while they are paused."""
        error = self._watch.error if self._watch else NO_ACCESS
        if error is None:
            self._problems.solve()
        else:
            cure = _CURES.get(error.status, "trying again")
            self._problems.report(
                f"node {host_name()}", f"cannot be watched for pauses of GPU clients: {error}: {cure}"
            )
        if self._watch and self._watch.seen:
            labels = self._watch.seen.labels
            self._write(next(((key, labels[key]) for key in LABELS if PAUSED in labels.get(key, "")), None))

    def _write(self, paused: tuple[str, str] | None) -> None:
        """Write or remove the file; a failed attempt is repeated."""
        now = time.monotonic()
        if paused == self._paused and now < self._write_at:
            return
        try:
            if paused is None:
                self._file.unlink(missing_ok=True)
            else:
                label, value = paused
                spool.write(self._file, spool_pb2.NvidiaPause(label=label, value=value, monotonic_seconds=now))
        except OSError as error:
            log.debug("cannot write %s: %s", self._file, error)
            return
        if paused != self._paused:
            log.info("GPU clients of the node are %s", "paused: {}={}".format(*paused) if paused else "not paused")
        self._paused, self._write_at = paused, now + self._rewrite_seconds
