"""The API server as a pod reaches it, by the standard library: no client fits into a few MB.

<https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/>
"""

import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any

from devherd.kubernetes.access import Access

TIMEOUT_SECONDS = 2.0
"""Of each step of a call, of which there are four: below the silence that a process may keep."""

Json = dict[str, Any]

_LONGEST_MESSAGE = 200
_JSON = "application/json"
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""<https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables>"""


class ApiError(Exception):
    """A call failed: the status that the server gave, 0 without one, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(f"{status}: {why}" if status else why)
        self.status = status


class Api:
    """Calls, one after the other, over a connection that is kept. A token that is renewed is read again."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._connection: http.client.HTTPSConnection | None = None

    def get(self, path: str, *, metadata_alone: bool = False) -> Json:
        """An object, or its metadata: a node's status is large. Raises ApiError."""
        return self._call("GET", path, accept=_METADATA if metadata_alone else _JSON)

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
        try:
            return self._ask(method, path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not was_kept or isinstance(error, TimeoutError):
                raise ApiError(0, str(error) or type(error).__name__) from error
        try:  # the server may have closed a connection on which nothing was said for long
            return self._ask(method, path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ApiError(0, str(error) or type(error).__name__) from error

    def _ask(self, method: str, path: str, body: Json | None, headers: Mapping[str, str]) -> Json:
        token = (self._access.service_account / "token").read_text().strip()
        connection = self._connected()
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"Authorization": f"Bearer {token}", **headers})
        answer = connection.getresponse()
        text = answer.read()
        try:
            said = json.loads(text)
        except ValueError:
            said = None
        if not isinstance(said, dict):  # of a proxy, say
            raise ApiError(answer.status, text[:_LONGEST_MESSAGE].decode(errors="replace"))
        if not http.client.OK <= answer.status < http.client.MULTIPLE_CHOICES:
            raise ApiError(answer.status, str(said.get("message", "")))
        return said

    def _connected(self) -> http.client.HTTPSConnection:
        if self._connection is None:
            trusted = ssl.create_default_context(cafile=str(self._access.service_account / "ca.crt"))
            access = self._access
            self._connection = http.client.HTTPSConnection(
                access.host, access.port, timeout=TIMEOUT_SECONDS, context=trusted
            )
        return self._connection
