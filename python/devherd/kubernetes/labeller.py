"""Labels the node with its devices, by the writer that the configuration chooses."""

import http
import logging
import random
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from devherd import spool
from devherd.api_server import Api, ApiError, Json, RateLimit, past_conflicts
from devherd.backoff import Backoff
from devherd.config.api_access import ApiAccess
from devherd.config.resolved import ResolvedConfig, ResolvedFileError, read_resolved
from devherd.instance.inventory_json import host_name
from devherd.inventory import inventory_of
from devherd.kubernetes.access import LEFT_OVER_CURE
from devherd.kubernetes.labels import ANNOTATION, CannotLabelError, FeatureFile, LabelWriter, NodeFeature, NodePatch
from devherd.kubernetes.node_watch import NodeWatch
from devherd.kubernetes.problems import Problems
from devherd.node_labels.node import node_of
from devherd.node_labels.others import labels_of_node
from devherd.proto import devices_pb2, spool_pb2
from devherd.settings import Settings
from devherd.spool import identity_of

_LONGEST_WAIT_SECONDS = 30.0
log = logging.getLogger(__name__)
_REMOVE_AGAIN_SECONDS = 3600.0
_NVML_REQUEST = "nvml.json"
"""The scanner's request to process `source:nvml`."""
_CURES = {
    401: "the token is not accepted",
    403: "add the component deploy/kubernetes/components/labels-node, or for `write: node_feature` labels-node-feature",
}


@dataclass(frozen=True, slots=True)
class LabelsWanted:
    """The configured labels and writer."""

    write: str
    omit: list[str]
    feature_file: str
    """The path for this process; empty unless the writer is `feature_file`."""


def labels_wanted(config: ResolvedConfig) -> LabelsWanted:
    """What the configuration says of labels."""
    write = config.node_labels.write
    return LabelsWanted(write, config.node_labels.omit, str(config.feature_file) if write == "feature_file" else "")


@dataclass(frozen=True, slots=True)
class LabelWriters:
    """Creates writers by the configuration's word; without access to an API server all fields are None."""

    access: ApiAccess | None
    api: Api | None
    watch: NodeWatch | None

    def writer(self, write: str, feature_file: Path) -> LabelWriter:
        """The writer that `write` names. Raises CannotLabelError."""
        if write == "feature_file":
            return FeatureFile(feature_file)
        if self.access is None or self.api is None:
            why = "no API server is known: give the pod its token, name a `kubeconfig`, or use `write: feature_file`"
            raise CannotLabelError("node labels", why)
        if write == "node_feature":
            return NodeFeature(self.api, self.access, host_name())
        return NodePatch(self.api, host_name(), self._metadata)

    def _metadata(self) -> Json | None:
        seen = self.watch.seen if self.watch else None
        return seen.metadata or None if seen else None

    def labels_seen(self) -> object:
        """What the watch shows of the node's labels; changes if somebody has changed them, or made the node again."""
        metadata = self._metadata() or {}
        annotations = metadata.get("annotations") or {}
        return metadata.get("uid"), metadata.get("labels"), annotations.get(ANNOTATION)


