"""The files of the web configuration: who can read them, and how long certificates are valid."""

import _ssl  # `ssl` itself cannot decode a certificate file
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from devherd.config.web import Web
from devherd.doctor.line import Line, ok, problem, warning
from devherd.exporter.encryption import context_of
from devherd.text import duration

TOPIC = "web"
_SOON_SECONDS = 30 * 24 * 3600
_OTHERS = 0o007


@dataclass(frozen=True, slots=True)
class Certificate:
    """The first certificate of a file; it is valid between two Unix seconds."""

    file: Path
    begins: float
    ends: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WebFiles:
    """Facts about the files."""

    now: float
    refusal: str = ""
    """Why the certificates cannot be used."""
    open_to_others: tuple[Path, ...] = ()
    """Files with secrets that every user of the host can read."""
    certificates: tuple[Certificate, ...] = ()


def look(web: Web) -> WebFiles:
    """Read the files. Raises OSError if one is missing."""
    secrets = [file for file in (web.file, web.tls.key_file if web.tls else None) if file]
    open_to_others = tuple(file for file in secrets if file.stat().st_mode & _OTHERS)
    refusal, certificates = "", tuple[Certificate, ...]()
    if web.tls:
        try:
            context_of(web.tls)
            files = (web.tls.cert_file, web.tls.client_ca_file)
            certificates = tuple(_certificate(file) for file in files if file)
        except OSError as error:  # ssl.SSLError is one
            refusal = str(error)
    return WebFiles(now=time.time(), refusal=refusal, open_to_others=open_to_others, certificates=certificates)


def judge(found: WebFiles) -> Iterator[Line]:
    """The report lines."""
    for file in found.open_to_others:
        yield warning(TOPIC, f"every user of this host can read {file}", f"chmod o= {file}")
    if found.refusal:
        yield problem(TOPIC, f"TCP is not served: {found.refusal}", "correct the file that it names")
    for certificate in found.certificates:
        yield _of_the_certificate(certificate, found.now)


def _of_the_certificate(certificate: Certificate, now: float) -> Line:
    file, renew = certificate.file, "renew it: devherd loads the new one by itself"
    begins, ends = (time.strftime("%Y-%m-%d", time.gmtime(moment)) for moment in (certificate.begins, certificate.ends))
    if now < certificate.begins:
        return problem(TOPIC, f"the certificate {file} is valid from {begins} on", "make sure that the clock is right")
    if now >= certificate.ends:
        return problem(TOPIC, f"the certificate {file} was valid until {ends}", renew)
    if certificate.ends - now < _SOON_SECONDS:
        left = duration(certificate.ends - now)
        return warning(TOPIC, f"the certificate {file} is valid until {ends}, {left} more", renew)
    return ok(TOPIC, f"the certificate {file} is valid until {ends}")


def _certificate(file: Path) -> Certificate:
    decoded = vars(_ssl)["_test_decode_cert"](file)
    return Certificate(
        file, ssl.cert_time_to_seconds(decoded["notBefore"]), ssl.cert_time_to_seconds(decoded["notAfter"])
    )
