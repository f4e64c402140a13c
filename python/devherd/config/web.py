"""The web configuration in force as plain values: who may read the exporter's pages, and how they are protected.

`web_config.py` reads the file that it comes from.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from devherd.records import Record, field, values_of

ClientAuth = Literal["NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"]
"""The format has Go's names, <https://pkg.go.dev/crypto/tls#ClientAuthType>."""
TlsVersion = Literal["TLS12", "TLS13"]


class Tls(Record, kw_only=True):
    """The server's certificate, and the requirements on clients' certificates."""

    cert_file: Path
    key_file: Path
    client_ca_file: Path | None = None
    """Never None if clients' certificates are verified."""
    client_auth_type: ClientAuth = "NoClientCert"
    client_allowed_sans: list[str] = field(factory=list)
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


class Web(Record, kw_only=True):
    """The whole web configuration; if it is empty, everybody who can reach the port may read."""

    file: Path | None = None
    """The file from which it was read; it contains hashes of passwords."""
    tls: Tls | None = None
    headers: dict[str, str] = field(factory=dict)
    """Headers of every response."""
    users: dict[str, str] = field(factory=dict)
    """Passwords, hashed by bcrypt, by user name."""

    def __eq__(self, other: object) -> bool:
        """Whether the same holds, wherever it was read."""
        return isinstance(other, Web) and values_of(self) | {"file": None} == values_of(other) | {"file": None}

    __hash__ = Record.__hash__

    def directories(self) -> list[Path]:
        """The directories that must be readable."""
        return list(self.tls.directories()) if self.tls else []
