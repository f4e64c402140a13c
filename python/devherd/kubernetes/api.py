"""The API server as a pod reaches it, by the standard library: no client fits into a few MB.

<https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/>
"""

import http.client
import json
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from devherd.kubernetes.access import Access
from devherd.kubernetes.connection import TimedConnection
from devherd.kubernetes.deadline import Deadline

CALL_SECONDS = 5.0
"""Of a whole call, from the look-up of a name to the last byte: half the silence that a process may keep."""
LARGEST_ANSWER_BYTES = 4 << 20
"""The API server itself keeps no object of more than 3 MiB (`MaxRequestBodyBytes` of k8s.io/apiserver)."""

Json = dict[str, Any]

_LONGEST_MESSAGE = 500
_JSON = "application/json"
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""<https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables>"""


class ApiError(Exception):
    """A call failed: the status that the server gave, 0 without one, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(f"{status}: {why}" if status else why)
        self.status = status


def _nothing() -> None:
    pass


class Api:
    """Calls, one after the other, over a connection that is kept. A token that is renewed is read again.

    `before_each` is called before each of them, which takes `seconds` at most.
    """

    def __init__(
        self, access: Access, before_each: Callable[[], None] = _nothing, *, seconds: float = CALL_SECONDS
    ) -> None:
        self._access = access
        self._before_each = before_each
        self._seconds = seconds
        self._connection: TimedConnection | None = None

    def get(self, path: str, *, metadata_alone: bool = False) -> Json:
        """An object, or its metadata: a node's status is large. Raises ApiError."""
        said = self._call("GET", path, accept=_METADATA if metadata_alone else _JSON)
        if not isinstance(said.get("metadata"), dict):
            raise ApiError(http.client.OK, f"no object of Kubernetes: {json.dumps(said)[:_LONGEST_MESSAGE]}")
        return said

    def create(self, path: str, body: Json) -> Json:
        """Create an object in a collection. Raises ApiError."""
        return self._call("POST", path, body)

    def patch(self, path: str, body: Json) -> Json:
        """Merge into an object, lists by their keys (strategic merge). Raises ApiError."""
        return self._call("PATCH", path, body, kind="application/strategic-merge-patch+json")

    def replace(self, path: str, body: Json) -> Json:
        """Put an object in the place of the one with its name and version. Raises ApiError."""
        return self._call("PUT", path, body)

    def delete(self, path: str) -> None:
        """Remove an object; one that is not there is removed. Raises ApiError."""
        try:
            self._call("DELETE", path)
        except ApiError as error:
            if error.status != http.client.NOT_FOUND:
                raise

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _call(
        self, method: str, path: str, body: Json | None = None, *, kind: str = _JSON, accept: str = _JSON
    ) -> Json:
        if method == "POST":
            self.close()  # a call that gets no answer over a kept connection is made once more: two Events would be two
        was_kept = self._connection is not None
        headers = {"Accept": accept, "Content-Type": kind}
        self._before_each()
        deadline = Deadline(self._seconds)
        try:
            return self._ask(method, path, body, headers, deadline)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not was_kept or isinstance(error, TimeoutError):
                raise ApiError(0, str(error) or type(error).__name__) from error
        try:  # the server may have closed a connection on which nothing was said for long
            return self._ask(method, path, body, headers, deadline)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ApiError(0, str(error) or type(error).__name__) from error

    def _ask(self, method: str, path: str, body: Json | None, headers: Mapping[str, str], deadline: Deadline) -> Json:
        token = (self._access.service_account / "token").read_text().strip()
        connection = self._connected()
        connection.within(deadline)
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"Authorization": f"Bearer {token}", **headers})
        answer = connection.getresponse()
        text = self._whole(answer)
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):  # of a proxy, say
            raise ApiError(answer.status, text[:_LONGEST_MESSAGE].decode(errors="replace"))
        if not http.client.OK <= answer.status < http.client.MULTIPLE_CHOICES:
            raise ApiError(answer.status, str(said.get("message", ""))[:_LONGEST_MESSAGE])
        return said

    def _whole(self, answer: http.client.HTTPResponse) -> bytes:
        text = answer.read(LARGEST_ANSWER_BYTES + 1)
        if len(text) > LARGEST_ANSWER_BYTES:
            self.close()
            raise ApiError(answer.status, f"the answer has more than {LARGEST_ANSWER_BYTES >> 20} MiB")
        if answer.length:
            raise http.client.IncompleteRead(text, answer.length)
        return text

    def _connected(self) -> TimedConnection:
        if self._connection is None:
            trusted = ssl.create_default_context(cafile=str(self._access.service_account / "ca.crt"))
            self._connection = TimedConnection(self._access.host, self._access.port, trusted)
        return self._connection
