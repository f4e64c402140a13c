"""Process `kubernetes:nvidia-pause`: tells `source:nvml` that NVIDIA's managers want the node's GPUs for themselves.

Before the GPU operator's driver manager unloads the driver, and its MIG manager changes MIG devices, they rewrite
labels of the node by which the operator's pods are placed: `true` becomes `paused-for-driver-upgrade`, another value
gets that behind a `_` (k8s-driver-manager, cmd/driver-manager/main.go); or all become `paused-for-mig-change`
(mig-parted, pkg/mig/reconfigure/reconfigure.go).
"""

import logging
import signal
import sys
import threading
import time
import urllib.parse

from devherd import spool
from devherd.backoff import Backoff
from devherd.instance.inventory_json import host_name
from devherd.kubernetes.access import Access
from devherd.kubernetes.api import Api, ApiError, Json
from devherd.kubernetes.problems import Problems
from devherd.process import BEAT_PERIOD_SECONDS, RENEW, Child
from devherd.proto import spool_pb2

log = logging.getLogger(__name__)

LABELS = ("nvidia.com/gpu.deploy.client", "nvidia.com/gpu.deploy.device-plugin")
PAUSED = "paused-for-"
WATCH_SECONDS = 60
"""After which the server ends a watch: a connection that has died unnoticed blinds for no longer."""
_SPARE_SECONDS = 10.0
REWRITE_SECONDS = 30.0
_GONE = 410
_CURES = {
    401: "the token is not accepted",
    403: "add the component deploy/kubernetes/components/nvidia-pause",
}


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    access = Access.of_this_pod()
    return NvidiaPause(child, Follower(Api(access)) if access else None).run()


class Follower(threading.Thread):
    """Follows the labels of the node, in a thread that waits for the API server."""

    def __init__(self, api: Api) -> None:
        super().__init__(name="node", daemon=True)
        self._api = api
        self._backoff = Backoff(1.0, 60.0, jitter=0.2)
        self._version = ""
        self.paused: tuple[str, str] | None = None
        """The label that is paused, and its value."""
        self.is_known = False
        """Whether the node has been read."""
        self.error: ApiError | None = None
        """Why the node cannot be read at present."""

    def run(self) -> None:
        """Follow for ever."""
        while True:
            try:
                self._follow()
            except ApiError as error:
                self._version = ""
                if error.status != _GONE:  # the server has forgotten the version: the node is read again
                    self.error = error
                time.sleep(self._backoff.seconds())
            else:
                time.sleep(BEAT_PERIOD_SECONDS)  # what happens meanwhile is told by the next watch

    def _follow(self) -> None:
        """Read the node, unless its last version is known, and what happens to it in the next minute."""
        if not self._version:
            self._take(self._api.get(f"/api/v1/nodes/{host_name()}", metadata_alone=True))
            self._has_answered()
        query = {
            "fieldSelector": f"metadata.name={host_name()}",
            "resourceVersion": self._version,
            "timeoutSeconds": WATCH_SECONDS,
            "allowWatchBookmarks": "true",
            "watch": "true",
        }
        path = f"/api/v1/nodes?{urllib.parse.urlencode(query)}"
        for event in self._api.watch(path, WATCH_SECONDS + _SPARE_SECONDS):
            if event["type"] == "BOOKMARK":
                self._version = event["object"]["metadata"]["resourceVersion"]
            else:
                self._take(event["object"])

    def _take(self, node: Json) -> None:
        metadata = node["metadata"]
        labels = metadata.get("labels") or {}
        self.paused = next(((key, labels[key]) for key in LABELS if PAUSED in labels.get(key, "")), None)
        self._version, self.is_known = metadata.get("resourceVersion", ""), True

    def _has_answered(self) -> None:
        self.error = None
        self._backoff.reset()


class NvidiaPause:
    """Writes the file while a label is paused; `follower` is None without access to an API server."""

    def __init__(self, child: Child, follower: Follower | None) -> None:
        self._child = child
        self._file = child.settings.nvidia_pause_file
        self._follower = follower
        self._problems = Problems(child)
        self._paused: tuple[str, str] | None = None
        self._write_at = 0.0

    def run(self) -> int:
        """Write until a new process is needed; returns the exit code."""
        if self._follower is not None:
            self._follower.start()
        while not self._child.has_outgrown_its_sandbox():
            self._child.beat()
            self._report(self._follower)
            if self._follower is not None and self._follower.is_known:
                self._write(self._follower.paused)
            time.sleep(BEAT_PERIOD_SECONDS / 4)
        return RENEW

    def _report(self, follower: Follower | None) -> None:
        error = (
            follower.error if follower else ApiError(0, "there is no API server to talk to, or the pod has no token")
        )
        if error is None:
            self._problems.solve()
            return
        cure = _CURES.get(error.status, "trying again")
        self._problems.report(f"node {host_name()}", f"cannot be watched for pauses of GPU clients: {error}: {cure}")

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
        self._paused, self._write_at = paused, now + REWRITE_SECONDS
