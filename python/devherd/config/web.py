"""Who may read the exporter's pages and how they are protected: a web configuration that is in force, as plain values.

`web_config.py` reads the file that it comes from.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

ClientAuth = Literal["NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"]
"""Go's words, <https://pkg.go.dev/crypto/tls#ClientAuthType>, as the format has them."""
TlsVersion = Literal["TLS12", "TLS13"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The server's certificate, and what is asked of clients."""

    cert_file: Path
    key_file: Path
    client_ca_file: Path | None = None
    """Never None where clients' certificates are verified."""
    client_auth_type: ClientAuth = "NoClientCert"
    client_allowed_sans: list[str] = field(default_factory=list)
    """Names, addresses and URIs, one of which a client's certificate must have; none: any will do."""
    min_version: TlsVersion = "TLS12"
    max_version: TlsVersion = "TLS13"

    def files(self) -> Iterator[Path]:
        """All that it is made of."""
        yield from (self.cert_file, self.key_file)
        if self.client_ca_file:
            yield self.client_ca_file

    def directories(self) -> Iterator[Path]:
        """Those that have to be readable: a certificate may be a link to the one of today."""
        for file in self.files():
            yield from {file.parent, file.resolve().parent}


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """The whole; without anything in it, whoever reaches the port may read."""

    file: Path | None = field(default=None, compare=False)
    """Where it is written, passwords with it."""
    tls: Tls | None = None
    headers: dict[str, str] = field(default_factory=dict)
    """Of every answer."""
    users: dict[str, str] = field(default_factory=dict)
    """Passwords, hashed by bcrypt, by user name."""

    def directories(self) -> list[Path]:
        """Those that have to be readable."""
        return list(self.tls.directories()) if self.tls else []
