"""Process `kubernetes`: reports the node's devices to the API server, and reads there what concerns the node.

Its parts share one watch of the node and one connection for their calls. A part that fails tries again by itself, and
none waits for another: after a call without an answer the calls of the others fail at once. No other process waits for
this one.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from devherd import signals
from devherd.config.api_access import ApiAccess
from devherd.config.resolved import ConfigPart, ResolvedConfig, awaited_config
from devherd.history import History
from devherd.instance.inventory_json import host_name
from devherd.kubelet import pod_resources
from devherd.kubernetes.access import has_labels_to_remove
from devherd.kubernetes.api import Api
from devherd.kubernetes.condition import NodeCondition
from devherd.kubernetes.config_label import ConfigLabel
from devherd.kubernetes.event_series import EventSeries
from devherd.kubernetes.labeller import Labeller, LabelsWanted, LabelWriters, labels_wanted
from devherd.kubernetes.node_watch import NodeWatch
from devherd.kubernetes.nvidia_pause import NvidiaPause
from devherd.kubernetes.problems import Problems, forget_problem
from devherd.kubernetes.reporter import Reporter
from devherd.log import Once
from devherd.process import RENEW, Child

log = logging.getLogger(__name__)

_WITH_PROBLEMS = ("nvidia-pause", "config", "condition", "labels")


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
    access: ApiAccess | None


def _wanted(config: ResolvedConfig) -> _Wanted:
    options, labels = config.kubernetes, labels_wanted(config)
    return _Wanted(options.events, options.node_condition, options.nvidia_pause, labels, config.api_access())


class ApiServerClient:
    """The parts that the configuration asks for; `access` is None without access to an API server."""

    def __init__(self, child: Child, access: ApiAccess | None) -> None:
        self._child = child
        self._settings = child.settings
        self._access = access
        self._api = Api(access, child.beat) if access else None
        self._history = History(child.settings.history_directory, child.name)
        self._complaint = Once(log.warning)

    def run(self) -> int:
        """Tend the parts until asked to end, or until a new process is needed; returns the exit code.

        Raises MuteError if the kubelet cannot be asked any more.
        """
        part_of = ConfigPart(self._settings.resolved_config_file, _wanted, self._child.beat)
        watch = self._watch(part_of.value)
        self._forget_problems()
        try:
            parts = list(self._parts(part_of.value, watch))
            if watch:
                watch.start()
            while not (signals.is_to_end() or part_of.has_changed() or self._child.has_outgrown_its_sandbox()):
                for part in parts:
                    self._child.beat()
                    self._tend(part)
                if self._api:
                    self._api.close_if_idle()
                pod_resources.check()
                self._child.beat()
                rest(watch, self._settings.waits.round)
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
        return NodeWatch(Api(self._access), host_name(), metadata_alone=metadata_alone, waits=self._settings.waits)

    def _parts(self, wanted: _Wanted, watch: NodeWatch | None) -> Iterator[Part]:
        """Those that wait for no call first."""
        events = EventSeries(self._api) if self._api else None
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


def rest(watch: NodeWatch | None, seconds: float) -> None:
    """Wait until the parts are due, or the node has changed. Raises RuntimeError if nobody follows it any more."""
    if watch is None:
        signals.rest(seconds)
    elif watch.changed.wait(seconds):
        watch.changed.clear()
    elif not watch.is_alive():
        raise RuntimeError("the thread that follows the node has crashed")  # the next process has another
