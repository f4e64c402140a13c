"""Address and credentials of the API server, as plain values: of this pod, or of a kubeconfig file.

Files are read again when they are used, because they are renewed. `kubeconfig.py` reads the file of the option.
Source of the pod's: <https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/>.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The directory of a pod's token, certificates and namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAccess:
    """One server, and one identity there. What is empty or None is not given; a text wins over its file."""

    host: str
    port: int = 443
    path: str = ""
    """The beginning of every path, as behind a proxy: `/k8s/clusters/c-1`."""
    server_name: str = ""
    """The name in the server's certificate; empty: `host`."""
    ca_file: Path | None = None
    """Certificates that the server's is checked against. Without these and `ca`: the system's."""
    ca: str = ""
    """The same as text, PEM."""
    token_file: Path | None = None
    token: str = ""
    certificate_file: Path | None = None
    """The client's certificate, perhaps with its key."""
    certificate: str = ""
    """The same as text, PEM."""
    key_file: Path | None = None
    key: str = ""
    namespace_file: Path | None = None
    own_namespace: str = ""
    """The same as text."""
    kubeconfig: Path | None = None
    """The file that says all this; None: a pod's service account."""

    @classmethod
    def of_service_account(cls, host: str, port: int, directory: Path = SERVICE_ACCOUNT) -> "ApiAccess":
        """The access of a pod, with the files of its service account in `directory`."""
        return cls(
            host=host,
            port=port,
            ca_file=directory / "ca.crt",
            token_file=directory / "token",
            namespace_file=directory / "namespace",
        )

    @classmethod
    def of_this_pod(cls) -> "ApiAccess | None":
        """This pod's access; None outside a cluster, and in a pod without a service account's token."""
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        has_token = (SERVICE_ACCOUNT / "token").exists()
        return (
            cls.of_service_account(host, int(port), SERVICE_ACCOUNT)
            if host and port.isdecimal() and has_token
            else None
        )

    def namespace(self) -> str:
        """The namespace for objects of devherd's own, that of the pod or of the context; empty if unknown."""
        try:
            return self.namespace_file.read_text().strip() if self.namespace_file else self.own_namespace
        except OSError:
            return ""

    def bearer(self) -> str:
        """The token as it is now; empty without one. Raises OSError."""
        return self.token or (self.token_file.read_text().strip() if self.token_file else "")

    def directories(self) -> Iterator[Path]:
        """The directories of the files and of their link targets: a renewed certificate is a link to the newest."""
        for file in (self.ca_file, self.token_file, self.certificate_file, self.key_file):
            if file is not None:
                yield from {file.parent, file.resolve().parent}
