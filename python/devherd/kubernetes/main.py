"""Process `kubernetes`: reports the node's devices to the API server, and reads there what concerns the node.

Its parts share one watch of the node and one connection for their calls. A part that fails tries again by itself, and
none waits for another: after a call without an answer the calls of the others fail at once. No other process waits for
this one.
"""

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from devherd import signals, spool
from devherd.api_server import Api
from devherd.config.api_access import ApiAccess
from devherd.config.resolved import ConfigPart, ResolvedConfig, awaited_config
from devherd.dra.pool_files import node_name
from devherd.dra.registrations import LETTERS
from devherd.errors import UsageError
from devherd.history import History
from devherd.instance.inventory_json import host_name
from devherd.kubelet import pod_resources
from devherd.kubernetes.access import has_labels_to_remove
from devherd.kubernetes.condition import NodeCondition
from devherd.kubernetes.config_label import ConfigLabel
from devherd.kubernetes.event_series import EventSeries
from devherd.kubernetes.file_watch import FileWatch
from devherd.kubernetes.labeller import Labeller, LabelsWanted, LabelWriters, labels_wanted
from devherd.kubernetes.node_watch import NodeWatch
from devherd.kubernetes.nvidia_pause import NvidiaPause
from devherd.kubernetes.problems import Problems, forget_problem
from devherd.kubernetes.reporter import Reporter
from devherd.kubernetes.slice_watch import SliceWatch
from devherd.kubernetes.slices import SlicePublisher
from devherd.log import Once
from devherd.process import RENEW, Child

log = logging.getLogger(__name__)

_WITH_PROBLEMS = ("slices", "nvidia-pause", "config", "condition", "labels")


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM."""
    signals.remember()
    config = awaited_config(child.settings.resolved_config_file, child.beat)
    return ApiServerClient(child, config.api_access()).run()


class Part(Protocol):
    """What the process does for one option of the configuration."""

    def tend(self) -> None:
        """Do what is due. Called each second, and when the node has changed.

        Raises OSError if the run directory cannot be read, as without descriptors: it is called again.
        """


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What of the configuration this process depends on: it is replaced when that changes."""

    events: bool
    node_condition: bool
    nvidia_pause: bool
    labels: LabelsWanted
    slices: str
    """The effect of the taints of Unhealthy devices; empty if no slices are published."""
    access: ApiAccess | None


def _wanted(config: ResolvedConfig) -> _Wanted:
    options, labels = config.kubernetes, labels_wanted(config)
    slices = config.health.taint if config.is_dra else ""
    return _Wanted(options.events, options.node_condition, options.nvidia_pause, labels, slices, config.api_access())


class ApiServerClient:
    """The parts that the configuration asks for; `access` is None without access to an API server."""

    def __init__(self, child: Child, access: ApiAccess | None) -> None:
        self._child = child
        self._settings = child.settings
        self._access = access
        self._api = Api(access, child.beat) if access else None
        self._history = History(child.settings.history_directory, child.name)
        self._complaint = Once(log.warning)
        self._changed = threading.Event()
        """Set when there is something to tend."""

    def run(self) -> int:
        """Tend the parts until asked to end, or until a new process is needed; returns the exit code.

        Raises MuteError if the kubelet cannot be asked any more.
        """
        part_of = ConfigPart(self._settings.resolved_config_file, _wanted, self._child.beat)
        self._forget_problems()
        try:
            watch, slices = self._watch(part_of.value), self._slice_watch(part_of.value)
            parts = [*self._parts(part_of.value, watch, slices)]
            watches = [each for each in (watch, slices, self._file_watch(part_of.value)) if each]
            for each in watches:
                each.start()
            while not (signals.is_to_end() or part_of.has_changed() or self._child.has_outgrown_its_sandbox()):
                for part in parts:
                    self._child.beat()
                    self._tend(part)
                if self._api:
                    self._api.close_if_idle()
                pod_resources.check()
                self._child.beat()
                rest(self._changed, watches, self._settings.waits.round)
        finally:
            self._forget_problems()
        return 0 if signals.is_to_end() else RENEW

    def _tend(self, part: Part) -> None:
        try:
            part.tend()
        except OSError as error:
            self._complaint.complain("cannot read what to report: %s; trying again", error)

    def _watch(self, wanted: _Wanted) -> NodeWatch | None:
        """What follows the node, if a part needs that."""
        is_needed = (
            wanted.node_condition
            or wanted.nvidia_pause
            or wanted.labels.write == "node"
            or self._settings.configurations is not None
        )
        if self._access is None or not is_needed:
            return None
        metadata_alone = not wanted.node_condition
        waits = self._settings.waits
        return NodeWatch(Api(self._access), host_name(), self._changed, metadata_alone=metadata_alone, waits=waits)

    def _slice_watch(self, wanted: _Wanted) -> SliceWatch | None:
        """What follows the node's slices, if they are published."""
        if self._access is None or not wanted.slices:
            return None
        with contextlib.suppress(UsageError):
            return SliceWatch(Api(self._access), node_name(), self._changed, waits=self._settings.waits)
        return None

    def _file_watch(self, wanted: _Wanted) -> FileWatch | None:
        """What notices new devices, and drivers that the kubelet has registered: pods wait for their slices."""
        if not wanted.slices or not self._child.may_watch:
            return None
        settings = self._settings
        states = [spool.path_of(settings.dra_directory, name) for name in LETTERS]
        return FileWatch([settings.devices_file, settings.offers_file, *states], self._changed)

    def _parts(self, wanted: _Wanted, watch: NodeWatch | None, slices: SliceWatch | None) -> Iterator[Part]:
        """Those that wait for no call first."""
        events = EventSeries(self._api) if self._api else None
        if wanted.slices:
            problems = self._problems("slices")
            try:
                node, effect = node_name(), wanted.slices
                yield SlicePublisher(self._settings, problems, self._api, slices, node=node, effect=effect)
            except UsageError as error:
                problems.report("node", f"no ResourceSlices are published: {error}")
        if wanted.nvidia_pause:
            yield NvidiaPause(self._settings, watch, self._problems("nvidia-pause"))
        if self._settings.configurations is not None:
            yield ConfigLabel(self._settings, self._problems("config"), events, watch)
        if wanted.node_condition:
            yield NodeCondition(self._settings, self._api, watch, self._problems("condition"))
        if wanted.events and self._api and events:
            yield Reporter(self._settings, self._api, events, self._child.beat)
        if wanted.labels.write != "none" or has_labels_to_remove(self._settings, self._access):
            writers = LabelWriters(self._access, self._api, watch)
            yield Labeller(self._settings, wanted.labels, writers, self._problems("labels"))

    def _problems(self, part: str) -> Problems:
        return Problems(self._settings, part, self._history)

    def _forget_problems(self) -> None:
        """Remove those of an earlier process, and of parts that are switched off."""
        for part in _WITH_PROBLEMS:
            forget_problem(self._settings.kubernetes_problems_directory, part)


def rest(changed: threading.Event, watches: Sequence[threading.Thread], seconds: float) -> None:
    """Wait until the parts are due, or something has changed. Raises RuntimeError if nobody follows it any more."""
    if not watches:
        signals.rest(seconds)
    elif changed.wait(seconds):
        changed.clear()
    elif crashed := [watch.name for watch in watches if not watch.is_alive()]:
        # the next process has another
        raise RuntimeError(f"the thread that follows {crashed[0]} has crashed")
