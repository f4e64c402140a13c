"""Process `kubernetes:labels`: has the node labelled with its devices, in the way that the configuration chooses.

It looks at the files of the run directory each second, and at what it has written now and then: others may remove it.
Labels stay when devherd ends, because pods choose their node by them; they go when the configuration says so.
"""

import contextlib
import logging
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from devherd import spool
from devherd.backoff import Backoff
from devherd.child import BEAT_PERIOD_SECONDS, RENEW, Child
from devherd.config import resolved_file
from devherd.config.host import first_answer, nvml_answers
from devherd.config.resolved import Config
from devherd.inventory_json import host_name
from devherd.kubernetes.access import Access
from devherd.kubernetes.api import Api, ApiError
from devherd.kubernetes.complaints import Complaints
from devherd.kubernetes.conflicts import past_conflicts
from devherd.kubernetes.feature_file import FeatureFile
from devherd.kubernetes.labels_way import CannotLabelError, LabelsWay
from devherd.kubernetes.node_feature import NodeFeature
from devherd.kubernetes.node_patch import NodePatch
from devherd.kubernetes.rate_limit import RateLimit
from devherd.kubernetes.request import LABELS, LabelsRequest, WrittenLabels, written_labels, written_labels_file
from devherd.kubernetes.settling import Settling
from devherd.node_labels.node import node_of
from devherd.node_labels.of_node import labels_of
from devherd.proto import devices_pb2
from devherd.scanner.devices_file import inventory_of
from devherd.settings import Settings
from devherd.spool.identity import identity_of

log = logging.getLogger(__name__)

_LOOK_AGAIN_SECONDS = 600.0
_NVML_REQUEST = "nvml.json"
"""What the scanner asks process `source:nvml` for."""
_CURES = {
    401: "the token is not accepted",
    403: "add the component deploy/kubernetes/components/labels-node, or for `write: node_feature` labels-node-feature",
}


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    return Labeller(child, Access.of_this_pod()).run()


@dataclass(frozen=True, slots=True)
class Ways:
    """How a way that was asked for is gone; `access` None: there is no API server to talk to."""

    access: Access | None
    before_each_call: Callable[[], None]

    def way(self, write: str, feature_file: Path) -> LabelsWay:
        """Raises CannotLabelError."""
        if write == "feature_file":
            return FeatureFile(feature_file)
        if self.access is None:
            why = (
                "there is no API server to talk to: give the pod its token, or use `node_labels: {write: feature_file}`"
            )
            raise CannotLabelError("node labels", why)
        api = Api(self.access, self.before_each_call)
        return NodeFeature(api, self.access, host_name()) if write == "node_feature" else NodePatch(api, host_name())


class Labeller:
    """Brings the node's labels up to date with what the scanner has found."""

    def __init__(self, child: Child, access: Access | None) -> None:
        self._child = child
        self._settings = child.settings
        self._ways = Ways(access, child.beat)
        self._request_file = child.settings.requests_directory / LABELS
        self._written_file = written_labels_file(child.settings)
        self._complaints = Complaints(child.settings.told_directory, "labels")
        self._backoff = Backoff(1.0, 60.0, jitter=0.2)
        self._limit = RateLimit(burst=5, seconds=10.0)
        self._due_at = 0.0
        self._seen: object = None
        self._last: dict[str, str] | None = None
        self._way: LabelsWay | None = None
        self._settling = Settling()

    def run(self) -> int:
        """Look each second; the exit code when another process is needed."""
        content = _content(self._request_file)
        request = LabelsRequest.of(content)
        while _content(self._request_file) in {content, b""} and not self._child.has_outgrown_its_sandbox():
            self._child.beat()
            seen = _versions(self._settings)
            is_due = time.monotonic() >= self._due_at or (seen != self._seen and self._backoff.is_fresh)
            is_whole = self._settling.after(seen, is_awaited=_is_nvml_awaited(self._settings))
            if request is not None and is_due and is_whole:
                self._tend(request, seen)
            time.sleep(BEAT_PERIOD_SECONDS)
        return RENEW

    def _tend(self, request: LabelsRequest, seen: object) -> None:
        if not self._limit.allows():
            self._due_at = time.monotonic() + self._limit.seconds
            return
        try:
            left = self._bring_up_to_date(request)
        except (CannotLabelError, ApiError, OSError, resolved_file.ResolvedFileError) as error:
            self._complain(error)
            return
        self._seen = seen
        self._backoff.reset()
        self._due_at = time.monotonic() + _LOOK_AGAIN_SECONDS
        if left and self._complaints.say(f"node {host_name()}", left):
            log.warning("labels of the node: %s", left)
        elif not left and self._complaints.take_back():
            log.info("labels of the node are written again")

    def _bring_up_to_date(self, request: LabelsRequest) -> str:
        """What could not be done of it."""
        written = written_labels(self._settings)
        if written is not None and (written.write, written.feature_file) != (request.write, request.feature_file):
            self._ways.way(written.write, Path(written.feature_file)).remove()
            self._written_file.unlink(missing_ok=True)
            log.info("labels of the node: those of %s are removed", written.write)
        if request.write == "none":
            return ""
        config = resolved_file.read(self._settings.resolved_config_file)
        labels = _labels(config, self._settings, request)
        if labels is None:
            return ""
        self._note(request)  # first: what is written must be found again
        if self._way is None:
            self._way = self._ways.way(request.write, Path(request.feature_file))
        left = past_conflicts(partial(self._way.write, labels))
        if labels != self._last:
            log.info("labels of the node: %d by %s", len(labels), request.write)
        self._last = labels
        return left

    def _note(self, request: LabelsRequest) -> None:
        spool.update(self._written_file, WrittenLabels(request.write, request.feature_file).content())

    def _complain(self, error: Exception) -> None:
        self._due_at = time.monotonic() + self._backoff.seconds()
        place, why = f"node {host_name()}", str(error)
        if isinstance(error, CannotLabelError):
            place, why = error.place, error.why
        elif isinstance(error, ApiError):
            why = f"labels cannot be written: {error}: {_CURES.get(error.status, 'it is tried again')}"
        if self._complaints.say(place, why):
            log.warning("labels of the node: %s: %s", place, why)


def _labels(config: Config, settings: Settings, request: LabelsRequest) -> dict[str, str] | None:
    """None while nothing is known of the devices."""
    try:
        inventory = inventory_of(spool.read(settings.devices_file, devices_pb2.Inventory))
    except (FileNotFoundError, spool.SpoolError):
        return None
    answer = first_answer(nvml_answers(settings.host_root, settings.nvml_answer_file))
    node = node_of(config, inventory.entries.values(), answer, request.machine)
    return labels_of(node, request.omit).values


def _is_nvml_awaited(settings: Settings) -> bool:
    """Whether NVML is being asked, and has not answered since the boot."""
    return (settings.requests_directory / _NVML_REQUEST).exists() and not settings.nvml_answer_file.exists()


def _versions(settings: Settings) -> object:
    """Equal for as long as there is nothing new to say."""
    files = (settings.devices_file, settings.resolved_config_file)
    return [identity_of(file) for file in (*files, *nvml_answers(settings.host_root, settings.nvml_answer_file))]


def _content(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""
