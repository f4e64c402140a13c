"""Process `kubernetes:config`: reads the node's label that chooses the configuration; the supervisor loads it."""

import logging
import os
import random
import signal
import sys
import time
from pathlib import Path

from devherd import spool
from devherd.backoff import Backoff
from devherd.config.chosen_file import kept_label_file, label_answer
from devherd.configurations import Configurations
from devherd.errors import UsageError
from devherd.instance.inventory_json import host_name
from devherd.kubernetes import objects
from devherd.kubernetes.access import Access
from devherd.kubernetes.api import Api, ApiError, Json, RateLimit
from devherd.kubernetes.problems import Problems
from devherd.process import BEAT_PERIOD_SECONDS, RENEW, Child
from devherd.proto import spool_pb2
from devherd.settings import Settings

log = logging.getLogger(__name__)
PERIOD_SECONDS = 10.0
"""Time between two reads, with 10 % of jitter, so that nodes that started together do not read together."""
_CURES = {
    401: "the token is not accepted",
    403: "add the component deploy/kubernetes/components/config-by-label",
}
_STAYS = "the configuration in force stays"


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    access = Access.of_this_pod()
    return ConfigLabel(child, Api(access, child.beat) if access else None).run()


class ConfigLabel:
    """Writes the label's value for the supervisor; `api` is None without access to an API server."""

    def __init__(self, child: Child, api: Api | None) -> None:
        self._child = child
        self._settings = child.settings
        self._api = api
        self._problems = Problems(child)
        self._backoff = Backoff(1.0, 60.0, jitter=0.2)
        self._limit = RateLimit(burst=5, seconds=60.0)
        self._due_at = 0.0
        self._value: str | None = None
        self._sent_refusal = ""

    def run(self) -> int:
        """Read the label periodically; returns the exit code once a new process is needed."""
        configurations = self._settings.configurations
        while not self._child.has_outgrown_its_sandbox():
            self._child.beat()
            if configurations is not None and time.monotonic() >= self._due_at:
                self._ask(configurations)
            if configurations is not None:
                self._report_refusal(configurations)
            time.sleep(BEAT_PERIOD_SECONDS)
        return RENEW

    def _ask(self, configurations: Configurations) -> None:
        about = _label(configurations)
        try:
            value = self._read(configurations.label)
        except ApiError as error:
            self._due_at = time.monotonic() + self._backoff.seconds()
            self._problems.report(
                about, f"cannot be read: {error}: {_CURES.get(error.status, 'trying again')}; {_STAYS}"
            )
            return
        self._backoff.reset()
        self._due_at = time.monotonic() + PERIOD_SECONDS * random.uniform(0.9, 1.1)  # noqa: S311 - chance, not secrecy
        if value != self._value and self._has_written(
            spool_pb2.LabelAnswer(label=configurations.label, value=value, asked_timestamp_seconds=time.time())
        ):
            log.info("%s: %s", about, f"`{value}`" if value else "not set")
            self._value = value

    def _read(self, key: str) -> str:
        if self._api is None:
            raise ApiError(0, "there is no API server to talk to, or the pod has no token")
        return label_of(self._api, host_name(), key, self._value)

    def _has_written(self, answer: spool_pb2.LabelAnswer) -> bool:
        try:
            spool.write(self._settings.config_label_file, answer)
        except OSError as error:
            log.error("cannot write %s: %s; trying again", self._settings.config_label_file, error)
            return False
        keep_label(place_of_label(self._settings), answer)
        return True

    def _report_refusal(self, configurations: Configurations) -> None:
        """Report the refusal as a problem while it lasts, and by an Event at its start and its end."""
        if self._value is None or not self._backoff.is_fresh:
            return  # the problem that the API server does not answer is reported already
        refusal = self._refusal(configurations, self._value)
        if refusal:
            self._problems.report(_label(configurations), f"{refusal}; {_STAYS}")
        else:
            self._problems.solve()
        if self._api is not None and refusal != self._sent_refusal and self._limit.allows():
            self._send_event(self._api, refusal)

    def _refusal(self, configurations: Configurations, value: str) -> str:
        """Why the chosen configuration is not in force; empty if it is, or is about to be."""
        try:
            configurations.file_of(value)
        except UsageError as error:
            return str(error)
        return spool.read_or_empty(self._settings.children_file, spool_pb2.Children).configuration.refusal

    def _send_event(self, api: Api, refusal: str) -> None:
        try:
            event = objects.configuration_event(refusal, host_name(), time.time())
            api.create("/api/v1/namespaces/default/events", event)
        except ApiError as error:
            log.warning("cannot send an Event about the configuration: %s; trying again", error)
        else:
            self._sent_refusal = refusal


def _label(configurations: Configurations) -> str:
    return f"label {configurations.label} of node {host_name()}"


def label_at_start(key: str) -> str | None:
    """The value of the label, read once; None if it cannot be read. Takes seconds at most."""
    access = Access.of_this_pod()
    if access is None:
        return None
    api = Api(access)
    try:
        return label_of(api, host_name(), key)
    except ApiError:  # process `kubernetes:config` reports the reason
        return None
    finally:
        api.close()


def label_of(api: Api, node: str, key: str, believed: str | None = None) -> str:
    """The value of the label; empty if the node has none. Raises ApiError.

    Accepts an answer from the API server's cache only if it confirms `believed`; otherwise the server reads etcd: the
    cache of a server that has just started may be older.
    <https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list>
    """
    path = f"/api/v1/nodes/{node}"
    if believed is not None and _value_in(api.get(f"{path}?resourceVersion=0", metadata_alone=True), key) == believed:
        return believed
    return _value_in(api.get(path, metadata_alone=True), key)


def _value_in(node: Json, key: str) -> str:
    return str(node["metadata"].get("labels", {}).get(key, ""))


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
