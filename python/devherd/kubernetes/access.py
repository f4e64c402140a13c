"""Address and credentials of the API server, if this pod has any, and whether process `kubernetes` is needed.

<https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/>
"""

import os
from dataclasses import dataclass
from pathlib import Path

from devherd import spool
from devherd.config.resolved import ResolvedConfig
from devherd.proto import spool_pb2
from devherd.settings import Settings

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
LEFT_OVER_CURE = "`devherd labels --remove` removes them, with the rights of deploy/kubernetes/clean-nodes"
"""The cure if labels are left that this instance has no right to remove."""


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """The server's address, and the directory with the token and the certificates."""

    host: str
    port: int
    service_account: Path = SERVICE_ACCOUNT

    @classmethod
    def of_this_pod(cls) -> "ApiAccess | None":
        """This pod's access; None outside a cluster, and in a pod without a service account's token."""
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        has_token = (SERVICE_ACCOUNT / "token").exists()
        return cls(host, int(port), SERVICE_ACCOUNT) if host and port.isdecimal() and has_token else None

    def namespace(self) -> str:
        """The pod's namespace; empty if its token has none."""
        try:
            return (self.service_account / "namespace").read_text().strip()
        except OSError:
            return ""


def needs_process(config: ResolvedConfig, settings: Settings) -> bool:
    """Whether process `kubernetes` has anything to do under this configuration."""
    options, access = config.kubernetes, ApiAccess.of_this_pod()
    return (
        (options.events and access is not None)
        or options.node_condition
        or options.nvidia_pause
        or config.node_labels.write != "none"
        or settings.configurations is not None
        or has_labels_to_remove(settings, access)
    )


def has_labels_to_remove(settings: Settings, access: ApiAccess | None) -> bool:
    """Whether an earlier configuration has left labels that can be removed: in a feature file, or by the API server."""
    if not settings.written_labels_file.exists():
        return False
    return access is not None or _written(settings) == "feature_file"


def notice_of_labels(config: ResolvedConfig, settings: Settings) -> str:
    """A notice about labels of an earlier configuration that cannot be removed; empty if there are none."""
    written = _written(settings)
    if config.node_labels.write != "none" or not written or has_labels_to_remove(settings, ApiAccess.of_this_pod()):
        return ""
    return (
        f"labels that devherd has written to the node by `node_labels: {{write: {written}}}` may be left, as"
        f" {settings.written_labels_file} shows, and there is no API server to talk to: {LEFT_OVER_CURE};"
        f" remove the file then"
    )


def _written(settings: Settings) -> str:
    return spool.read_or_empty(settings.written_labels_file, spool_pb2.WrittenLabels).write
