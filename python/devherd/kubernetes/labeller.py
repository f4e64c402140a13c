"""Process `kubernetes:labels`: labels the node with its devices, by the writer that the configuration chooses."""

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
from devherd.config.resolved import Config, ConfigPart, ResolvedFileError, read_resolved
from devherd.instance.inventory_json import host_name
from devherd.inventory import inventory_of
from devherd.kubernetes.access import Access
from devherd.kubernetes.api import Api, ApiError, RateLimit, past_conflicts
from devherd.kubernetes.labels import CannotLabelError, FeatureFile, LabelWriter, NodeFeature, NodePatch
from devherd.kubernetes.problems import Problems
from devherd.node_labels.node import node_of
from devherd.node_labels.others import labels_of_node
from devherd.process import BEAT_PERIOD_SECONDS, RENEW, Child
from devherd.proto import devices_pb2, spool_pb2
from devherd.settings import Settings
from devherd.spool import identity_of

_SETTLE_SECONDS = 2.0
_LONGEST_WAIT_SECONDS = 30.0
log = logging.getLogger(__name__)
_LOOK_AGAIN_SECONDS = 600.0
_NVML_REQUEST = "nvml.json"
"""The scanner's request to process `source:nvml`."""
_CURES = {
    401: "the token is not accepted",
    403: "add the component deploy/kubernetes/components/labels-node, or for `write: node_feature` labels-node-feature",
}


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    return Labeller(child, Access.of_this_pod()).run()


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The configured labels and writer."""

    write: str
    omit: list[str]
    feature_file: str
    """The path for this process; empty unless the writer is `feature_file`."""


def _wanted(config: Config) -> _Wanted:
    write = config.node_labels.write
    return _Wanted(write, config.node_labels.omit, str(config.feature_file) if write == "feature_file" else "")


@dataclass(frozen=True, slots=True)
class LabelWriters:
    """Creates writers by the configuration's word; `access` is None without access to an API server."""

    access: Access | None
    before_each_call: Callable[[], None]

    def writer(self, write: str, feature_file: Path) -> LabelWriter:
        """The writer that `write` names. Raises CannotLabelError."""
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
    """Keeps the node's labels up to date with devices and offers."""

    def __init__(self, child: Child, access: Access | None) -> None:
        self._child = child
        self._settings = child.settings
        self._writers = LabelWriters(access, child.beat)
        self._written_file = child.settings.written_labels_file
        self._problems = Problems(child)
        self._backoff = Backoff(1.0, 60.0, jitter=0.2)
        self._limit = RateLimit(burst=5, seconds=10.0)
        self._due_at = 0.0
        self._seen: object = None
        self._last: dict[str, str] | None = None
        self._writer: LabelWriter | None = None
        self._debounce = Debounce()

    def run(self) -> int:
        """Look each second; returns the exit code once a new process is needed."""
        part = ConfigPart(self._settings.resolved_config_file, _wanted, self._child.beat)
        while not part.has_changed() and not self._child.has_outgrown_its_sandbox():
            self._child.beat()
            seen = _versions(self._settings)
            is_due = time.monotonic() >= self._due_at or (seen != self._seen and self._backoff.is_fresh)
            is_whole = self._debounce.after(seen, is_awaited=_is_nvml_awaited(self._settings))
            if is_due and is_whole:
                self._tend(part.value, seen)
            time.sleep(BEAT_PERIOD_SECONDS)
        return RENEW

    def _tend(self, wanted: _Wanted, seen: object) -> None:
        if not self._limit.allows():
            self._due_at = time.monotonic() + self._limit.seconds
            return
        try:
            left = self._bring_up_to_date(wanted)
        except (CannotLabelError, ApiError, OSError, ResolvedFileError) as error:
            self._report(error)
            return
        self._seen = seen
        self._backoff.reset()
        self._due_at = time.monotonic() + _LOOK_AGAIN_SECONDS
        if left:
            self._problems.report(f"node {host_name()}", left)
        else:
            self._problems.solve()

    def _bring_up_to_date(self, wanted: _Wanted) -> str:
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

    def _note(self, wanted: _Wanted) -> None:
        spool.write(self._written_file, spool_pb2.WrittenLabels(write=wanted.write, feature_file=wanted.feature_file))

    def _report(self, error: Exception) -> None:
        self._due_at = time.monotonic() + self._backoff.seconds()
        place, why = f"node {host_name()}", str(error)
        if isinstance(error, CannotLabelError):
            place, why = error.place, error.why
        elif isinstance(error, ApiError):
            why = f"labels cannot be written: {error}: {_CURES.get(error.status, 'trying again')}"
        self._problems.report(place, why)


class Debounce:
    """Waits until the inputs have stopped changing."""

    def __init__(self) -> None:
        self._seen: object = None
        self._changed_at = self._since = time.monotonic()

    def after(self, seen: object, *, is_awaited: bool) -> bool:
        """Whether `seen` is stable or the wait too long; `is_awaited`: another change is expected."""
        now = time.monotonic()
        if seen != self._seen:
            if now - self._changed_at >= _SETTLE_SECONDS:
                self._since = now  # it was calm until now
            self._seen, self._changed_at = seen, now
        is_calm = now - self._changed_at >= _SETTLE_SECONDS and not is_awaited
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


def _versions(settings: Settings) -> object:
    """The versions of the inputs; equal while none has changed."""
    return [identity_of(file) for file in (settings.devices_file, settings.offers_file, settings.resolved_config_file)]
