"""Process `kubernetes:config`: reads the label of the node that chooses the configuration; the supervisor loads it.

It asks again and again, each time for the metadata of one node, from the API server's memory; another value than the
last is asked for once more, where it is kept. A configuration that was refused is an Event of the node.
"""

import contextlib
import logging
import random
import signal
import sys
import time
from pathlib import Path

from devherd import spool
from devherd.backoff import Backoff
from devherd.child import BEAT_PERIOD_SECONDS, RENEW, Child
from devherd.configurations import Configurations, Told, content_of
from devherd.errors import UsageError
from devherd.inventory_json import host_name
from devherd.kubernetes import kept_label, objects
from devherd.kubernetes.access import Access
from devherd.kubernetes.api import Api, ApiError
from devherd.kubernetes.complaints import Complaints
from devherd.kubernetes.node_label import label_of
from devherd.kubernetes.rate_limit import RateLimit
from devherd.kubernetes.request import CHOICE, configurations_in
from devherd.proto import spool_pb2

log = logging.getLogger(__name__)

PERIOD_SECONDS = 10.0
"""Between two questions; a fifth of it is left to chance, so that nodes that started together do not ask together."""
_CURES = {
    401: "the token is not accepted",
    403: "add the component deploy/kubernetes/components/config-by-label",
}
_STAYS = "the configuration in force stays"


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    access = Access.of_this_pod()
    return Chooser(child, Api(access, child.beat) if access else None).run()


class Chooser:
    """Writes down what the label says; `api` None: there is no API server to talk to."""

    def __init__(self, child: Child, api: Api | None) -> None:
        self._child = child
        self._settings = child.settings
        self._api = api
        self._request_file = child.settings.requests_directory / CHOICE
        self._complaints = Complaints(child.settings.told_directory, "config")
        self._backoff = Backoff(1.0, 60.0, jitter=0.2)
        self._limit = RateLimit(burst=5, seconds=60.0)
        self._due_at = 0.0
        self._value: str | None = None
        self._told_refusal = ""

    def run(self) -> int:
        """Look each second; the exit code when another process is needed."""
        content = _content(self._request_file)
        configurations = configurations_in(content)
        while _content(self._request_file) in {content, b""} and not self._child.has_outgrown_its_sandbox():
            self._child.beat()
            if configurations is not None and time.monotonic() >= self._due_at:
                self._ask(configurations)
            if configurations is not None:
                self._say_what_is_refused(configurations)
            time.sleep(BEAT_PERIOD_SECONDS)
        return RENEW

    def _ask(self, configurations: Configurations) -> None:
        about = _label(configurations)
        try:
            value = self._read(configurations.label)
        except ApiError as error:
            self._due_at = time.monotonic() + self._backoff.seconds()
            self._complain(about, f"cannot be read: {error}: {_CURES.get(error.status, 'it is tried again')}; {_STAYS}")
            return
        self._backoff.reset()
        self._due_at = time.monotonic() + PERIOD_SECONDS * random.uniform(0.9, 1.1)  # noqa: S311 - chance, not secrecy
        if value != self._value and self._has_written(Told(configurations.label, value, time.time())):
            log.info("%s: %s", about, f"`{value}`" if value else "there is none")
            self._value = value

    def _read(self, key: str) -> str:
        if self._api is None:
            raise ApiError(0, "there is no API server to talk to, or the pod has no token")
        return label_of(self._api, host_name(), key, self._value)

    def _has_written(self, told: Told) -> bool:
        try:
            spool.update(self._settings.config_label_file, content_of(told))
        except OSError as error:
            log.error("cannot write %s: %s; trying again", self._settings.config_label_file, error)
            return False
        kept_label.keep(kept_label.place_of(self._settings), told)
        return True

    def _complain(self, about: str, what: str) -> None:
        if self._complaints.say(about, what):
            log.warning("%s: %s", about, what)

    def _say_what_is_refused(self, configurations: Configurations) -> None:
        """Among the problems, for as long as it is so, and by an Event for each refusal and one for its end."""
        if self._value is None or not self._backoff.is_fresh:
            return  # that nobody can be asked is said already
        refusal = self._refusal(configurations, self._value)
        if refusal:
            self._complain(_label(configurations), f"{refusal}; {_STAYS}")
        elif self._complaints.take_back():
            log.info("%s: followed again", _label(configurations))
        if self._api is not None and refusal != self._told_refusal and self._limit.allows():
            self._tell(self._api, refusal)

    def _refusal(self, configurations: Configurations, value: str) -> str:
        """Why what is chosen is not in force; empty when it is, or is about to be."""
        try:
            configurations.file_of(value)
        except UsageError as error:
            return str(error)
        return spool.read_or_empty(self._settings.children_file, spool_pb2.Children).configuration.refusal

    def _tell(self, api: Api, refusal: str) -> None:
        try:
            event = objects.configuration_event(refusal, host_name(), time.time())
            api.create("/api/v1/namespaces/default/events", event)
        except ApiError as error:
            log.warning("cannot tell the API server of the configuration: %s; trying again", error)
        else:
            self._told_refusal = refusal


def _label(configurations: Configurations) -> str:
    return f"label {configurations.label} of node {host_name()}"


def _content(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""