class Labeller:
    """Keeps the node's labels up to date with devices and offers."""

    def __init__(self, settings: Settings, wanted: LabelsWanted, writers: LabelWriters, problems: Problems) -> None:
        self._settings = settings
        self._look_seconds = settings.waits.labels_look
        self._wanted = wanted
        self._writers = writers
        self._written_file = settings.written_labels_file
        self._problems = problems
        self._backoff = Backoff(1.0, 60.0, jitter=0.2)
        self._limit = RateLimit(burst=5, seconds=10.0)
        self._due_at = 0.0
        self._seen: object = None
        self._last: dict[str, str] | None = None
        self._writer: LabelWriter | None = None
        self._debounce = Debounce(settings.waits.labels_settle)
        self._has_noticed = False

    def tend(self) -> None:
        """Write the labels if devices, configuration or the node have changed, or it is time to look again."""
        seen = [*_versions(self._settings), self._writers.labels_seen()]
        is_due = time.monotonic() >= self._due_at or (seen != self._seen and self._backoff.is_fresh)
        is_whole = self._debounce.after(seen, is_awaited=_is_nvml_awaited(self._settings))
        if is_due and is_whole:
            self._tend(self._wanted, seen)

    def _tend(self, wanted: LabelsWanted, seen: object) -> None:
        if not self._limit.allows():
            self._due_at = time.monotonic() + self._limit.seconds
            return
        try:
            left = self._bring_up_to_date(wanted)
        except (CannotLabelError, ApiError, OSError, ResolvedFileError) as error:
            if wanted.write == "none" and not _may_pass(error):
                self._notice(seen, error)
            else:
                self._report(error)
            return
        self._seen = seen
        self._backoff.reset()
        self._due_at = time.monotonic() + self._look_seconds * random.uniform(0.9, 1.0)  # noqa: S311 - no secret
        if left:
            self._problems.report(f"node {host_name()}", left)
        else:
            self._problems.solve()

    def _bring_up_to_date(self, wanted: LabelsWanted) -> str:
        """Write the labels; returns the problem that is left, empty for none."""
        written = spool.read_or_empty(self._written_file, spool_pb2.WrittenLabels)
        if written.write and (written.write, written.feature_file) != (wanted.write, wanted.feature_file):
            self._writers.writer(written.write, Path(written.feature_file)).remove()
            self._written_file.unlink(missing_ok=True)
            log.info("labels of the node: those of %s are removed", written.write)
        if wanted.write == "none":
            return ""
        labels = _labels(self._settings, wanted.omit)
        if labels is None:
            return ""
        self._note(wanted)  # first, so that the labels can be removed after a crash
        if self._writer is None:
            self._writer = self._writers.writer(wanted.write, Path(wanted.feature_file))
        left = past_conflicts(partial(self._writer.write, labels))
        if labels != self._last:
            log.info("labels of the node: %d by %s", len(labels), wanted.write)
        self._last = labels
        return left

    def _note(self, wanted: LabelsWanted) -> None:
        spool.write(self._written_file, spool_pb2.WrittenLabels(write=wanted.write, feature_file=wanted.feature_file))

    def _notice(self, seen: object, error: Exception) -> None:
        """Say once that labels stay that are switched off: nobody is waiting for their end."""
        self._seen, self._due_at = seen, time.monotonic() + _REMOVE_AGAIN_SECONDS
        if not self._has_noticed:
            self._problems.notice(f"node {host_name()}", f"labels written earlier stay: {error}: {LEFT_OVER_CURE}")
        self._has_noticed = True

    def _report(self, error: Exception) -> None:
        self._due_at = time.monotonic() + self._backoff.seconds()
        place, why = f"node {host_name()}", str(error)
        if isinstance(error, CannotLabelError):
            place, why = error.place, error.why
        elif isinstance(error, ApiError):
            why = f"labels cannot be written: {error}: {_CURES.get(error.status, 'trying again')}"
        self._problems.report(place, why)


def _may_pass(error: Exception) -> bool:
    """Whether an error may end without anybody's doing: a missing right does not."""
    refusals = {http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN}
    return not (isinstance(error, ApiError) and error.status in refusals)


class Debounce:
    """Waits until the inputs have stopped changing."""

    def __init__(self, settle_seconds: float) -> None:
        self._settle_seconds = settle_seconds
        self._seen: object = None
        self._changed_at = self._since = time.monotonic()

    def after(self, seen: object, *, is_awaited: bool) -> bool:
        """Whether `seen` is stable or the wait too long; `is_awaited`: another change is expected."""
        now = time.monotonic()
        if seen != self._seen:
            if now - self._changed_at >= self._settle_seconds:
                self._since = now  # it was calm until now
            self._seen, self._changed_at = seen, now
        is_calm = now - self._changed_at >= self._settle_seconds and not is_awaited
        return is_calm or now - self._since >= _LONGEST_WAIT_SECONDS


def _labels(settings: Settings, omit: list[str]) -> dict[str, str] | None:
    """The labels for the devices and offers; None while these are missing."""
    try:
        inventory = inventory_of(spool.read(settings.devices_file, devices_pb2.Inventory))
        offers = spool.read(settings.offers_file, spool_pb2.Offers)
        config = read_resolved(settings.resolved_config_file)
    except (FileNotFoundError, spool.SpoolError, ResolvedFileError):
        return None
    return labels_of_node(node_of(config, inventory, offers.offers), omit).values


def _is_nvml_awaited(settings: Settings) -> bool:
    """Whether NVML has been asked, and has not answered since the boot."""
    return (settings.requests_directory / _NVML_REQUEST).exists() and not settings.nvml_answer_file.exists()


def _versions(settings: Settings) -> list[object]:
    """The versions of the inputs; equal while none has changed."""
    return [identity_of(file) for file in (settings.devices_file, settings.offers_file, settings.resolved_config_file)]
