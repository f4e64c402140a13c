"""TLS for the listening sockets: made of the certificate's files, and again when these change.

While files cannot be used, the last good ones stay; while there were none, nothing is served.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from devherd.config.web import Tls
from devherd.spool.identity import Identity, identity_of

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)

RECORD_BYTES = 16 << 10
"""The most that a record of TLS carries (RFC 8446, 5.1): as much is read at once."""

Files = dict[Path, Identity | None]


class Encryption:
    """`context` is None without TLS, and while it `is_missing`."""

    def __init__(self) -> None:
        self.context: ssl.SSLContext | None = None
        self._tls: Tls | None = None
        self._files: Files = {}
        self._complaint = ""

    @property
    def refusal(self) -> str:
        """Why there is no TLS where there is to be; empty otherwise."""
        return self._complaint if self.is_missing else ""

    @property
    def is_missing(self) -> bool:
        """Whether there is to be TLS, and is none."""
        return self._tls is not None and self.context is None

    def use(self, tls: Tls | None) -> None:
        """Use other files from now on; None: no TLS."""
        self._tls, self._files, self._complaint, self.context = tls, {}, "", None
        self.tend()

    def tend(self) -> None:
        """Look whether the files have changed. Never raises."""
        if self._tls is None:
            return
        files: Files = {file: identity_of(file, follow_symlinks=True) for file in self._tls.files()}
        if files == self._files and self.context:
            return
        is_first, self._files = not self._files, files
        try:
            self.context = context_of(self._tls)
        except OSError as error:  # ssl.SSLError is one
            reason = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            if reason != self._complaint:
                stays = (
                    "the old ones stay in use" if self.context else "nothing is served over TCP until they are right"
                )
                log.error("cannot use the certificates: %s; %s", reason, stays)
            self._complaint = reason
        else:
            self._complaint = ""
            if not is_first:
                log.info("serving with the new certificate %s", self._tls.cert_file)


def context_of(tls: Tls) -> "ssl.SSLContext":
    """What serves by these files. Raises OSError that names the one that cannot be used."""
    import ssl  # noqa: PLC0415 - 3 MB, where there is TLS alone

    _give_to_asyncio()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
    context.minimum_version, context.maximum_version = versions[tls.min_version], versions[tls.max_version]
    for file in tls.files():
        file.open("rb").close()  # its error names the file
    _load(lambda: context.load_cert_chain(tls.cert_file, tls.key_file, password=_no_password), tls.cert_file)
    if tls.client_ca_file is not None:
        authorities = tls.client_ca_file
        _load(lambda: context.load_verify_locations(authorities), authorities)
        # Whoever shows none is refused by `Gate`, which has to let the kubelet's probes pass.
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _load(load: Callable[[], None], file: Path) -> None:
    """Raises OSError that names the file, which OpenSSL does not."""
    import ssl  # noqa: PLC0415 - as above

    try:
        load()
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).lower().replace("_", " ")
        raise OSError(f"{file}: {reason}") from error


def _no_password() -> str:
    """In place of a question at the terminal."""
    raise OSError("the key is encrypted; keep it without a passphrase, readable by devherd's user alone")


def _give_to_asyncio() -> None:
    """The supervisor imports asyncio without `ssl` (supervisor/lean_imports.py), and this process is its fork."""
    import asyncio.base_events as base_events  # noqa: PLC0415, PLR0402 - as above
    import asyncio.selector_events as selector_events  # noqa: PLC0415, PLR0402 - as above
    import asyncio.sslproto as sslproto  # noqa: PLC0415, PLR0402 - as above
    import importlib  # noqa: PLC0415 - as above
    import ssl  # noqa: PLC0415 - as above

    if vars(sslproto)["ssl"] is None:
        importlib.reload(sslproto)
        vars(base_events)["ssl"] = vars(selector_events)["ssl"] = ssl
    sslproto.SSLProtocol.max_size = RECORD_BYTES  # of the buffer that each connection has; asyncio's has 256 kB
