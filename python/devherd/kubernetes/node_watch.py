"""Follows one Node."""

import http
import threading
from dataclasses import dataclass

from devherd.api_server import Api, ApiError, Json
from devherd.kubernetes.api_watch import ApiWatch
from devherd.waits import USUAL_WAITS, Waits


@dataclass(frozen=True, slots=True)
class SeenNode:
    """The Node as it was seen last; None: there is none."""

    node: Json | None

    @property
    def metadata(self) -> Json:
        """The Node's metadata; empty without a Node."""
        return self.node["metadata"] if self.node else {}

    @property
    def labels(self) -> dict[str, str]:
        """The Node's labels."""
        return self.metadata.get("labels") or {}


class NodeWatch(ApiWatch):
    """Follows the Node of a name; `metadata_alone` leaves out its status, which is large."""

    def __init__(
        self,
        api: Api,
        name: str,
        changed: threading.Event,
        *,
        metadata_alone: bool,
        waits: Waits = USUAL_WAITS,
    ) -> None:
        """`changed` is set when `seen` or `error` has changed."""
        super().__init__(api, "/api/v1/nodes", f"metadata.name={name}", changed, waits, metadata_alone=metadata_alone)
        self._node = name
        self.seen: SeenNode | None = None
        """None before the first answer."""

    def _read(self) -> str:
        try:
            node = self._api.get(f"/api/v1/nodes/{self._node}", metadata_alone=self._metadata_alone)
        except ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                self.seen = SeenNode(None)
                self._changed.set()
            raise
        self.seen = SeenNode(node)
        return str(node["metadata"].get("resourceVersion", ""))

    def _take(self, kind: str, changed: Json) -> None:
        self.seen = SeenNode(changed if kind != "DELETED" else None)
