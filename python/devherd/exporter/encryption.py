"""TLS for the listening sockets; reloads the certificate files when they change.

If files cannot be used, the last good ones stay in use; without any, nothing is served over TCP.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from devherd.config.web import Tls
from devherd.log import Once
from devherd.spool import Identity, identity_of

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)

RECORD_BYTES = 16 << 10
"""Largest payload of a TLS record (RFC 8446, 5.1), and the size of each read."""

Files = dict[Path, Identity | None]


class Encryption:
    """The TLS configuration in use. `context` is None without TLS, and while it `is_missing`."""

    def __init__(self) -> None:
        self.context: ssl.SSLContext | None = None
        self._tls: Tls | None = None
        self._files: Files = {}
        self._complaint = Once(log.error)
        self._why = ""

    @property
    def refusal(self) -> str:
        """The reason why configured TLS is not available; empty otherwise."""
        return self._why if self.is_missing else ""

    @property
    def is_missing(self) -> bool:
        """True if TLS is configured but not available."""
        return self._tls is not None and self.context is None

    def use(self, tls: Tls | None) -> None:
        """Switch to other files; None turns TLS off."""
        self._tls, self._files, self._why, self.context = tls, {}, "", None
        self._complaint.over()
        self.tend()

    def tend(self) -> None:
        """Load the files if they have changed or could not be loaded at the last attempt. Never raises."""
        if self._tls is None:
            return
        files: Files = {file: identity_of(file, follow_symlinks=True) for file in self._tls.files()}
        if files == self._files and self.context and not self._why:
            return
        is_first, self._files = not self._files, files
        try:
            self.context = context_of(self._tls)
        except OSError as error:  # ssl.SSLError is one
            self._why = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            stays = "the old ones stay in use" if self.context else "nothing is served over TCP until they are right"
            self._complaint.complain("cannot use the certificates: %s; %s", self._why, stays)
        else:
            self._why = ""
            self._complaint.over()
            if not is_first:
                log.info("serving with the new certificate %s", self._tls.cert_file)


def context_of(tls: Tls) -> "ssl.SSLContext":
    """The TLS context made from these files. Raises OSError that names the file that cannot be used."""
    import asyncio.sslproto  # noqa: PLC0415 - OpenSSL takes 4 MB, and few have certificates
    import ssl  # noqa: PLC0415 - as above

    asyncio.sslproto.SSLProtocol.max_size = RECORD_BYTES  # of each connection's buffer; asyncio's default is 256 kB
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
    context.minimum_version, context.maximum_version = versions[tls.min_version], versions[tls.max_version]
    for file in tls.files():
        file.open("rb").close()  # its error names the file
    _load(lambda: context.load_cert_chain(tls.cert_file, tls.key_file, password=_no_password), tls.cert_file)
    if tls.client_ca_file is not None:
        authorities = tls.client_ca_file
        _load(lambda: context.load_verify_locations(authorities), authorities)
        # `Gate` refuses clients without a certificate, except on the paths of the kubelet's probes.
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _load(load: Callable[[], None], file: Path) -> None:
    """Call `load`. Raises OSError that names the file, because OpenSSL's error does not."""
    import ssl  # noqa: PLC0415 - as above

    try:
        load()
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).lower().replace("_", " ")
        raise OSError(f"{file}: {reason}") from error


def _no_password() -> str:
    """Raise OSError. Without this callback, OpenSSL would prompt at the terminal."""
    raise OSError("the key is encrypted; keep it without a passphrase, readable by devherd's user alone")
