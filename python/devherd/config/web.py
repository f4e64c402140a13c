"""The web configuration in force as plain values: who may read the exporter's pages, and how they are protected.

`web_config.py` reads the file that it comes from.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

ClientAuth = Literal["NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"]
"""The format has Go's names, <https://pkg.go.dev/crypto/tls#ClientAuthType>."""
TlsVersion = Literal["TLS12", "TLS13"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The server's certificate, and the requirements on clients' certificates."""

    cert_file: Path
    key_file: Path
    client_ca_file: Path | None = None
    """Never None if clients' certificates are verified."""
    client_auth_type: ClientAuth = "NoClientCert"
    client_allowed_sans: list[str] = field(default_factory=list)
    """Names, addresses and URIs, one of which a client's certificate must have; empty: any certificate."""
    min_version: TlsVersion = "TLS12"
    max_version: TlsVersion = "TLS13"

    def files(self) -> Iterator[Path]:
        """All files of the server's TLS configuration."""
        yield from (self.cert_file, self.key_file)
        if self.client_ca_file:
            yield self.client_ca_file

    def directories(self) -> Iterator[Path]:
        """The directories of these files and of their link targets: a certificate may be a link to the current one."""
        for file in self.files():
            yield from {file.parent, file.resolve().parent}


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """The whole web configuration; if it is empty, everybody who can reach the port may read."""

    file: Path | None = field(default=None, compare=False)
    """The file from which it was read; it contains hashes of passwords."""
    tls: Tls | None = None
    headers: dict[str, str] = field(default_factory=dict)
    """Headers of every response."""
    users: dict[str, str] = field(default_factory=dict)
    """Passwords, hashed by bcrypt, by user name."""

    def directories(self) -> list[Path]:
        """The directories that must be readable."""
        return list(self.tls.directories()) if self.tls else []
