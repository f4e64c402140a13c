"""Reads the node's label that chooses the configuration; the supervisor loads it."""

import logging
import os
import time
from pathlib import Path

from devherd import spool
from devherd.api_server import NO_ACCESS, Api, ApiError
from devherd.backoff import Backoff
from devherd.config.api_access import ApiAccess
from devherd.config.chosen_file import kept_label_file, label_answer
from devherd.configurations import Configurations
from devherd.errors import UsageError
from devherd.instance.inventory_json import host_name
from devherd.kubernetes import objects
from devherd.kubernetes.event_series import EventSeries
from devherd.kubernetes.node_watch import NodeWatch, SeenNode
from devherd.kubernetes.problems import Problems
from devherd.proto import spool_pb2
from devherd.settings import Settings

log = logging.getLogger(__name__)
_CURES = {
    401: "the token is not accepted",
    403: "add the component deploy/kubernetes/components/config-by-label",
}
_STAYS = "the configuration in force stays"


class ConfigLabel:
    """Writes the label's value for the supervisor; `events` and `watch` are None without access to an API server."""

    def __init__(
        self, settings: Settings, problems: Problems, events: EventSeries | None, watch: NodeWatch | None
    ) -> None:
        self._settings = settings
        self._problems = problems
        self._events = events
        self._watch = watch
        self._backoff = Backoff(1.0, 60.0, jitter=0.2)
        self._due_at = 0.0
        self._value: str | None = None
        self._sent_refusal = ""

    def tend(self) -> None:
        """Write a changed value, and report what is wrong."""
        configurations = self._settings.configurations
        if configurations is None:
            return
        error = self._watch.error if self._watch else NO_ACCESS
        if self._watch and self._watch.seen and self._watch.seen.node:
            self._take(configurations, self._watch.seen)
        if error is not None:
            why = f"cannot be read: {error}: {_CURES.get(error.status, 'trying again')}"
            self._problems.report(_label(configurations), f"{why}; {_STAYS}")
        elif self._value is not None:
            self._report_refusal(configurations, self._value)

    def _take(self, configurations: Configurations, seen: SeenNode) -> None:
        value = str(seen.labels.get(configurations.label, ""))
        if value == self._value:
            return
        answer = spool_pb2.LabelAnswer(label=configurations.label, value=value, asked_timestamp_seconds=time.time())
        try:
            spool.write(self._settings.config_label_file, answer)
        except OSError as error:
            log.error("cannot write %s: %s; trying again", self._settings.config_label_file, error)
            return
        keep_label(place_of_label(self._settings), answer)
        log.info("%s: %s", _label(configurations), f"`{value}`" if value else "not set")
        self._value = value

    def _report_refusal(self, configurations: Configurations, value: str) -> None:
        """Report the refusal as a problem while it lasts, and by an Event at its start and its end."""
        refusal = self._refusal(configurations, value)
        if refusal:
            self._problems.report(_label(configurations), f"{refusal}; {_STAYS}")
        else:
            self._problems.solve()
        if self._events and refusal != self._sent_refusal and time.monotonic() >= self._due_at:
            self._send_event(self._events, refusal)

    def _refusal(self, configurations: Configurations, value: str) -> str:
        """Why the chosen configuration is not in force; empty if it is, or is about to be."""
        try:
            configurations.file_of(value)
        except UsageError as error:
            return str(error)
        return spool.read_or_empty(self._settings.children_file, spool_pb2.Children).configuration.refusal

    def _send_event(self, events: EventSeries, refusal: str) -> None:
        event = objects.configuration_event(refusal, host_name(), time.time())
        try:
            is_sent = events.send(event, refusal)
        except ApiError as error:
            self._due_at = time.monotonic() + self._backoff.seconds()
            log.warning("cannot send an Event about the configuration: %s; trying again", error)
            return
        self._backoff.reset()
        if is_sent:
            self._sent_refusal = refusal


def _label(configurations: Configurations) -> str:
    return f"label {configurations.label} of node {host_name()}"


def label_at_start(key: str, access: ApiAccess | None) -> str | None:
    """The value of the label, read once; None if it cannot be read. Takes seconds at most."""
    if access is None:
        return None
    api = Api(access)
    try:
        return label_of(api, host_name(), key)
    except ApiError:  # process `kubernetes` reports the reason
        return None
    finally:
        api.close()


def label_of(api: Api, node: str, key: str) -> str:
    """The value of the label; empty if the node has none. Raises ApiError."""
    metadata = api.get(f"/api/v1/nodes/{node}", metadata_alone=True)["metadata"]
    return str((metadata.get("labels") or {}).get(key, ""))


def place_of_label(settings: Settings) -> Path | None:
    """The file that keeps the label for the next start; None without a state directory."""
    return kept_label_file(dict(settings.given_options), os.environ)


def keep_label(place: Path | None, answer: spool_pb2.LabelAnswer) -> None:
    """Write the answer to its file, if label or value changed."""
    before = label_answer(place) if place else None
    if place is None or (before is not None and (before.label, before.value) == (answer.label, answer.value)):
        return
    try:
        spool.replace(place, answer.SerializeToString(), mode=0o600, is_synced=True)
    except OSError as error:
        log.warning("cannot keep the value of the node's label: %s; after a boot it is read again", error)
