"""Address and credentials of the API server, if this pod has any.

<https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/>
"""

import os
from dataclasses import dataclass
from pathlib import Path

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Access:
    """The server's address, and the directory with the token and the certificates."""

    host: str
    port: int
    service_account: Path = SERVICE_ACCOUNT

    @classmethod
    def of_this_pod(cls) -> "Access | None":
        """This pod's access; None outside a cluster, and in a pod without a service account's token."""
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        has_token = (SERVICE_ACCOUNT / "token").exists()
        return cls(host, int(port)) if host and port.isdecimal() and has_token else None

    def namespace(self) -> str:
        """The pod's namespace; empty if its token has none."""
        try:
            return (self.service_account / "namespace").read_text().strip()
        except OSError:
            return ""
